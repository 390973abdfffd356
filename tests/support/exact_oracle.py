# SPDX-License-Identifier: Apache-2.0
"""Exact arithmetic in Python's own integers, one number at a time: what the engine is compared with.

It shares no code with the engine and knows profiles only as objects with fields. A number is sign, integer and power of
two; nothing overflows and nothing is approximate, so the code can follow the documents word by word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

NAN, INF, NUMBER = "nan", "inf", "number"


@dataclass(frozen=True)
class Layout:
    """Widths of a format's fields, its bias, and the bits below the fraction that nobody reads."""

    exponent: int
    fraction: int
    bias: int
    largest: Fraction
    infinite: bool
    unread: int = 0

    @property
    def smallest_exponent(self) -> int:
        return 1 - self.bias

    @property
    def sign(self) -> int:
        return 1 << (self.exponent + self.fraction + self.unread)

    @property
    def infinity(self) -> int:
        assert self.infinite
        return ((1 << self.exponent) - 1) << (self.fraction + self.unread)


LAYOUTS = {
    "e4m3": Layout(4, 3, 7, Fraction(448), False),
    "e5m2": Layout(5, 2, 15, Fraction(57344), True),
    "f16": Layout(5, 10, 15, Fraction(65504), True),
    "bf16": Layout(8, 7, 127, Fraction(0xFF) * 2**120, True),
    "tf32": Layout(8, 10, 127, Fraction(0x7FF) * 2**117, True, unread=13),
    "f32": Layout(8, 23, 127, Fraction(0xFFFFFF) * 2**104, True),
}
NAN_WORDS = {"e4m3": 0x7F, "e5m2": 0x7F, "f16": 0x7FFF, "bf16": 0x7FFF, "tf32": 0x7FFFFFFF, "f32": 0x7FFFFFFF}


@dataclass(frozen=True)
class Number:
    """(-1)^negative * units * 2^unit; `exponent` is the one that the fields state, the lowest for zeros."""

    kind: str
    negative: bool
    units: int = 0
    unit: int = 0
    exponent: int = 0

    @property
    def value(self) -> Fraction:
        assert self.kind == NUMBER
        return Fraction(_signed(self.negative, self.units)) * Fraction(2) ** self.unit


def decode(word: int, fmt: str) -> Number:
    layout = LAYOUTS[fmt]
    negative = bool(word & layout.sign)
    body = (word & (layout.sign - 1)) >> layout.unread
    field, fraction = divmod(body, 1 << layout.fraction)
    if layout.infinite and field == (1 << layout.exponent) - 1:
        return Number(NAN if fraction else INF, negative)
    if not layout.infinite and body == (1 << (layout.exponent + layout.fraction)) - 1:
        return Number(NAN, negative)
    exponent = max(field - layout.bias, layout.smallest_exponent)
    units = fraction + ((1 << layout.fraction) if field else 0)
    return Number(NUMBER, negative, units, exponent - layout.fraction, exponent)


def to_integer(units: int, shift: int, rounding: str) -> int:
    """units * 2^shift as an integer: RZ drops what is left over, RNE goes to the nearest and to even on a tie."""
    if shift >= 0:
        return units << shift
    whole, rest = divmod(units, 1 << -shift)
    half = 1 << (-shift - 1)
    if rounding == "RNE" and (rest > half or (rest == half and whole % 2)):
        whole += 1
    return whole


def encode(
    negative: bool,
    units: int,
    unit: int,
    fmt: str,
    rounding: str = "RNE",
    too_large: str = "infinity",
    fraction: int | None = None,
    zero_sign: bool = True,
) -> int:
    """The word of (-1)^negative * units * 2^unit, with `fraction` bits where fewer than the format's are kept.

    too_large: infinity, nan (with the sign), or saturate at the largest number that has that many fraction bits.
    """
    layout = LAYOUTS[fmt]
    kept = layout.fraction if fraction is None else fraction
    pad = layout.fraction - kept + layout.unread
    sign = layout.sign if negative else 0
    exponent = max(units.bit_length() - 1 + unit, layout.smallest_exponent)
    whole = to_integer(units, unit - (exponent - kept), rounding)
    if whole == 0:
        return sign if zero_sign else 0
    if whole == 2 << kept:
        whole, exponent = 1 << kept, exponent + 1
    if whole * Fraction(2) ** (exponent - kept) > layout.largest:
        if too_large == "infinity":
            return sign | layout.infinity
        if too_large == "nan":
            return sign | NAN_WORDS[fmt]
        top = encode(False, *_fraction_units(layout.largest), fmt, "RZ", "infinity", fraction)
        return sign | top
    field = exponent + layout.bias if whole >> kept else 0
    return sign | (field << (layout.fraction + layout.unread)) | ((whole & ((1 << kept) - 1)) << pad)


def _fraction_units(value: Fraction) -> tuple[int, int]:
    return value.numerator, 1 - value.denominator.bit_length()


def add(x: int, y: int, fmt: str = "f32") -> int:
    """IEEE 754 addition, nearest even."""
    return fma(x, _one(fmt), y, fmt)


def _one(fmt: str) -> int:
    return LAYOUTS[fmt].bias << (LAYOUTS[fmt].fraction + LAYOUTS[fmt].unread)


def multiply(x: int, y: int, fmt: str = "f32") -> int:
    """IEEE 754 multiplication, nearest even."""
    left, right = decode(x, fmt), decode(y, fmt)
    kind, negative = product_kind(left, right), left.negative != right.negative
    if kind == NAN:
        return NAN_WORDS[fmt]
    if kind == INF:
        return LAYOUTS[fmt].infinity | (LAYOUTS[fmt].sign if negative else 0)
    return encode(negative, left.units * right.units, left.unit + right.unit, fmt)


def fma(x: int, y: int, z: int, fmt: str = "f32") -> int:
    """IEEE 754 x * y + z, nearest even, one rounding."""
    left, right, other = decode(x, fmt), decode(y, fmt), decode(z, fmt)
    kind, negative = product_kind(left, right), left.negative != right.negative
    infinite = {sign for k, sign in ((kind, negative), (other.kind, other.negative)) if k == INF}
    if NAN in (kind, other.kind) or len(infinite) == 2:
        return NAN_WORDS[fmt]
    if infinite:
        return LAYOUTS[fmt].infinity | (LAYOUTS[fmt].sign if infinite.pop() else 0)
    units, unit = left.units * right.units, left.unit + right.unit
    unit_all = min(unit, other.unit)
    total = _signed(negative, units) << (unit - unit_all)
    total += _signed(other.negative, other.units) << (other.unit - unit_all)
    if total == 0:
        return encode(negative and other.negative, 0, 0, fmt)
    return encode(total < 0, abs(total), unit_all, fmt)


def product_kind(x: Number, y: Number) -> str:
    if NAN in (x.kind, y.kind):
        return NAN
    if INF not in (x.kind, y.kind):
        return NUMBER
    zero = any(n.kind == NUMBER and n.units == 0 for n in (x, y))
    return NAN if zero else INF


def _signed(negative: bool, units: int) -> int:
    return -units if negative else units


def step(a: Sequence[Number], b: Sequence[Number], start: Number, fmt: str, rule: Any) -> int:
    """One fused step: every product and the accumulator cut on one grid, summed, rounded once."""
    layout = LAYOUTS[fmt]
    infinities = set()
    terms = []
    for x, y in zip(a, b, strict=True):
        kind, negative = product_kind(x, y), x.negative != y.negative
        if kind == NAN:
            return int(rule.nan)
        if kind == INF:
            infinities.add(negative)
        else:
            takes_part = x.units * y.units != 0 or rule.zero_products_align
            terms.append((_signed(negative, x.units * y.units), x.unit + y.unit, x.exponent + y.exponent, takes_part))
    if start.kind == NAN:
        return int(rule.nan)
    if start.kind == INF:
        infinities.add(start.negative)
    else:
        takes_part = start.units != 0 or rule.zero_accumulator_aligns
        terms.append((_signed(start.negative, start.units), start.unit, start.exponent, takes_part))
    if len(infinities) == 2:
        return int(rule.nan)
    if infinities:
        return layout.infinity | (layout.sign if infinities.pop() else 0)
    largest = max([rule.min_exponent, *(exponent for *_, exponent, takes_part in terms if takes_part)])
    grid = largest - rule.fraction_bits
    total = sum(_signed(units < 0, to_integer(abs(units), unit - grid, "RZ")) for units, unit, *_ in terms)
    return encode(
        total < 0, abs(total), grid, fmt, rule.result_rounding, rule.overflow, rule.result_fraction_bits,
        rule.underflow_keeps_sign,
    )  # fmt: skip


def order_of(rule: Any) -> list[list[int]]:
    """The k of one instruction, group by group."""
    ks = list(range(rule.instruction_k))
    if rule.order == "k_mod_4":
        ks = [k for k in ks if k % 4 < 2] + [k for k in ks if k % 4 >= 2]
    return [ks[i : i + rule.group] for i in range(0, len(ks), rule.group)]


def dot(a: Sequence[int], b: Sequence[int], c: int, fmt_a: str, fmt_b: str, fmt: str, rule: Any) -> int:
    """A chain of instructions over all products, the last one filled up with zeros."""
    short = -len(a) % rule.instruction_k
    left = [decode(int(word), fmt_a) for word in [*a, *[0] * short]]
    right = [decode(int(word), fmt_b) for word in [*b, *[0] * short]]
    groups = order_of(rule)
    for first in range(0, len(left), rule.instruction_k):
        after = rule.accumulator_joins == "after"
        word = 0 if after else c
        for group in groups:
            x, y = [left[first + k] for k in group], [right[first + k] for k in group]
            word = step(x, y, decode(word, fmt), fmt, rule)
        if after:
            word = add(word, c, fmt)
            word = int(rule.nan) if decode(word, fmt).kind == NAN else word
        c = word
    return c
