# SPDX-License-Identifier: Apache-2.0
"""The compiled CPU backend: the reference's bits for fp8, tens of times faster.

`supports` says which plans it runs. Rows and columns that hold NaN or Inf go to the reference, which has the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mmaemu.backends import reference
from mmaemu.backends.execute import of_tile
from mmaemu.backends.interface import Progress
from mmaemu.backends.native import library
from mmaemu.backends.native.library import address
from mmaemu.model import formats
from mmaemu.model.epilogue import Factors
from mmaemu.model.formats import AnyBits, Format
from mmaemu.plan import Plan, Range, Split

Index = NDArray[np.intp]

TILE_M, TILE_N = 256, 512
KERNEL: str | None = None
"""A kernel to use in place of the fastest, for tests and benchmarks."""

_FORMATS = {formats.E4M3: 0, formats.E5M2: 1}
_OUTPUTS = {formats.F32: 0, formats.BF16: 1, formats.F16: 2, formats.E4M3: 3, formats.E5M2: 4}
_ORDERS = {"combined": 0, "a_then_b": 1, "b_then_a": 2}
_ALREADY_SCALED = 3
_NO_BIAS, _SEPARATE, _FUSED = 0, 1, 2
# What the kernels are written for; the floor of the common exponent is out of reach of fp8 products.
_RULE = {
    "order": "sequential",
    "fraction_bits": 13,
    "result_fraction_bits": 13,
    "result_rounding": "RZ",
    "accumulator_joins": "first_step",
    "zero_products_align": False,
    "zero_accumulator_aligns": False,
}
_HIGHEST_FLOOR = -100


def supports(plan: Plan) -> str | None:
    """None where the kernels run this plan, else why they do not."""
    rule = plan.instruction.rule
    for name, value in _RULE.items():
        if getattr(rule, name) != value:
            return f"the kernels are written for {name} {value}, and this instruction has {getattr(rule, name)}"
    if rule.group not in (16, 32) or rule.instruction_k % rule.group:
        return f"the kernels are written for groups of 16 and 32, and this instruction has {rule.group}"
    if rule.min_exponent > _HIGHEST_FLOOR:
        return f"the kernels are written for a min_exponent that fp8 does not reach, not {rule.min_exponent}"
    if plan.fmt_a not in _FORMATS or plan.fmt_b not in _FORMATS:
        return "the kernels are written for fp8 operands"
    return None


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
    return _run(a, b, factors, plan, None, threads, progress)


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
    return _run(a, b, factors, plan, plan.fmt_out, threads, progress)


def _run(
    a: AnyBits, b: AnyBits, factors: Factors, plan: Plan, fmt_out: Format | None, threads: int | None,
    progress: Progress | None,
) -> AnyBits:  # fmt: skip
    out = np.zeros((plan.m, plan.n), np.uint32 if fmt_out is None else fmt_out.storage)
    if plan.k == 0 or out.size == 0:
        return out
    a, b = _rows_together(a), _rows_together(b)
    kernel = library.KERNELS[KERNEL or library.fastest()]
    threads = reference.thread_count(threads)
    tiles = _tiles(plan.m, plan.n, threads)

    def run(rows: Range, columns: Range) -> None:
        own = of_tile(factors, rows, columns)
        partials = [_sum(kernel, a, b, own, split, plan, rows, columns) for split in plan.splits]
        acc = partials[0] if len(partials) == 1 else reference.reduce_partials(partials, own, plan)
        part = out[slice(*rows), slice(*columns)]
        if fmt_out is None:
            part[...] = acc
        else:
            _finish(acc, own, plan, part)

    if len(tiles) == 1:
        run(*tiles[0])
        if progress is not None:
            progress(1, 1)
    else:
        _in_threads(run, tiles, threads, progress)
    _special(a, b, factors, plan, fmt_out, out)
    return out


def _in_threads(
    run: Callable[[Range, Range], None], tiles: list[tuple[Range, Range]], threads: int, progress: Progress | None
) -> None:
    with ThreadPoolExecutor(min(threads, len(tiles))) as pool:
        futures = [pool.submit(run, *tile) for tile in tiles]
        try:
            for done, future in enumerate(futures, 1):
                future.result()
                if progress is not None:
                    progress(done, len(tiles))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _tiles(m: int, n: int, threads: int) -> list[tuple[Range, Range]]:
    """Tiles that cover the result; narrower, then lower, where there would be fewer than threads."""
    height, width = TILE_M, TILE_N
    while -(-m // height) * -(-n // width) < 2 * threads and min(m, height) * width > 64 * 64 and width > 64:
        width //= 2
    return [
        ((row, min(m, row + height)), (column, min(n, column + width)))
        for column in range(0, n, width)
        for row in range(0, m, height)
    ]


def _sum(
    kernel: int, a: AnyBits, b: AnyBits, own: Factors, split: Split, plan: Plan, rows: Range, columns: Range
) -> AnyBits:
    """One split's float32 words of a tile."""
    found = library.load()
    assert found is not None
    height, width = rows[1] - rows[0], columns[1] - columns[0]
    starts, stops = (np.array(ends, np.int64) for ends in zip(*split.chunks, strict=True))
    total = np.empty((height, width), np.float32)
    scale_a = scale_b = None
    if plan.scales_chunks:
        scale_a, scale_b = (np.ascontiguousarray(words) for words in (own.scale_a, own.scale_b))
    found.mmaemu_fp8_sum(
        kernel, address(a[rows[0] :]), a.shape[1], _FORMATS[plan.fmt_a],
        address(b[:, columns[0] :]), b.shape[1], _FORMATS[plan.fmt_b], height, width, plan.instruction.rule.group,
        len(starts), address(starts), address(stops), address(scale_a), own.scale_a.shape[1], address(scale_b),
        width if scale_b is None else scale_b.shape[1], int(plan.rule.scale_order == "b_then_a"), address(total), width,
    )  # fmt: skip
    return total.view(np.uint32)


def _finish(acc: AnyBits, own: Factors, plan: Plan, out: AnyBits) -> None:
    """The epilogue of a tile, into its part of the result."""
    found = library.load()
    assert found is not None
    rule, fmt = plan.rule, plan.fmt_out
    scaled = plan.scales_partials or plan.scales_chunks
    scale_a, scale_b = (np.ascontiguousarray(words) for words in (own.scale_a, own.scale_b))
    bias = None if own.bias is None else np.ascontiguousarray(own.bias)
    mode = _NO_BIAS
    if bias is not None or rule.adds_without_bias:
        mode = _FUSED if rule.bias_add == "fused" else _SEPARATE
    fp8 = fmt in formats.FP8
    nan = rule.nan_fp8 if fp8 else rule.nan_f32 if fmt is formats.F32 else rule.nan_16bit
    last = np.ascontiguousarray(own.scale_result) if own.scale_result is not None and fp8 else None
    found.mmaemu_epilogue(
        address(acc), acc.shape[1], *acc.shape, _ALREADY_SCALED if scaled else _ORDERS[rule.scale_order],
        address(scale_a), int(scale_a.shape[0] > 1), address(scale_b), int(scale_b.shape[1] > 1), mode, address(bias),
        address(last), _OUTPUTS[fmt], int((rule.fp8_overflow if fp8 else rule.wide_overflow) == "saturate"), nan,
        address(out), out.strides[0] // out.itemsize,
    )  # fmt: skip


def _special(a: AnyBits, b: AnyBits, factors: Factors, plan: Plan, fmt_out: Format | None, out: AnyBits) -> None:
    """Outputs of rows and columns that hold NaN or Inf, by the reference."""
    rows, columns = _not_finite(a, plan.fmt_a)[0], _not_finite(b, plan.fmt_b)[1]
    work = reference.accumulate if fmt_out is None else reference.multiply
    if rows.size:
        own = replace(factors, scale_a=_take(factors.scale_a, rows, 0))
        out[rows] = work(a[rows], b, own, _resized(plan, rows.size, plan.n))
    if columns.size:
        bias = None if factors.bias is None else _take(factors.bias, columns, 1)
        own = replace(factors, scale_b=_take(factors.scale_b, columns, 1), bias=bias)
        out[:, columns] = work(a, b[:, columns], own, _resized(plan, plan.m, columns.size))


def _rows_together(words: AnyBits) -> AnyBits:
    """The same words in row-major order without gaps."""
    if words.T.flags.c_contiguous and not words.flags.c_contiguous:
        found = library.load()
        assert found is not None
        turned = np.empty(words.shape, words.dtype)
        found.mmaemu_transpose(address(words), words.shape[0], words.shape[1], words.shape[0], address(turned))
        return turned
    return np.ascontiguousarray(words)


def _not_finite(words: AnyBits, fmt: Format) -> tuple[Index, Index]:
    """The rows, and the columns, that hold NaN or Inf."""
    found = library.load()
    assert found is not None
    rows, columns = words.shape
    marks = np.zeros(rows, np.uint8), np.zeros(columns, np.uint8)
    lowest = 0x7F if fmt is formats.E4M3 else 0x7C
    found.mmaemu_not_finite(address(words), columns, rows, columns, lowest, *map(address, marks))
    return np.flatnonzero(marks[0]), np.flatnonzero(marks[1])


def _take(words: AnyBits, index: Index, axis: int) -> AnyBits:
    return words if words.shape[axis] == 1 else words.take(index, axis=axis)


def _resized(plan: Plan, m: int, n: int) -> Plan:
    return replace(plan, m=m, n=n, parts=(replace(plan.parts[0], rows=(0, m), columns=(0, n)),))
