# SPDX-License-Identifier: Apache-2.0
"""The oracle: model/ applied to tiles of the result, in numpy integers.

Tiles go to threads: numpy lets go of the interpreter lock, and each of its operations on a tile is long enough to make
that worth while.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from mmaemu.backends.execute import of_tile
from mmaemu.backends.interface import Progress
from mmaemu.errors import InvalidInputError
from mmaemu.model import accumulator, chain, epilogue, ieee, reduction
from mmaemu.model.epilogue import Factors
from mmaemu.model.formats import F32, AnyBits
from mmaemu.plan import Plan, Split

TILE_M, TILE_N = 64, 512
SMALLEST_TILE = 8192
"""Outputs of a tile below which handing the interpreter lock between threads costs more than a thread brings."""


@dataclass(frozen=True)
class _Tile:
    rows: tuple[int, int]
    columns: tuple[int, int]


def accumulate(
    a: AnyBits,
    b: AnyBits,
    factors: Factors,
    plan: Plan,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> AnyBits:
    """[M, N] float32 words: the sum over K as the plan lays it out, before the epilogue.

    a: [M, K] words, b: [K, N] words, any strides. K = 0 gives +0 everywhere. Scales count only where the plan applies
    them to chunks or partials. A raised exception in `progress` stops the work.
    """
    out = np.zeros((plan.m, plan.n), np.uint32)

    def finish(acc: AnyBits, own: Factors) -> AnyBits:
        return acc

    _run(a, b, factors, plan, out, finish, threads, progress)
    return out


def multiply(
    a: AnyBits,
    b: AnyBits,
    factors: Factors,
    plan: Plan,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> AnyBits:
    """[M, N] output words: `accumulate`, then the epilogue, tile by tile."""
    out = np.zeros((plan.m, plan.n), plan.fmt_out.storage)

    def finish(acc: AnyBits, own: Factors) -> AnyBits:
        scaled = plan.scales_partials or plan.scales_chunks
        *_, (_, words) = epilogue.steps(acc, own, plan.fmt_out, plan.rule, scaled)
        return words

    _run(a, b, factors, plan, out, finish, threads, progress)
    return out


def _run(
    a: AnyBits, b: AnyBits, factors: Factors, plan: Plan, out: AnyBits,
    finish: Callable[[AnyBits, Factors], AnyBits], threads: int | None, progress: Progress | None,
) -> None:  # fmt: skip
    """Fill `out` tile by tile."""
    if plan.k == 0 or out.size == 0:
        return
    threads = thread_count(threads)
    tiles = _tiles(plan.m, plan.n, threads)

    def run(tile: _Tile) -> None:
        rows, columns = slice(*tile.rows), slice(*tile.columns)
        own = of_tile(factors, tile.rows, tile.columns)
        partials = [_partial(a[rows], b[:, columns], own, split, plan) for split in plan.splits]
        out[rows, columns] = finish(reduce_partials(partials, own, plan), own)

    with ThreadPoolExecutor(min(threads, len(tiles))) as pool:
        futures = [pool.submit(run, tile) for tile in tiles]
        try:
            for done, future in enumerate(futures, 1):
                future.result()
                if progress is not None:
                    progress(done, len(tiles))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def thread_count(threads: int | None) -> int:
    """`threads`, else MMAEMU_THREADS, else the processors that this process may use."""
    if threads is None and (text := os.environ.get("MMAEMU_THREADS")):
        threads = int(text) if text.isascii() and text.isdigit() else 0
        if threads == 0:
            raise InvalidInputError.because(
                "MMAEMU_THREADS", got=repr(text)[:80], wanted="a number of threads, 1 or more"
            )
    if threads is None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(threads, 1)


def _tiles(m: int, n: int, threads: int) -> list[_Tile]:
    """Tiles that cover the result, narrower where there would be fewer than threads."""
    width = TILE_N
    while -(-m // TILE_M) * -(-n // width) < threads and min(m, TILE_M) * width // 2 >= SMALLEST_TILE:
        width //= 2
    return [
        _Tile((row, min(m, row + TILE_M)), (column, min(n, column + width)))
        for column in range(0, n, width)
        for row in range(0, m, TILE_M)
    ]


def _partial(a: AnyBits, b: AnyBits, factors: Factors, split: Split, plan: Plan) -> AnyBits:
    """One split's float32 words: chunks restart from zero and join in order."""
    rule = plan.instruction.rule
    total = None
    for start, stop in split.chunks:
        left = chain.operand(a[:, start:stop].T, plan.fmt_a, rule)[:, :, None]
        right = chain.operand(b[start:stop], plan.fmt_b, rule)[:, None, :]
        zero = accumulator.zeros((a.shape[0], b.shape[1]), F32)
        chunk = accumulator.write(chain.run(left, right, zero, F32, rule), F32, rule)
        total = join(total, chunk, factors, start, plan)
    assert total is not None, "a split has at least one chunk"
    return total


def join(total: AnyBits | None, chunk: AnyBits, factors: Factors, start: int, plan: Plan) -> AnyBits:
    """The sum of the chunks before (None for the first) and the chunk that begins at k = `start`."""
    if plan.scales_chunks:
        block = plan.block_of(start)
        if total is None:
            total = np.zeros_like(chunk)
        scale_a, scale_b = factors.scale_a[:, block : block + 1], factors.scale_b[block : block + 1]
        return epilogue.join(total, chunk, scale_a, scale_b, plan.rule)
    return chunk if total is None else ieee.add(total, chunk)


def reduce_partials(partials: list[AnyBits], factors: Factors, plan: Plan) -> AnyBits:
    """The splits' words as one float32 accumulator, scaled first where the plan says so."""
    if plan.scales_partials:
        partials = [epilogue.apply_scales(partial, factors.scale_a, factors.scale_b, plan.rule) for partial in partials]
    return reduction.reduce(
        partials, plan.scheme, lambda partial: epilogue.convert(partial, plan.fmt_out, plan.rule), plan.fmt_out
    )
