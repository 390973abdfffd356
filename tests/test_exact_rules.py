# SPDX-License-Identifier: Apache-2.0
"""Values that no preset has: every field of a step's rule does what its description says, alone and together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import exact_oracle as exact
from tests.support.exact_operands import bounded, products, seeded, words
from tests.support.rules import BASES, changed, rules

from mmaemu import model
from mmaemu.testing import assert_bitwise_equal


def agree(base, row, a, b, c):
    _, fmt_a, fmt_b, acc = BASES[base]
    want = [exact.dot(x, y, int(z), fmt_a, fmt_b, acc, row.rule) for x, y, z in zip(a, b, c, strict=True)]
    got = model.dot(a, b, c, fmt_a, fmt_b, preset=row, acc=acc)
    assert_bitwise_equal(got, np.array(want, c.dtype))


@pytest.mark.parametrize("base", BASES)
def test_random_rules_are_exact_arithmetic(base):
    _, fmt_a, fmt_b, acc = BASES[base]

    @bounded(100)
    @given(rules(acc), st.integers(1, 24).flatmap(lambda k: products(fmt_a, fmt_b, 3, k)), words(acc, 3))
    def check(values, operands, c):
        a, b = operands
        agree(base, changed(base, **values), a, b, c)

    check()


FIELDS = [
    ("zero_products_align", True), ("zero_accumulator_aligns", True), ("underflow_keeps_sign", True),
    ("group", 1), ("group", 5), ("group", 7), ("instruction_k", 3), ("instruction_k", 24), ("order", "k_mod_4"),
    ("accumulator_joins", "after"), ("result_rounding", "RNE"), ("result_rounding", "RZ"), ("min_exponent", 0),
    ("min_exponent", -1000), *(("fraction_bits", bits) for bits in (3, 8, 12, 14, 19, 27, 28)),
    *(("result_fraction_bits", bits) for bits in (1, 7, 10)),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), FIELDS)
@pytest.mark.parametrize("base", BASES)
def test_one_changed_field_is_exact_arithmetic(base, field, value):
    _, fmt_a, fmt_b, acc = BASES[base]
    random = np.random.default_rng(71)
    a, b = (random.permutation(seeded(fmt, (35, 26), seed)) for fmt, seed in ((fmt_a, 72), (fmt_b, 73)))
    agree(base, changed(base, **{field: value}), a, b, random.permutation(seeded(acc, (35, 1), 74))[:, 0])


@pytest.mark.parametrize("rounding", ["RZ", "RNE"])
@pytest.mark.parametrize("base", ["bf16 to f32", "f16 to f16"])
def test_a_saturating_step_gives_the_largest_number_of_its_width(base, rounding):
    """One instruction: D is at most the largest number with `result_fraction_bits`."""
    _, fmt_a, fmt_b, acc = BASES[base]
    row = changed(base, overflow="saturate", result_rounding=rounding, result_fraction_bits=9)

    @bounded(40)
    @given(words(fmt_a, 12, ("large",)), words(fmt_b, 12, ("large", "near one")), words(acc, 3, ("large", "finite")))
    def check(a, b, c):
        agree(base, row, a.reshape(3, 4), b.reshape(3, 4), c)

    check()


def test_saturation_keeps_a_chain_finite():
    """After a step that saturated, the next one goes on from the largest number: -2^127 brings it back."""
    row = changed("bf16 to f32", overflow="saturate")
    big, other = [0x7F00, 0x7F00, *[0] * 6], [0x7F00, *[0] * 7]
    a = np.array([[*big, *other]], np.uint16)
    b = np.array([[0x3F80, 0x3F80, *[0] * 6, 0xBF80, *[0] * 7]], np.uint16)
    # (2^127 + 2^127) saturates at 7F7FFFFF; 2^128 - 2^104 - 2^127 = 2^127 - 2^104 is 7EFFFFFE.
    got = model.dot(a, b, np.zeros(1, np.uint32), "bf16", "bf16", preset=row)
    assert hex(int(got[0])) == "0x7efffffe"


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        # C = 1 + 2^-13 beside 0 * 57344, exponents -6 + 15: a zero that takes part sets the grid to 2^(9 - 13).
        ("zero_products_align", False, 0x3F80_0400), ("zero_products_align", True, 0x3F80_0000),
    ],
)  # fmt: skip
def test_a_zero_product_takes_part_only_where_the_rule_says(field, value, word):
    row = changed("fp8 to f32", instruction_k=1, group=1, **{field: value})
    got = model.dot(
        np.array([[0x00]], np.uint8), np.array([[0x7B]], np.uint8), np.array([0x3F800400], np.uint32),
        "e4m3", "e5m2", preset=row,
    )  # fmt: skip
    assert hex(int(got[0])) == hex(word)


@pytest.mark.parametrize(("value", "word"), [(False, 0x0000_0400), (True, 0x0000_0000)])
def test_a_zero_accumulator_takes_part_only_where_the_rule_says(value, word):
    """2^-66 * 2^-73 = 2^-139 is 0x400; a zero at exponent -126 sets the grid to 2^-138, which is above it."""
    row = changed("bf16 to f32", fraction_bits=12, zero_accumulator_aligns=value, min_exponent=-1000)
    a, b = np.array([[0x1E80]], np.uint16), np.array([[0x1B00]], np.uint16)
    got = model.dot(a, b, np.zeros(1, np.uint32), "bf16", "bf16", preset=row)
    assert hex(int(got[0])) == hex(word)


@pytest.mark.parametrize(("keeps", "word"), [(False, 0x0000_0000), (True, 0x8000_0000)])
def test_a_negative_sum_that_underflows_keeps_its_sign_only_where_the_rule_says(keeps, word):
    """-(2^-75 * 2^-76) = -2^-151 stays on the grid of its own exponent and is below the smallest float32, 2^-149."""
    row = changed("bf16 to f32", underflow_keeps_sign=keeps, min_exponent=-1000)
    a, b = np.array([[0x1A00]], np.uint16), np.array([[0x9980]], np.uint16)
    got = model.dot(a, b, np.zeros(1, np.uint32), "bf16", "bf16", preset=row)
    assert hex(int(got[0])) == hex(word)


def test_an_exact_zero_is_positive_even_where_underflow_keeps_its_sign():
    row = changed("bf16 to f32", underflow_keeps_sign=True)
    a, b = np.array([[0xBF80, 0x3F80]], np.uint16), np.array([[0x3F80, 0x3F80]], np.uint16)
    got = model.dot(a, b, np.zeros(1, np.uint32), "bf16", "bf16", preset=row)
    assert hex(int(got[0])) == "0x0"


def test_the_floor_of_the_common_exponent_cuts_small_terms():
    """1.5 * 2^-13 on the grid 2^(0 - 13) of a floor at 0 keeps one unit."""
    row = changed("fp8 to f32", min_exponent=0)
    a, b = np.array([[0x01]], np.uint8), np.array([[0x2E]], np.uint8)  # 2^-9 * 1.5 * 2^-4
    got = model.dot(a, b, np.zeros(1, np.uint32), "e4m3", "e5m2", preset=row)
    assert hex(int(got[0])) == hex(0x3900_0000)


@pytest.mark.parametrize("joins", ["first_step", "after"])
def test_every_nan_is_the_rules_own_word(joins):
    row = changed("f16 to f32", nan=0x7FC0_1234, accumulator_joins=joins)
    one = np.array([[0x3C00]] * 3, np.uint16)
    a = np.array([[0x7E00], [0x7C00], [0x3C00]], np.uint16)
    got = model.dot(a, one, np.array([0, 0xFF80_0000, 0x7F80_0001], np.uint32), "f16", "f16", preset=row)
    assert [hex(int(w)) for w in got] == ["0x7fc01234"] * 3
