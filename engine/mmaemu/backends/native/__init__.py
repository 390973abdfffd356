# SPDX-License-Identifier: Apache-2.0
"""The compiled CPU backend: the reference's bits, tens of times faster. It runs every plan and every instruction.

fp8 by the rule of Ada and Hopper has kernels of its own. All else, and rows and columns that hold NaN or Inf, which
those kernels do not know, are summed by the general one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mmaemu.backends.execute import of_tile
from mmaemu.backends.interface import Progress
from mmaemu.backends.native import finite, library, outputs, sums
from mmaemu.backends.native.finite import Index
from mmaemu.backends.native.library import address
from mmaemu.backends.structures import FORMATS
from mmaemu.backends.tiles import Tile, cover, in_threads, thread_count
from mmaemu.model.dot_product import Dot
from mmaemu.model.epilogue import Factors
from mmaemu.model.formats import AnyBits
from mmaemu.plan import Plan

TILE_M, TILE_N = 256, 1024
_SMALLEST_TILE = 64 * 64
_LARGEST_TILE = 4 << 30
"""Products of a tile, a sixteenth of it for the general kernel: some tenths of a second, which is how long progress
and cancelling may wait."""
DOT_PRODUCTS = 1 << 18
"""Products of one slice of a list of dot products: some milliseconds, so that threads share and cancelling is quick."""

_Finish = Callable[[AnyBits, Factors, Plan, AnyBits], None]


def accumulate(
    a: AnyBits,
    b: AnyBits,
    factors: Factors,
    plan: Plan,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> AnyBits:
    """As `reference.accumulate`."""

    def finish(acc: AnyBits, own: Factors, plan: Plan, part: AnyBits) -> None:
        part[...] = acc

    return _run(a, b, factors, plan, np.zeros((plan.m, plan.n), np.uint32), finish, threads, progress)


def multiply(
    a: AnyBits,
    b: AnyBits,
    factors: Factors,
    plan: Plan,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> AnyBits:
    """As `reference.multiply`; accumulators leave a tile as outputs."""
    out = np.zeros((plan.m, plan.n), plan.fmt_out.storage)
    return _run(a, b, factors, plan, out, outputs.finish, threads, progress)


def dot(
    a: AnyBits, b: AnyBits, c: AnyBits, how: Dot, *, threads: int | None = None, progress: Progress | None = None
) -> AnyBits:
    """As `reference.dot`."""
    a, b, c = (np.ascontiguousarray(words) for words in (a, b, c))
    out = np.empty(c.shape, c.dtype)
    rule, k = library.rule_of(how.rule), a.shape[1]
    fmt_a, fmt_b, fmt_c = (FORMATS[fmt] for fmt in (how.fmt_a, how.fmt_b, how.fmt_c))
    step = max(1, DOT_PRODUCTS // k)

    def run(start: int) -> None:
        part = slice(start, start + step)
        library.found().mmaemu_dot(
            address(a[part]), fmt_a, address(b[part]), fmt_b, address(c[part]), address(out[part]), fmt_c,
            len(c[part]), k, rule,
        )  # fmt: skip

    in_threads(run, range(0, len(c), step), thread_count(threads), progress)
    return out


@dataclass(frozen=True)
class _Job:
    """A product for one kernel, into a result of its own."""

    kernel: str
    a: AnyBits
    b: AnyBits
    factors: Factors
    plan: Plan
    out: AnyBits

    def run(self, tile: Tile, finish: _Finish) -> None:
        own = of_tile(self.factors, *tile)
        acc = outputs.reduced(sums.partials(self.kernel, self.a, self.b, own, self.plan, tile), own, self.plan)
        finish(acc, own, self.plan, self.out[slice(*tile[0]), slice(*tile[1])])


def _run(
    a: AnyBits, b: AnyBits, factors: Factors, plan: Plan, out: AnyBits, finish: _Finish, threads: int | None,
    progress: Progress | None,
) -> AnyBits:  # fmt: skip
    """`out`, filled by the kernel of the plan's rule; by the general one where operands are not finite."""
    if plan.k == 0 or out.size == 0:
        return out
    count = thread_count(threads)
    whole = _Job(sums.kernel_of(plan.instruction.rule, plan.fmt_a, plan.fmt_b), a, b, factors, plan, out)
    again = [] if whole.kernel == "general" else _not_finite(whole)
    tiles = [(job, tile) for job in (whole, *(job for _, job in again)) for tile in _tiles(job, count)]

    def run(piece: tuple[_Job, Tile]) -> None:
        job, tile = piece
        job.run(tile, finish)

    in_threads(run, tiles, count, progress)
    for place, job in again:
        out[place] = job.out
    return out


def _not_finite(whole: _Job) -> list[tuple[Any, _Job]]:
    """Where rows and columns with NaN or Inf lie in the result, and their products for the general kernel."""
    a, b, factors, plan = whole.a, whole.b, whole.factors, whole.plan
    rows, columns = finite.rows_that_are_not(a, plan.fmt_a), finite.rows_that_are_not(b.T, plan.fmt_b)
    found: list[tuple[Any, _Job]] = []
    if rows.size:
        own = replace(factors, scale_a=_take(factors.scale_a, rows, 0))
        out = np.empty((rows.size, plan.n), whole.out.dtype)
        found.append((rows, _Job("general", a[rows], b, own, _resized(plan, rows.size, plan.n), out)))
    if columns.size:
        bias = None if factors.bias is None else _take(factors.bias, columns, 1)
        own = replace(factors, scale_b=_take(factors.scale_b, columns, 1), bias=bias)
        out = np.empty((plan.m, columns.size), whole.out.dtype)
        part = _Job("general", a, b[:, columns], own, _resized(plan, plan.m, columns.size), out)
        found.append(((slice(None), columns), part))
    return found


def _tiles(job: _Job, threads: int) -> list[Tile]:
    """Tiles that cover the result; narrower where there would be too few for threads to share evenly, or K is long."""
    plan, most = job.plan, _LARGEST_TILE // (16 if job.kernel == "general" else 1)
    # Chunks join a sum that should stay in the cache beside theirs.
    height, width = TILE_M, TILE_N if len(plan.splits[0].chunks) == 1 else TILE_N // 2
    rows = min(plan.m, height)
    while width > 64 and (
        rows * width * plan.k > most
        or (-(-plan.m // height) * -(-plan.n // width) < 2 * threads and rows * width > _SMALLEST_TILE)
    ):
        width //= 2
    return cover(plan.m, plan.n, height, width)


def _take(words: AnyBits, index: Index, axis: int) -> AnyBits:
    return words if words.shape[axis] == 1 else words.take(index, axis=axis)


def _resized(plan: Plan, m: int, n: int) -> Plan:
    return plan.only(replace(plan.parts[0], rows=(0, m), columns=(0, n)))
