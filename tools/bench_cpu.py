# SPDX-License-Identifier: Apache-2.0
"""How fast fp8 products are emulated on this processor, as a ratio to torch's float32 matmul in the same run.

python tools/bench_cpu.py --markdown           # the table of docs/performance.md; a quarter of an hour on two cores
python tools/bench_cpu.py --quick --json       # two shapes; machine-readable
python tools/bench_cpu.py --kernel avx2        # what a processor without AVX-512 would do

Candidates are interleaved and the median of the rounds counts: a busy machine slows both sides of a ratio. A product
above 30 GMAC is measured once.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

import mmaemu
from mmaemu import factors, plan, profiles, request
from mmaemu.backends import native
from mmaemu.backends.native import library, sums

# N and K of Evo 2's fp8 projections.
LAYERS = {"1b": (5760, 1920), "7b": (12288, 4096), "40b": (24576, 8192)}
ROWS = (1, 64, 256, 2048)
ONCE_ABOVE = 30e9
"""Products of a call that takes seconds, and is long enough for a median by itself."""
QUICK = [("1b", 64), ("1b", 2048)]
PROFILES = {32: "h100-pcie-cublaslt12.8", 16: "l40s"}


def medians(candidates: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """Seconds of each, run in turn."""
    times: list[list[float]] = [[] for _ in candidates]
    for _ in range(rounds):
        for run, found in zip(candidates, times, strict=True):
            start = time.perf_counter()
            run()
            found.append(time.perf_counter() - start)
    return [statistics.median(found) for found in times]


def operands(m: int, n: int, k: int, data: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    if data == "gauss":
        a, b = (torch.randn(rows, k, generator=generator).to(torch.float8_e4m3fn) for rows in (m, n))
    else:
        words = [torch.randint(0, 0x7F, (rows, k), generator=generator, dtype=torch.uint8) for rows in (m, n)]
        signs = [torch.randint(0, 2, (rows, k), generator=generator, dtype=torch.uint8) << 7 for rows in (m, n)]
        a, b = ((word | sign).view(torch.float8_e4m3fn) for word, sign in zip(words, signs, strict=True))
    return a, b.t()


def products(quick: bool, rounds: int, threads: Sequence[int]) -> list[dict[str, Any]]:
    rows = []
    for name, (n, k) in LAYERS.items():
        for m in ROWS:
            if quick and (name, m) not in QUICK:
                continue
            for data in ("gauss",) if quick else ("gauss", "adversarial"):
                own = rounds if m * n * k <= ONCE_ABOVE else 1
                rows += [one(name, m, n, k, data, count, own) for count in threads]
    return [row for group in rows for row in group]


def one(name: str, m: int, n: int, k: int, data: str, threads: int, rounds: int) -> list[dict[str, Any]]:
    """Both groups, fast and slow, and torch's float32 product, all in turn."""
    torch.set_num_threads(threads)
    a, b = operands(m, n, k, data)
    x, y = torch.randn(m, k), torch.randn(k, n)
    scale = torch.tensor(1.0)
    modes = [(group, fast) for group in PROFILES for fast in (True, False)]

    def emulate(group: int, fast: bool) -> None:
        mmaemu.scaled_mm(
            a, b, scale, scale, out_dtype=torch.bfloat16, use_fast_accum=fast, profile=PROFILES[group], threads=threads,
            backend="native",
        )  # fmt: skip

    candidates: list[Callable[[], Any]] = [lambda: x @ y, *(partial(emulate, *mode) for mode in modes)]
    plain, *ours = medians(candidates, rounds)
    found = []
    for (group, fast), seconds in zip(modes, ours, strict=True):
        found.append(
            {
                "layer": name, "m": m, "n": n, "k": k, "data": data, "threads": threads, "group": group,
                "mode": "fast" if fast else "slow", "gmacs": m * n * k / seconds / 1e9, "ratio": plain / seconds,
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

    ours, theirs = medians([lambda: run("native"), lambda: run("reference")], 3)
    return theirs / ours


def overhead(n: int, k: int) -> dict[str, float]:
    """Microseconds of a 16 x n x k call: the backend alone, and all of scaled_mm. The best of five medians."""
    a, b = operands(16, n, k, "gauss")
    scale = torch.tensor(1.0)
    call = request.build(a, b, scale, scale, out_dtype=torch.bfloat16, profile=profiles.DEFAULT)
    layout, own = plan.make(call), factors.of(call)
    candidates = [
        lambda: native.multiply(call.a.data, call.b.data, own, layout),
        lambda: mmaemu.scaled_mm(a, b, scale, scale, out_dtype=torch.bfloat16),
    ]
    best = [min(times) * 1e6 for times in zip(*(medians(candidates, 300) for _ in range(5)), strict=True)]
    return dict(zip(("backend", "scaled_mm"), best, strict=True))


_MEMORY = """
import sys
import numpy as np
import mmaemu
from mmaemu import Bits
size, one = int(sys.argv[1]), np.float32(1)
random = np.random.default_rng(0)
words = [random.integers(0, 0x70, (size, size), np.uint8) for _ in range(2)]
a, b = Bits("float8_e4m3fn", words[0]), Bits("float8_e4m3fn", words[1].T)
def multiply(rows):
    return mmaemu.scaled_mm(Bits("float8_e4m3fn", words[0][:rows]), b, one, one, out_dtype="bfloat16", backend="native")
def status(name):
    (line,) = (line for line in open("/proc/self/status") if line.startswith(name))
    return int(line.split()[1]) / 1024
multiply(1)  # imports
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak starts anew
before = status("VmRSS")
out = multiply(size)
print(before, status("VmHWM") - before - out.array.nbytes / 2**20)
"""


def memory(size: int) -> dict[str, float]:
    """MiB that a size^3 product needs beside its operands and its result, in a process of its own (Linux)."""
    run = subprocess.run([sys.executable, "-c", _MEMORY, str(size)], capture_output=True, text=True, check=True)
    operands_and_python, beside = map(float, run.stdout.split())
    return {"size": size, "before_mib": operands_and_python, "beside_result_mib": beside}


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """GMAC/s and shares of float32: a row for each shape, data and thread count."""
    lines = [
        "| M x N x K | data | threads | group 32, fast | slow | group 16, fast | slow |",
        "|---|---|---|---|---|---|---|",
    ]
    for first in range(0, len(rows), 4):
        own = rows[first]
        cells = " | ".join(f"{row['gmacs']:.1f}, {row['ratio']:.2f}" for row in rows[first : first + 4])
        lines.append(f"| {own['m']} x {own['n']} x {own['k']} | {own['data']} | {own['threads']} | {cells} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Speed of the compiled CPU backend, beside torch's float32 matmul.")
    parser.add_argument("--quick", action="store_true", help="two shapes")
    parser.add_argument("--rounds", type=int, default=3, help="of each candidate (default 3)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="(default 1 2)")
    parser.add_argument(
        "--memory", type=int, default=8192, metavar="SIZE", help="of the product whose memory is measured"
    )
    parser.add_argument("--kernel", choices=list(library.KERNELS), help="(default: the fastest of this processor)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="machine-readable, on standard output")
    form.add_argument("--markdown", action="store_true", help="the table of docs/performance.md")
    options = parser.parse_args(arguments)
    if library.load() is None:
        print(f"no compiled kernels: {library.why_missing()}", file=sys.stderr)
        return 1
    if options.kernel and not library.has(options.kernel):
        parser.error(f"this processor cannot run the {options.kernel} kernel")
    sums.KERNEL = options.kernel
    found: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "kernel": options.kernel or library.fastest(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "products": products(options.quick, options.rounds, options.threads),
        "times_reference": against_reference(),
        "small_call_us": {f"16 x {n} x {k}": overhead(n, k) for n, k in ((16, 16), (64, 64))},
        "memory": memory(1024 if options.quick else options.memory),
    }
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    print(markdown(found["products"]) if options.markdown else "\n".join(map(line, found["products"])))
    print(f"\n{found['times_reference']:.0f} times the reference backend (64 x 1920 x 1920, two threads)")
    for shape, times in found["small_call_us"].items():
        print(f"{shape}: " + ", ".join(f"{name} {us:.0f} us" for name, us in times.items()))
    print(f"{found['memory']['size']} cubed: {found['memory']['beside_result_mib']:.0f} MiB beside operands and result")
    return 0


if __name__ == "__main__":
    sys.exit(main())
