# SPDX-License-Identifier: Apache-2.0
"""The oracle: model/ applied to tiles of the result, in numpy integers.

Tiles go to threads: numpy lets go of the interpreter lock, and each of its operations on a tile is long enough to make
that worth while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from mmaemu.backends.execute import of_tile
from mmaemu.backends.interface import Progress
from mmaemu.backends.tiles import Tile, cover, in_threads, thread_count
from mmaemu.model import accumulator, chain, epilogue, ieee, reduction
from mmaemu.model.dot_product import Dot
from mmaemu.model.epilogue import Factors
from mmaemu.model.formats import F32, AnyBits
from mmaemu.plan import Plan, Split

TILE_M, TILE_N = 64, 512
SMALLEST_TILE = 8192
"""Outputs of a tile below which handing the interpreter lock between threads costs more than a thread brings."""
LARGEST_TILE = 1 << 26
"""Products of a tile, where K allows it: tenths of a second, which is how long progress and cancelling may wait."""
DOT_PRODUCTS = 1 << 20
"""Products of one slice of a list of dot products: its temporaries stay small however many there are."""


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
        *_, (_, words) = epilogue.steps(acc, own, plan.fmt_out, plan.rule, plan.scales_before_epilogue)
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

    def run(tile: Tile) -> None:
        rows, columns = slice(*tile[0]), slice(*tile[1])
        own = of_tile(factors, *tile)
        partials = [_partial(a[rows], b[:, columns], own, split, plan) for split in plan.splits]
        *_, total = running_sums(partials, own, plan)
        out[rows, columns] = finish(total, own)

    in_threads(run, _tiles(plan, threads), threads, progress)


def _tiles(plan: Plan, threads: int) -> list[Tile]:
    """Tiles that cover the result, narrower where there would be fewer than threads, or K is long."""
    m, n, width = plan.m, plan.n, TILE_N
    rows = min(m, TILE_M)
    while rows * width // 2 >= SMALLEST_TILE and (
        -(-m // TILE_M) * -(-n // width) < threads or rows * width * plan.k > LARGEST_TILE
    ):
        width //= 2
    return cover(m, n, TILE_M, width)


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


def running_sums(partials: Sequence[AnyBits], factors: Factors, plan: Plan) -> Iterator[AnyBits]:
    """The float32 accumulator after each split, partials scaled first where the plan says so."""
    if plan.scales_partials:
        partials = [epilogue.apply_scales(partial, factors.scale_a, factors.scale_b, plan.rule) for partial in partials]
    return reduction.running_sums(
        partials, plan.scheme, lambda partial: epilogue.convert(partial, plan.fmt_out, plan.rule), plan.fmt_out
    )


def dot(
    a: AnyBits, b: AnyBits, c: AnyBits, how: Dot, *, threads: int | None = None, progress: Progress | None = None
) -> AnyBits:
    """[count] accumulator words: the chain of one instruction over each row of a and b, [count, K] words, and c."""
    out = np.empty(c.shape, c.dtype)
    step = max(1, DOT_PRODUCTS // a.shape[1])

    def run(start: int) -> None:
        part = slice(start, start + step)
        out[part] = how.of_words(a[part], b[part], c[part])

    in_threads(run, range(0, len(c), step), thread_count(threads), progress)
    return out
