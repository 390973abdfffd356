# SPDX-License-Identifier: Apache-2.0
"""Rounding and packing: nearest even and toward zero, subnormal results, carries, and what is too large."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support import exact_oracle as exact
from tests.support.exact_operands import bounded, seeded

from mmaemu.model import formats
from mmaemu.model.rounding import bit_length, exact_bit_length, pack, shift_right, shift_right_sticky
from mmaemu.testing import assert_bitwise_equal

ALL = ("e4m3", "e5m2", "f16", "bf16", "tf32", "f32")
CASTS = {
    "e4m3": (ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn, np.uint8, torch.uint8),
    "e5m2": (ml_dtypes.float8_e5m2, torch.float8_e5m2, np.uint8, torch.uint8),
    "f16": (np.float16, torch.float16, np.uint16, torch.int16),
    "bf16": (ml_dtypes.bfloat16, torch.bfloat16, np.uint16, torch.int16),
}


def numbers(layout):
    """(magnitude, lsb) of every size from far below the smallest subnormal to far above the largest number."""
    low, high = layout.smallest_exponent - layout.fraction - 70, layout.bias + 10
    width = st.integers(0, 61)
    magnitudes = width.flatmap(lambda bits: st.integers(0, (1 << bits) - 1)) | st.builds(
        lambda bits, off: max(0, (1 << bits) + off), width.filter(lambda bits: bits < 61), st.integers(-3, 3)
    )
    return st.tuples(magnitudes, st.integers(low, high), st.booleans())


POLICIES = [(fmt, policy) for fmt in ALL for policy in ("infinity", "saturate")] + [("e4m3", "nan"), ("f16", "nan")]


@pytest.mark.parametrize("rounding", ["RNE", "RZ"])
@pytest.mark.parametrize(("fmt", "overflow"), POLICIES)
def test_pack_rounds_as_exact_arithmetic(fmt, rounding, overflow):
    # In e4m3, which has no infinity, "infinity" is documented as the largest number.
    policy = "saturate" if overflow == "infinity" and fmt == "e4m3" else overflow

    @bounded(30)
    @given(st.lists(numbers(exact.LAYOUTS[fmt]), min_size=1, max_size=40), st.booleans())
    def check(cases, zero_sign):
        magnitude, lsb, negative = (np.array(column) for column in zip(*cases, strict=True))
        magnitude = magnitude.astype(np.int64)
        got = pack(negative.astype(bool), magnitude, lsb, formats.get(fmt), rounding, overflow, zero_sign)
        want = [
            exact.encode(sign, units, unit, fmt, rounding, policy, zero_sign=zero_sign) for units, unit, sign in cases
        ]
        assert_bitwise_equal(got, np.array(want, formats.get(fmt).storage))

    check()


@pytest.mark.parametrize("rounding", ["RNE", "RZ"])
@pytest.mark.parametrize("fmt", ["e4m3", "e5m2", "f16", "bf16"])
def test_every_code_and_its_near_neighbours_pack_as_exact_arithmetic(fmt, rounding):
    """Each number, each midpoint, and both sides of each: 7 points for every interval of the format."""
    layout = exact.LAYOUTS[fmt]
    step = 1 if fmt in ("e4m3", "e5m2") else 7
    positive = [exact.decode(code, fmt) for code in range(0, layout.sign, step)]
    finite = [number for number in positive if number.kind == exact.NUMBER]
    units = np.array([number.units * 8 + eighth for number in finite for eighth in (0, 1, 3, 4, 5, 7)], np.int64)
    lsb = np.array([number.unit - 3 for number in finite for _ in range(6)], np.int64)
    negative = np.arange(len(units)) % 3 == 0
    got = pack(negative, units, lsb, formats.get(fmt), rounding, "saturate")
    want = [
        exact.encode(bool(n), int(u), int(e), fmt, rounding, "saturate")
        for n, u, e in zip(negative, units, lsb, strict=True)
    ]
    assert_bitwise_equal(got, np.array(want, formats.get(fmt).storage))


def split(words):
    """float32 words as the arguments of pack; NaN and infinities left out."""
    field, fraction = (words >> 23) & 0xFF, words & 0x7FFFFF
    keep = field < 255
    field, fraction, sign = field[keep].astype(np.int64), fraction[keep].astype(np.int64), words[keep] >> 31 == 1
    return sign, fraction + np.where(field > 0, 1 << 23, 0), np.maximum(field, 1) - 150, words[keep].view(np.float32)


@pytest.mark.parametrize("fmt", ["f16", "bf16", "e5m2"])
def test_float32_packs_as_numpy_and_ml_dtypes_cast(fmt):
    sign, units, lsb, floats = split(seeded("f32", (700, 1000), 11).reshape(-1))
    with np.errstate(over="ignore"):
        want = floats.astype(CASTS[fmt][0]).view(CASTS[fmt][2])
    assert_bitwise_equal(pack(sign, units, lsb, formats.get(fmt)), want)


@pytest.mark.parametrize("fmt", ["f16", "bf16", "e5m2", "e4m3"])
def test_float32_packs_as_torch_casts_within_range(fmt):
    """Beyond the largest number torch has its own policy, so those are left out."""
    words = seeded("f32", (700, 1000), 12).reshape(-1)
    words = words[np.abs(words.view(np.float32)) <= float(exact.LAYOUTS[fmt].largest)]
    sign, units, lsb, floats = split(words)
    want = torch.from_numpy(floats.copy()).to(CASTS[fmt][1]).view(CASTS[fmt][3]).numpy().view(CASTS[fmt][2])
    assert_bitwise_equal(pack(sign, units, lsb, formats.get(fmt)), want)


@pytest.mark.parametrize(
    ("fmt", "value", "rounding", "overflow", "word"),
    [
        ("e4m3", 448.0, "RNE", "saturate", 0x7E), ("e4m3", 464.0, "RNE", "nan", 0x7E),
        ("e4m3", 464.5, "RNE", "nan", 0x7F), ("e4m3", 464.5, "RNE", "saturate", 0x7E),
        ("e4m3", 2.0**-10, "RNE", "saturate", 0x00), ("e4m3", 3 * 2.0**-10, "RNE", "saturate", 0x02),
        ("e4m3", 15.5 * 2.0**-10, "RNE", "saturate", 0x08), ("e5m2", 61439.0, "RNE", "infinity", 0x7B),
        ("e5m2", 61440.0, "RNE", "infinity", 0x7C), ("f16", 65519.0, "RNE", "infinity", 0x7BFF),
        ("f16", 65520.0, "RNE", "infinity", 0x7C00), ("f16", 65535.0, "RZ", "infinity", 0x7BFF),
        ("f16", 65536.0, "RZ", "infinity", 0x7C00), ("f16", 65536.0, "RZ", "saturate", 0x7BFF),
        ("f16", 2.0**-25, "RNE", "infinity", 0x0000), ("f16", 1.5 * 2.0**-24, "RNE", "infinity", 0x0002),
        ("f16", 2047.5 * 2.0**-25, "RNE", "infinity", 0x0400), ("f16", 2047.5 * 2.0**-25, "RZ", "infinity", 0x03FF),
        ("bf16", 1.00390625, "RNE", "infinity", 0x3F80), ("bf16", 1.01171875, "RNE", "infinity", 0x3F82),
    ],
)  # fmt: skip
def test_a_result_that_a_person_can_check(fmt, value, rounding, overflow, word):
    numerator, denominator = value.as_integer_ratio()
    lsb = 1 - denominator.bit_length()
    got = pack(np.array([False]), np.array([numerator], np.int64), lsb, formats.get(fmt), rounding, overflow)
    assert hex(int(got[0])) == hex(word)


@bounded(200)
@given(st.lists(st.tuples(st.integers(0, (1 << 61) - 1), st.integers(-8, 100)), min_size=1, max_size=50))
def test_shift_right_rounds_as_exact_arithmetic(cases):
    # A negative amount is a shift to the left; the cases stay within 63 bits.
    cases = [(m >> 9 if amount < 0 else m, amount) for m, amount in cases]
    magnitude, amount = (np.array(column, np.int64) for column in zip(*cases, strict=True))
    for rounding in ("RZ", "RNE"):
        want = [exact.to_integer(m, -shift, rounding) for m, shift in cases]
        assert shift_right(magnitude, amount, rounding).tolist() == want


@bounded(100)
@given(st.lists(st.tuples(st.integers(0, (1 << 61) - 1), st.integers(0, 100)), min_size=1, max_size=50))
def test_a_sticky_shift_keeps_whether_something_was_lost(cases):
    magnitude, amount = (np.array(column, np.int64) for column in zip(*cases, strict=True))
    want = [(m >> shift) | (m & ((1 << shift) - 1) != 0) for m, shift in cases]
    assert shift_right_sticky(magnitude, amount).tolist() == want


@bounded(100)
@given(st.lists(st.integers(0, 53).flatmap(lambda bits: st.integers(0, (1 << bits) - 1)), min_size=1, max_size=60))
def test_bit_lengths_are_pythons(values):
    want = [value.bit_length() for value in values]
    assert exact_bit_length(np.array(values, np.int64)).tolist() == want


@bounded(100)
@given(st.lists(st.integers(0, 61).flatmap(lambda bits: st.integers(0, (1 << bits) - 1)), min_size=1, max_size=60))
def test_bit_lengths_hold_up_to_61_bits(values):
    want = [value.bit_length() for value in values]
    assert bit_length(np.array(values, np.int64)).tolist() == want
