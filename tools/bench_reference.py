# SPDX-License-Identifier: Apache-2.0
"""How fast the reference backend is: MMAC/s by shape, profile, accumulation, data and thread count.

    python tools/bench_reference.py            # all cases, a few minutes
    python tools/bench_reference.py --quick    # small shape, one run each: does it work, roughly how fast
    python tools/bench_reference.py --json out.json

Each figure is the median of several runs. Where torch is installed, every run is followed by the same product as
torch's float32 matmul on the same number of threads, so that a busy machine slows both; the ratio says how many times
longer the emulation takes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from mmaemu import Bits, accumulate
from mmaemu.backends.tiles import thread_count
from mmaemu.model import formats
from mmaemu.model.decode import decode

SHAPES = ((64, 5760, 1920), (16, 256, 1024))
"""M, K, N."""
PROFILES = ("h100-pcie-cublaslt12.8", "l40s")
DATA = ("gaussian", "adversarial")
SEED = 2024
MATMULS = 5
"""float32 products after each run, of which the fastest counts: they are so short that waking threads can outweigh
them."""

Codes = NDArray[np.uint8]


@dataclass(frozen=True)
class Case:
    m: int
    k: int
    n: int
    profile: str
    fast: bool
    data: str
    threads: int

    @property
    def mmac(self) -> float:
        return self.m * self.k * self.n / 1e6


@dataclass(frozen=True)
class Timing:
    """Medians over the runs; torch's are None where torch is absent."""

    case: Case
    runs: int
    seconds: float
    mmac_per_s: float
    torch_seconds: float | None
    ratio: float | None


def operands(case: Case) -> tuple[Bits, Bits]:
    """a [M, K] row-major and b [K, N] column-major, e4m3."""
    make = {"gaussian": gaussian, "adversarial": adversarial}[case.data]
    rng = np.random.default_rng(SEED)
    a, b = make(rng, (case.m, case.k)), make(rng, (case.n, case.k))
    return Bits("e4m3", a), Bits("e4m3", b.T)


def gaussian(rng: np.random.Generator, shape: tuple[int, int]) -> Codes:
    """Normal numbers, scaled so that the largest becomes 448, as the nearest e4m3 codes: a quantised tensor."""
    magnitudes = values()[:0x7F]
    x = rng.standard_normal(shape)
    scaled = np.abs(x) * (magnitudes[-1] / np.abs(x).max())
    midpoints = (magnitudes[1:] + magnitudes[:-1]) / 2
    return signed(np.searchsorted(midpoints, scaled), np.signbit(x))


def adversarial(rng: np.random.Generator, shape: tuple[int, int]) -> Codes:
    """Every finite code equally often: all exponents, subnormals and both signs in each group."""
    return signed(rng.integers(0, 0x7F, shape), rng.integers(0, 2, shape))


def signed(codes: NDArray[Any], negative: NDArray[Any]) -> Codes:
    return (codes | np.where(negative, 0x80, 0)).astype(np.uint8)


def values() -> NDArray[np.float64]:
    """The number of every e4m3 code."""
    parts = decode(np.arange(256, dtype=np.uint8), formats.E4M3)
    return np.ldexp((parts.sign * parts.magnitude).astype(np.float64), parts.exponent - parts.fraction_bits)


def measure(case: Case, runs: int) -> Timing:
    a, b = operands(case)
    matmul = float32_matmul(a, b, case.threads)
    own, torchs = [], []
    with threads_of_backend(case.threads):
        for _ in range(runs):
            own.append(
                seconds(lambda: accumulate(a, b, use_fast_accum=case.fast, profile=case.profile, backend="reference"))
            )
            if matmul is not None:
                torchs.append(min(seconds(matmul) for _ in range(MATMULS)))
    median = statistics.median(own)
    torch_median = statistics.median(torchs) if torchs else None
    ratio = None if torch_median is None else median / torch_median
    return Timing(case, runs, median, case.mmac / median, torch_median, ratio)


def float32_matmul(a: Bits, b: Bits, threads: int) -> Callable[[], Any] | None:
    """The same product by torch in float32, warmed up; None without torch."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    torch.set_num_threads(threads)
    table = values().astype(np.float32)
    x, y = torch.from_numpy(table[a.array]), torch.from_numpy(table[b.array])
    torch.matmul(x, y)
    return lambda: torch.matmul(x, y)


@contextmanager
def threads_of_backend(count: int) -> Iterator[None]:
    before = os.environ.get("MMAEMU_THREADS")
    os.environ["MMAEMU_THREADS"] = str(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ["MMAEMU_THREADS"]
        else:
            os.environ["MMAEMU_THREADS"] = before


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def cases(quick: bool) -> Iterator[Case]:
    """All threads on all data, and one thread on Gaussian data."""
    every = thread_count(None)
    for (m, k, n), profile, fast in product(SHAPES[1:] if quick else SHAPES, PROFILES, (True, False)):
        for data, threads in (("gaussian", 1), ("gaussian", every), ("adversarial", every)):
            yield Case(m, k, n, profile, fast, data, threads)


def runs_for(case: Case, quick: bool) -> int:
    """More runs of short cases, whose timing is noisier."""
    return 1 if quick else 3 if case.mmac > 100 else 7


HEADER = f"{'M x K x N':<16}{'profile':<24}{'sum':<6}{'data':<13}{'threads':>7}{'MMAC/s':>9}{'ratio to float32':>18}"


def line(timing: Timing) -> str:
    c = timing.case
    shape, kind = f"{c.m}x{c.k}x{c.n}", "fast" if c.fast else "slow"
    ratio = "no torch" if timing.ratio is None else f"{timing.ratio:.0f}"
    return f"{shape:<16}{c.profile:<24}{kind:<6}{c.data:<13}{c.threads:>7}{timing.mmac_per_s:>9.1f}{ratio:>18}"


def report(timings: list[Timing]) -> dict[str, Any]:
    """What --json writes."""
    return {
        "schema": "mmaemu-bench/1",
        "backend": "reference",
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "processors": thread_count(None),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "timings": [asdict(timing) for timing in timings],
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="MMAC/s of the reference backend.")
    parser.add_argument("--quick", action="store_true", help="the small shape only, one run each")
    parser.add_argument("--runs", type=int, default=None, help="runs of each case (default 3 to 7, by its size)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args(arguments)
    if options.runs is not None and options.runs < 1:
        parser.error("--runs: wanted at least 1")
    todo = list(cases(options.quick))
    print(HEADER)
    timings = []
    for case in tqdm(todo, disable=None, leave=False, unit="case"):
        timings.append(measure(case, options.runs or runs_for(case, options.quick)))
        tqdm.write(line(timings[-1]))
        sys.stdout.flush()
    if options.json is not None:
        options.json.write_text(json.dumps(report(timings), indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
