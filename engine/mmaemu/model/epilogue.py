# SPDX-License-Identifier: Apache-2.0
"""Accumulators to outputs: scales, bias, scale_result, conversion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mmaemu.errors import InvalidInputError
from mmaemu.model import decode, formats, ieee, rounding
from mmaemu.model.decode import INFINITE, NAN
from mmaemu.model.formats import AnyBits, Format
from mmaemu.profiles import GemmRule

_PLUS_ZERO = np.zeros((1, 1), np.uint32)


@dataclass(frozen=True)
class Factors:
    """What an accumulator meets on its way out: float32 words that broadcast against [M, N].

    Block-wise scales are [M, K blocks] and [K blocks, N] instead, and meet the chunks. bias: [1, N].
    """

    scale_a: AnyBits
    scale_b: AnyBits
    bias: AnyBits | None = None
    scale_result: AnyBits | None = None


def apply(
    acc: AnyBits,
    scale_a: AnyBits,
    scale_b: AnyBits,
    scale_result: AnyBits | None = None,
    *,
    bias: AnyBits | None = None,
    out_dtype: str | Format,
    rule: GemmRule,
    already_scaled: bool = False,
) -> AnyBits:
    """Output words: convert(scale_result * (scales * acc + bias)), every operation float32 RNE.

    NaN becomes the output type's one NaN; scales of 0, Inf and NaN follow IEEE. acc: float32 words of any shape;
    scales and bias: float32 words that broadcast against it. scale_result counts for fp8 outputs only. Whether the
    last multiplication and the bias are one fma, and what happens without a bias, is for `rule` to say:
    `profiles.get(name).gemm`, or `.path("row_wise")`. already_scaled: both scales have been applied to the partial
    sums.
    """
    factors = Factors(scale_a, scale_b, bias, scale_result)
    fmt_out = formats.get(out_dtype, "out_dtype")
    for _, words in steps(acc, factors, fmt_out, rule, already_scaled):
        result = words
    return result


def steps(
    acc: AnyBits, factors: Factors, fmt_out: Format, rule: GemmRule, already_scaled: bool
) -> Iterator[tuple[str, AnyBits]]:
    """Each step's name and words, the output's last."""
    words = acc
    bias, bias_name = factors.bias, "bias"
    if bias is None and rule.adds_without_bias:
        bias, bias_name = _PLUS_ZERO, "0"
    fused = bias is not None and rule.bias_add == "fused" and not already_scaled
    if not already_scaled:
        scaled = list(scale_steps(acc, factors.scale_a, factors.scale_b, rule))
        yield from scaled[:-1] if fused else scaled
        words = scaled[-1][1]
        if fused:
            assert bias is not None
            before = scaled[-2][1] if len(scaled) > 1 else acc
            factor_name, factor = _last_factor(factors, rule)
            words = ieee.fma(before, factor, bias)
            yield f"times {factor_name} plus {bias_name}, fused", words
    if bias is not None and not fused:
        words = ieee.add(words, bias)
        yield f"plus {bias_name}", words
    if factors.scale_result is not None and fmt_out in formats.FP8:
        words = ieee.multiply(words, factors.scale_result)
        yield "times scale_result", words
    yield f"to {fmt_out.torch_name}", convert(words, fmt_out, rule)


def apply_scales(acc: AnyBits, scale_a: AnyBits, scale_b: AnyBits, rule: GemmRule) -> AnyBits:
    """acc times both scales, in the rule's order."""
    return list(scale_steps(acc, scale_a, scale_b, rule))[-1][1]


def scale_steps(acc: AnyBits, scale_a: AnyBits, scale_b: AnyBits, rule: GemmRule) -> Iterator[tuple[str, AnyBits]]:
    """Each multiplication's name and words."""
    if rule.scale_order == "combined":
        yield "times (scale_a * scale_b)", ieee.multiply(acc, ieee.multiply(scale_a, scale_b))
        return
    named = {"scale_a": scale_a, "scale_b": scale_b}
    for name in _order(rule):
        acc = ieee.multiply(acc, named[name])
        yield f"times {name}", acc


def join(total: AnyBits, chunk: AnyBits, scale_a: AnyBits, scale_b: AnyBits, rule: GemmRule) -> AnyBits:
    """fma(chunk * first scale, second scale, total): a chunk joins the sum with its blocks' scales."""
    named = {"scale_a": scale_a, "scale_b": scale_b}
    first, second = _order(rule)
    return ieee.fma(ieee.multiply(chunk, named[first]), named[second], total)


def _order(rule: GemmRule) -> tuple[str, str]:
    if rule.scale_order not in ("a_then_b", "b_then_a"):
        raise InvalidInputError.because(
            "scale_order",
            got=rule.scale_order,
            wanted="an order that can be followed as it stands: combined, a_then_b or b_then_a",
            hint="A plan's own rule has one.",
        )
    return ("scale_a", "scale_b") if rule.scale_order == "a_then_b" else ("scale_b", "scale_a")


def _last_factor(factors: Factors, rule: GemmRule) -> tuple[str, AnyBits]:
    """What the last multiplication multiplies by."""
    if rule.scale_order == "combined":
        return "(scale_a * scale_b)", ieee.multiply(factors.scale_a, factors.scale_b)
    name = _order(rule)[1]
    return name, factors.scale_a if name == "scale_a" else factors.scale_b


def convert(acc: AnyBits, fmt_out: Format, rule: GemmRule) -> AnyBits:
    """float32 words to `fmt_out`, RNE. Infinite values go where the profile sends finite ones that are too large."""
    overflow, nan = overflow_of(fmt_out, rule), nan_of(fmt_out, rule)
    if overflow == "infinity" and fmt_out.infinity is None:
        overflow = "nan"  # what the unsaturated conversion to e4m3 gives
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


def overflow_of(fmt_out: Format, rule: GemmRule) -> rounding.Overflow:
    """Where the profile sends numbers that are too large for an output."""
    return rule.fp8_overflow if fmt_out in formats.FP8 else rule.wide_overflow


def nan_of(fmt_out: Format, rule: GemmRule) -> int:
    """The one NaN of an output."""
    if fmt_out in formats.FP8:
        return rule.nan_fp8
    return rule.nan_f32 if fmt_out is formats.F32 else rule.nan_16bit
