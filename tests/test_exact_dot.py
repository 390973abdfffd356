# SPDX-License-Identifier: Apache-2.0
"""Every preset, format pair and accumulator, one instruction and chains, against the exact oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import exact_oracle as exact
from tests.support.exact_operands import bounded, products, seeded, words

from mmaemu import model, profiles
from mmaemu.errors import InvalidInputError, UnsupportedFeatureError
from mmaemu.profiles import load
from mmaemu.testing import assert_bitwise_equal

CASES = [
    pytest.param(row, fmt_a, fmt_b, id=f"{name}-{fmt_a}-{fmt_b}-{row.accumulator}")
    for name in profiles.preset_names()
    for row in load.family(name)
    for fmt_a in row.formats
    for fmt_b in row.formats
]


def expected(a, b, c, fmt_a, fmt_b, row):
    words = [exact.dot(x, y, int(z), fmt_a, fmt_b, row.accumulator, row.rule) for x, y, z in zip(a, b, c, strict=True)]
    return np.array(words, c.dtype)


def run(a, b, c, fmt_a, fmt_b, row):
    return model.dot(a, b, c, fmt_a, fmt_b, preset=row.family, acc=row.accumulator)


@pytest.mark.parametrize(("row", "fmt_a", "fmt_b"), CASES)
def test_one_instruction_is_exact_arithmetic(row, fmt_a, fmt_b):
    rows, k = 4, row.rule.instruction_k

    @bounded(12)
    @given(products(fmt_a, fmt_b, rows, k), words(row.accumulator, rows))
    def check(operands, c):
        a, b = operands
        assert_bitwise_equal(run(a, b, c, fmt_a, fmt_b, row), expected(a, b, c, fmt_a, fmt_b, row))

    check()


@pytest.mark.parametrize(("row", "fmt_a", "fmt_b"), CASES)
def test_a_chain_of_any_length_is_exact_arithmetic(row, fmt_a, fmt_b):
    @bounded(8)
    @given(st.integers(1, 3 * row.rule.instruction_k + 1).flatmap(lambda k: products(fmt_a, fmt_b, 2, k)), st.data())
    def check(operands, data):
        c = data.draw(words(row.accumulator, 2))
        a, b = operands
        assert_bitwise_equal(run(a, b, c, fmt_a, fmt_b, row), expected(a, b, c, fmt_a, fmt_b, row))

    check()


@pytest.mark.parametrize(("row", "fmt_a", "fmt_b"), CASES)
def test_a_hundred_mixed_rows_are_exact_arithmetic(row, fmt_a, fmt_b):
    """a, b and c of different styles meet: large with tiny, sparse with anything."""
    count, k = 100, row.rule.instruction_k
    order = np.random.default_rng(7)
    a, b = (seeded(fmt, (count, k), seed)[order.permutation(count)] for fmt, seed in ((fmt_a, 41), (fmt_b, 42)))
    c = seeded(row.accumulator, (count, 1), 43)[order.permutation(count), 0]
    assert_bitwise_equal(run(a, b, c, fmt_a, fmt_b, row), expected(a, b, c, fmt_a, fmt_b, row))


@pytest.mark.parametrize(("row", "fmt_a", "fmt_b"), CASES)
def test_a_result_that_overflows_half_way_is_exact_arithmetic(row, fmt_a, fmt_b):
    """The largest operands, an accumulator near the largest number, both signs."""
    rows, k = 3, 2 * row.rule.instruction_k

    @bounded(6)
    @given(words(fmt_a, rows * k, ("large", "sparse")), words(fmt_b, rows * k, ("large", "near one")), st.data())
    def check(a, b, data):
        c = data.draw(words(row.accumulator, rows, ("large",)))
        a, b = a.reshape(rows, k), b.reshape(rows, k)
        assert_bitwise_equal(run(a, b, c, fmt_a, fmt_b, row), expected(a, b, c, fmt_a, fmt_b, row))

    check()


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=f"{name}-{row.formats[0]}-{row.accumulator}")
        for name in profiles.preset_names()
        for row in load.family(name)
    ],
)
def test_an_accumulator_that_cancels_the_products_is_exact_arithmetic(row):
    """c is about minus the sum of the products, off by a few units of its last place."""
    fmt, k = row.formats[0], row.rule.instruction_k
    a, b = seeded(fmt, (140, k), 51), seeded(fmt, (140, k), 52)
    first = run(a, b, np.zeros(140, seeded(row.accumulator, (1, 1), 0).dtype), fmt, fmt, row)
    random = np.random.default_rng(53)
    c = (first ^ first.dtype.type(exact.LAYOUTS[row.accumulator].sign)) + random.integers(0, 4, 140).astype(first.dtype)
    assert_bitwise_equal(run(a, b, c, fmt, fmt, row), expected(a, b, c, fmt, fmt, row))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"preset": "h100"}, "preset"), ({"acc": "bf16"}, "acc"), ({"fmt_a": "e3m4"}, "fmt_a"),
        ({"a": np.zeros((2, 4), np.uint16)}, "a"), ({"a": np.zeros(4, np.uint8)}, "a"),
        ({"b": np.zeros((2, 5), np.uint8)}, "b"), ({"c": np.zeros(3, np.uint32)}, "c"),
        ({"c": np.zeros(2, np.float32)}, "c"),
        ({"a": np.zeros((2, 0), np.uint8), "b": np.zeros((2, 0), np.uint8)}, "a"),
        ({"b": [[0, 0, 0, 0]]}, "b"),
    ],
)  # fmt: skip
def test_a_malformed_argument_is_named(change, field):
    call = {
        "a": np.zeros((2, 4), np.uint8), "b": np.zeros((2, 4), np.uint8), "c": np.zeros(2, np.uint32),
        "fmt_a": "e4m3", "fmt_b": "e4m3", "preset": "ada",
    } | change  # fmt: skip
    with pytest.raises(InvalidInputError) as caught:
        model.dot(**call)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("fmt_a", "fmt_b", "preset", "acc"),
    [
        ("e4m3", "e4m3", "v100", "f32"), ("e4m3", "e4m3", "hopper-wgmma", "f16"), ("f16", "bf16", "ada", "f32"),
        ("e4m3", "f16", "ada", "f32"), ("f32", "f32", "ada", "f32"), ("bf16", "bf16", "ada", "f16"),
    ],
)  # fmt: skip
def test_a_format_that_a_preset_does_not_model_is_refused(fmt_a, fmt_b, preset, acc):
    storage = {"e4m3": np.uint8, "f16": np.uint16, "bf16": np.uint16, "f32": np.uint32}
    a, b = np.zeros((1, 4), storage[fmt_a]), np.zeros((1, 4), storage[fmt_b])
    with pytest.raises(UnsupportedFeatureError):
        model.dot(a, b, np.zeros(1, storage[acc]), fmt_a, fmt_b, preset=preset, acc=acc)


def test_no_rows_give_no_words():
    nothing = np.zeros((0, 32), np.uint8)
    assert model.dot(nothing, nothing, np.zeros(0, np.uint32), "e4m3", "e4m3", preset="ada").shape == (0,)


def test_operands_that_are_views_give_the_same_words():
    a = seeded("e4m3", (32, 64), 61)
    c = np.zeros(16, np.uint32)
    got = model.dot(a[::2, ::2], a[1::2, ::2], c, "e4m3", "e4m3", preset="ada")
    assert_bitwise_equal(got, model.dot(a[::2, ::2].copy(), a[1::2, ::2].copy(), c, "e4m3", "e4m3", preset="ada"))
