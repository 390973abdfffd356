# SPDX-License-Identifier: Apache-2.0
"""A matrix product from the exact parts: ranges of K, chunks, the reduction, the scales, the conversion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.exact_oracle import INF, LAYOUTS, NAN, add, decode, dot, encode, multiply

SHORT = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float16": "f16", "bfloat16": "bf16", "float32": "f32"}


def ranges(k: int, splits: int, tile: int, layout: str) -> list[tuple[int, int]]:
    """Whole tiles to each split: ceil(tiles / S) each, or as evenly as they go with the longer ones first."""
    tiles = -(-k // tile)
    owner = [t // -(-tiles // splits) for t in range(tiles)] if layout == "ceil" else _even(tiles, splits)
    cuts = [(owner.index(s) * tile, (owner.index(s) + owner.count(s)) * tile) for s in sorted(set(owner))]
    return [(start, min(stop, k)) for start, stop in cuts]


def _even(tiles: int, splits: int) -> list[int]:
    return sorted(t % splits for t in range(tiles))


def chunks(start: int, stop: int, lengths: Sequence[int]) -> list[tuple[int, int]]:
    if not lengths:
        return [(start, stop)]
    cuts, rest = [], list(lengths)
    while start < stop:
        length = rest.pop(0) if len(rest) > 1 else rest[0]
        cuts.append((start, min(start + length, stop)))
        start += length
    return cuts


def convert(word: int, fmt: str, rule: Any) -> int:
    """A float32 word in the output format."""
    number = decode(word, "f32")
    fp8 = fmt in ("e4m3", "e5m2")
    if number.kind == NAN:
        return int(rule.nan_fp8 if fp8 else rule.nan_f32 if fmt == "f32" else rule.nan_16bit)
    policy = rule.fp8_overflow if fp8 else rule.wide_overflow
    if policy == "infinity" and not LAYOUTS[fmt].infinite:
        policy = "nan"
    if number.kind == INF:
        # An infinity is too large like any other: float32 is among the outputs that `wide_overflow` speaks of, and
        # nothing else can be too large for it.
        return encode(number.negative, 1, 1000, fmt, "RNE", policy)
    return encode(number.negative, number.units, number.unit, fmt, "RNE", policy)


def scale(word: int, scale_a: int, scale_b: int, order: str) -> int:
    if order == "combined":
        return multiply(word, multiply(scale_a, scale_b))
    first, second = (scale_a, scale_b) if order == "a_then_b" else (scale_b, scale_a)
    return multiply(multiply(word, first), second)


def accumulate(
    row: Sequence[int], column: Sequence[int], fmt_a: str, fmt_b: str, fmt_out: str, instruction: Any, rule: Any,
    *, fast: bool, splits: int, scheme: str, scale_a: int, scale_b: int,
) -> int:  # fmt: skip
    """One output's float32 word before the epilogue."""
    if not row:
        return 0
    lengths = rule.fast_chunks if fast else rule.slow_chunks
    partials = []
    cut = ranges(len(row), splits, rule.k_tile, rule.split_layout)
    for start, stop in cut:
        total = 0
        for first, last in chunks(start, stop, lengths):
            chain = dot(row[first:last], column[first:last], 0, fmt_a, fmt_b, "f32", instruction)
            total = add(total, chain) if lengths else chain
        if len(cut) > 1 and rule.scale_timing == "before_reduction":
            total = scale(total, scale_a, scale_b, rule.scale_order)
        partials.append(total)
    if len(cut) == 1:
        return partials[0]
    if scheme == "output_type":
        partials = [through(word, fmt_out, rule) for word in partials]
    result = partials[0]
    for word in partials[1:]:
        result = add(through(result, fmt_out, rule) if scheme == "inplace" else result, word)
    return result


def through(word: int, fmt: str, rule: Any) -> int:
    """A float32 word after a stay in the output format."""
    number = decode(convert(word, fmt, rule), fmt)
    if number.kind == NAN:
        return 0x7FFFFFFF
    if number.kind == INF:
        return LAYOUTS["f32"].infinity | (LAYOUTS["f32"].sign if number.negative else 0)
    return encode(number.negative, number.units, number.unit, "f32")


def finish(
    word: int, fmt_out: str, rule: Any, scale_a: int, scale_b: int, scale_result: int | None, *, scaled: bool
) -> int:
    if not scaled:
        word = scale(word, scale_a, scale_b, rule.scale_order)
    if scale_result is not None and fmt_out in ("e4m3", "e5m2"):
        word = multiply(word, scale_result)
    return convert(word, fmt_out, rule)
