# SPDX-License-Identifier: Apache-2.0
"""Accumulators to outputs: scales, scale_result, conversion."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mmaemu.model import decode, formats, ieee, rounding
from mmaemu.model.decode import INFINITE, NAN
from mmaemu.model.formats import AnyBits, Format
from mmaemu.profiles import GemmRule


def apply(
    acc: AnyBits,
    scale_a: AnyBits,
    scale_b: AnyBits,
    scale_result: AnyBits | None = None,
    *,
    out_dtype: str | Format,
    rule: GemmRule,
    already_scaled: bool = False,
) -> AnyBits:
    """Output words: convert(scale_result * (scales * acc)), every multiplication float32 RNE.

    NaN becomes the output type's one NaN; scales of 0, Inf and NaN follow IEEE. acc: float32 words of any shape;
    scales: float32 words that broadcast against it. scale_result counts for fp8 outputs only.
    rule: `profiles.get(name).gemm`. already_scaled: the split-K reduction has applied both scales.
    """
    fmt_out = formats.get(out_dtype, "out_dtype")
    for _, words in steps(acc, scale_a, scale_b, scale_result, fmt_out, rule, already_scaled):
        result = words
    return result


def steps(
    acc: AnyBits,
    scale_a: AnyBits,
    scale_b: AnyBits,
    scale_result: AnyBits | None,
    fmt_out: Format,
    rule: GemmRule,
    already_scaled: bool,
) -> Iterator[tuple[str, AnyBits]]:
    """Each step's name and words, the output's last."""
    words = acc
    if not already_scaled:
        for name, words in scale_steps(acc, scale_a, scale_b, rule):
            yield name, words
    if scale_result is not None and fmt_out in formats.FP8:
        words = ieee.multiply(words, scale_result)
        yield "times scale_result", words
    yield f"to {fmt_out.torch_name}", convert(words, fmt_out, rule)


def apply_scales(acc: AnyBits, scale_a: AnyBits, scale_b: AnyBits, rule: GemmRule) -> AnyBits:
    """acc times both scales, in the profile's order."""
    return list(scale_steps(acc, scale_a, scale_b, rule))[-1][1]


def scale_steps(acc: AnyBits, scale_a: AnyBits, scale_b: AnyBits, rule: GemmRule) -> Iterator[tuple[str, AnyBits]]:
    """Each multiplication's name and words."""
    if rule.scale_order == "combined":
        yield "times (scale_a * scale_b)", ieee.multiply(acc, ieee.multiply(scale_a, scale_b))
        return
    named = {"scale_a": scale_a, "scale_b": scale_b}
    order = ("scale_a", "scale_b") if rule.scale_order == "a_then_b" else ("scale_b", "scale_a")
    for name in order:
        acc = ieee.multiply(acc, named[name])
        yield f"times {name}", acc


def convert(acc: AnyBits, fmt_out: Format, rule: GemmRule) -> AnyBits:
    """float32 words to `fmt_out`, RNE. Infinite values go where the profile sends finite ones that are too large."""
    fp8 = fmt_out in formats.FP8
    overflow: rounding.Overflow = rule.fp8_overflow if fp8 else rule.wide_overflow
    if overflow == "infinity" and fmt_out.infinity is None:
        overflow = "nan"  # what the unsaturated conversion to e4m3 gives
    nan = rule.nan_fp8 if fp8 else rule.nan_f32 if fmt_out is formats.F32 else rule.nan_16bit
    value = decode.decode(acc, formats.F32)
    lsb = value.exponent - value.fraction_bits
    negative = value.sign < 0
    words = rounding.pack(negative, value.magnitude.astype(np.int64), lsb, fmt_out, "RNE", overflow)
    if value.special is None:
        return words
    code = fmt_out.storage.type
    limit = {"saturate": fmt_out.max_finite, "nan": fmt_out.canonical_nan, "infinity": fmt_out.infinity}[overflow]
    assert limit is not None
    infinite = np.where(negative, code(limit | fmt_out.sign_bit), code(limit))
    words = np.where(value.kinds == INFINITE, infinite, words)
    return np.where(value.kinds == NAN, code(nan), words)
