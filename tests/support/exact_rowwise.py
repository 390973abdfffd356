# SPDX-License-Identifier: Apache-2.0
"""One output of PyTorch's row-wise kernels and of block-wise products, played through tile by tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.exact_gemm import convert, scale
from tests.support.exact_oracle import add, dot, fma, multiply

Words = Sequence[int]


def sm89_order(start: int, stop: int, tile: int = 64) -> list[int | None]:
    """The k of one block in the order in which it reads them; None is a zero that fills the ragged tile."""
    ragged = (stop - start) % tile
    order: list[int | None] = list(range(start, start + ragged))
    order += [None] * (-ragged % tile)
    return order + list(range(start + ragged, stop))


def sm89_sum(row: Words, column: Words, fmts: tuple[str, str], step: Any, *, fast: bool, ranges: Any) -> int:
    """The accumulator of CUTLASS 2.x: in each K tile of 64 the staged sum is promoted after the first slice of 32."""
    partials = []
    for start, stop in ranges:
        order = sm89_order(start, stop)
        a, b = ([0 if k is None else words[k] for k in order] for words in (row, column))
        if fast:
            partials.append(dot(a, b, 0, *fmts, "f32", step))
            continue
        total, staged = 0, []
        for position in range(0, len(order), 32):
            staged.append(position)
            if position % 64 == 0:
                total, staged = add(total, _chain(a, b, staged, fmts, step)), []
        partials.append(add(total, _chain(a, b, staged, fmts, step)))
    result = partials[0]
    for partial in partials[1:]:
        result = add(result, partial)
    return result


def _chain(a: Words, b: Words, slices: list[int], fmts: tuple[str, str], step: Any) -> int:
    left = [word for start in slices for word in a[start : start + 32]]
    right = [word for start in slices for word in b[start : start + 32]]
    return dot(left, right, 0, *fmts, "f32", step)


def sm90_sum(row: Words, column: Words, fmts: tuple[str, str], step: Any, *, fast: bool) -> int:
    """The accumulator of CUTLASS 3.x: promoted after every four instructions of 32, or never."""
    length = len(row) if fast else 128
    total = 0
    for start in range(0, len(row), length):
        total = add(total, dot(row[start : start + length], column[start : start + length], 0, *fmts, "f32", step))
    return total


def blockwise_sum(
    row: Words, column: Words, fmts: tuple[str, str], step: Any, scales_a: Words, scales_b: Words, first: str
) -> int:
    """The float32 sum of NVIDIA's block-wise reference: fma(chunk * first scale, second scale, sum)."""
    total = 0
    for block, start in enumerate(range(0, len(row), 128)):
        chunk = dot(row[start : start + 128], column[start : start + 128], 0, *fmts, "f32", step)
        one, two = scales_a[block], scales_b[block]
        if first == "b":
            one, two = two, one
        total = fma(multiply(chunk, one), two, total)
    return total


def finish(
    acc: int, fmt_out: str, rule: Any, order: str, scale_a: int, scale_b: int, bias: int | None,
    scale_result: int | None = None, *, scaled: bool = False,
) -> int:  # fmt: skip
    """scales, bias, scale of the result, conversion. bias: a float32 word."""
    addend = 0 if bias is None and rule.adds_without_bias else bias
    if scaled:
        word = acc if addend is None else add(acc, addend)
    elif addend is None:
        word = scale(acc, scale_a, scale_b, order)
    elif rule.bias_add == "separate":
        word = add(scale(acc, scale_a, scale_b, order), addend)
    elif order == "combined":
        word = fma(acc, multiply(scale_a, scale_b), addend)
    elif order == "a_then_b":
        word = fma(multiply(acc, scale_a), scale_b, addend)
    else:
        word = fma(multiply(acc, scale_b), scale_a, addend)
    if scale_result is not None and fmt_out in ("e4m3", "e5m2"):
        word = multiply(word, scale_result)
    return convert(word, fmt_out, rule)
