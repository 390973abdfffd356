# SPDX-License-Identifier: Apache-2.0
"""How fast fp8 products are emulated on this processor, as a ratio to torch's float32 matmul in the same run.

python tools/bench_cpu.py                      # the table of docs/performance.md; minutes
python tools/bench_cpu.py --quick --json       # two shapes; machine-readable

Candidates are interleaved and the median of the rounds counts: a busy machine slows both sides of a ratio.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import mmaemu
from mmaemu import profiles
from mmaemu.backends import native
from mmaemu.backends.native import library

# N and K of Evo 2's fp8 projections.
LAYERS = {"1b": (5760, 1920), "7b": (12288, 4096), "40b": (24576, 8192)}
ROWS = (1, 64, 256, 2048)
MOST_MACS = 60e9
"""A product above this takes more than its share of the run."""
PROFILES = {32: "h100-pcie-cublaslt12.8", 16: "l40s"}


def median(work: Callable[[], Any], other: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Seconds of both, run in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for run, found in zip((work, other), times, strict=True):
            start = time.perf_counter()
            run()
            found.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def operands(m: int, n: int, k: int, data: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    if data == "gauss":
        a, b = (torch.randn(rows, k, generator=generator).to(torch.float8_e4m3fn) for rows in (m, n))
    else:
        words = [torch.randint(0, 0x7F, (rows, k), generator=generator, dtype=torch.uint8) for rows in (m, n)]
        signs = [torch.randint(0, 2, (rows, k), generator=generator, dtype=torch.uint8) << 7 for rows in (m, n)]
        a, b = ((word | sign).view(torch.float8_e4m3fn) for word, sign in zip(words, signs, strict=True))
    return a, b.t()


def products(quick: bool, rounds: int, threads: tuple[int, ...]) -> list[dict[str, Any]]:
    rows = []
    for name, (n, k) in LAYERS.items():
        for m in ROWS:
            if m * n * k > MOST_MACS or (quick and (name != "1b" or m not in (64, 2048))):
                continue
            for data in ("gauss",) if quick else ("gauss", "adversarial"):
                rows += [one(name, m, n, k, data, count, rounds) for count in threads]
    return [row for group in rows for row in group]


def one(name: str, m: int, n: int, k: int, data: str, threads: int, rounds: int) -> list[dict[str, Any]]:
    torch.set_num_threads(threads)
    a, b = operands(m, n, k, data)
    x, y = torch.randn(m, k), torch.randn(k, n)
    scale = torch.tensor(1.0)
    found = []
    for group, profile in PROFILES.items():
        for fast in (True, False):

            def emulate(profile: str = profile, fast: bool = fast) -> None:
                mmaemu.scaled_mm(
                    a, b, scale, scale, out_dtype=torch.bfloat16, use_fast_accum=fast, profile=profile, threads=threads,
                    backend="native",
                )  # fmt: skip

            ours, plain = median(emulate, lambda: x @ y, rounds)
            found.append(
                {
                    "layer": name, "m": m, "n": n, "k": k, "data": data, "threads": threads, "group": group,
                    "mode": "fast" if fast else "slow", "gmacs": m * n * k / ours / 1e9, "ratio": plain / ours,
                }
            )  # fmt: skip
            print(line(found[-1]), file=sys.stderr, flush=True)
    return found


def line(row: dict[str, Any]) -> str:
    shape = f"{row['m']}x{row['n']}x{row['k']}"
    return (
        f"{shape:<18} {row['data']:<12} {row['threads']} threads  group {row['group']}  {row['mode']}  "
        f"{row['gmacs']:6.1f} GMAC/s  {row['ratio']:.2f} of float32"
    )


def against_reference() -> float:
    """How many times faster than the reference backend, 64 x 1920 x 1920."""
    a, b = operands(64, 1920, 1920, "gauss")
    scale = torch.tensor(1.0)

    def run(backend: str) -> None:
        mmaemu.scaled_mm(a, b, scale, scale, out_dtype=torch.bfloat16, use_fast_accum=True, backend=backend, threads=2)

    ours, theirs = median(lambda: run("native"), lambda: run("reference"), 3)
    return theirs / ours


def overhead() -> dict[str, float]:
    """Microseconds of a small call: the backend alone, and all of scaled_mm."""
    from mmaemu import factors, plan, request

    a, b = operands(16, 64, 64, "gauss")
    scale = torch.tensor(1.0)
    call = request.build(a, b, scale, scale, out_dtype=torch.bfloat16, profile=profiles.DEFAULT)
    layout, own = plan.make(call), factors.of(call)
    found = {}
    for name, run in {
        "backend": lambda: native.multiply(call.a.data, call.b.data, own, layout, threads=1),
        "scaled_mm": lambda: mmaemu.scaled_mm(a, b, scale, scale, out_dtype=torch.bfloat16, threads=1),
    }.items():
        run()
        start = time.perf_counter()
        for _ in range(500):
            run()
        found[name] = (time.perf_counter() - start) / 500 * 1e6
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Speed of the compiled CPU backend, beside torch's float32 matmul.")
    parser.add_argument("--quick", action="store_true", help="two shapes")
    parser.add_argument("--rounds", type=int, default=3, help="of each candidate (default 3)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="(default 1 2)")
    parser.add_argument("--json", action="store_true", help="machine-readable, on standard output")
    options = parser.parse_args(arguments)
    if library.load() is None:
        print(f"no compiled kernels: {library.why_missing()}", file=sys.stderr)
        return 1
    found: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "kernel": library.fastest(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "products": products(options.quick, options.rounds, tuple(options.threads)),
        "times_reference": against_reference(),
        "small_call_us": overhead(),
    }
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    for row in found["products"]:
        print(line(row))
    print(f"{found['times_reference']:.0f} times the reference backend (64 x 1920 x 1920, two threads)")
    print("16 x 64 x 64: " + ", ".join(f"{name} {us:.0f} us" for name, us in found["small_call_us"].items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
