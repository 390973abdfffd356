# SPDX-License-Identifier: Apache-2.0
"""Float32 and float16 add, multiply and fused multiply-add: as exact arithmetic, and as this machine's own hardware."""

from __future__ import annotations

import ctypes
import ctypes.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import exact_oracle as exact
from tests.support.exact_operands import STORAGE, bounded, seeded, words

from mmaemu.model import formats, ieee
from mmaemu.testing import assert_bitwise_equal

FLOATS = {"f32": np.float32, "f16": np.float16}
MILLION = (700, 1500)


def near(fmt, x, seed):
    """Words whose exponents lie around those of x: sums cancel, and ties happen."""
    random = np.random.default_rng(seed)
    layout = exact.LAYOUTS[fmt]
    fields = (1 << layout.exponent) - 1
    field = ((x.astype(np.int64) >> layout.fraction) & fields) + random.integers(-layout.fraction - 3, 4, x.shape)
    fraction = random.integers(0, 1 << layout.fraction, x.shape) & random.choice(
        [-1, -1 << (layout.fraction - 3)], x.shape
    )
    sign = random.integers(0, 2, x.shape) * layout.sign
    return (sign | (np.clip(field, 0, fields - 1) << layout.fraction) | fraction).astype(x.dtype)


def canonical(floats, fmt):
    """Hardware results with the one NaN word that the engine promises."""
    got = floats.view(STORAGE[fmt]).copy()
    got[np.isnan(floats)] = exact.NAN_WORDS[fmt]
    return got


def word(value):
    return np.array([value], np.uint32)


def pairs(fmt, seed):
    x = seeded(fmt, MILLION, seed)
    shuffled = np.random.default_rng(seed).permutation(seeded(fmt, MILLION, seed + 1))
    return [(x, shuffled), (x, near(fmt, x, seed))]


@pytest.mark.parametrize("operation", ["add", "multiply"])
@pytest.mark.parametrize("fmt", ["f32", "f16"])
def test_two_million_results_are_the_hardwares(fmt, operation):
    for x, y in pairs(fmt, 21):
        # numpy computes float16 in float32 and rounds: 24 bits are enough for that to round once only.
        with np.errstate(all="ignore"):
            left, right = x.view(FLOATS[fmt]), y.view(FLOATS[fmt])
            want = left + right if operation == "add" else left * right
        assert_bitwise_equal(getattr(ieee, operation)(x, y, formats.get(fmt)), canonical(want, fmt))


def test_fused_multiply_add_is_the_c_librarys():
    """50,000 words through fmaf, which rounds once by the C standard."""
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    fmaf = library.fmaf
    fmaf.restype, fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3
    x, y = seeded("f32", (50, 1000), 31), seeded("f32", (50, 1000), 32)[::-1]
    with np.errstate(all="ignore"):
        z = near("f32", (x.view(np.float32) * y.view(np.float32)).view(np.uint32), 33)
    floats = [operand.reshape(-1).view(np.float32).tolist() for operand in (x, y, z)]
    want = np.array([fmaf(*triple) for triple in zip(*floats, strict=True)], np.float32)
    assert_bitwise_equal(ieee.fma(x, y, z, formats.F32).reshape(-1), canonical(want, "f32"))


@pytest.mark.parametrize("fmt", ["f32", "f16"])
def test_fused_multiply_add_is_exact_arithmetic_rounded_once(fmt):
    @bounded(60)
    @given(words(fmt, 24), words(fmt, 24), words(fmt, 24), st.integers(0, 999))
    def check(x, y, z, seed):
        close = near(fmt, ieee.multiply(x, y, formats.get(fmt)), seed)
        for addend in (z, close):
            want = [exact.fma(int(a), int(b), int(c), fmt) for a, b, c in zip(x, y, addend, strict=True)]
            assert_bitwise_equal(ieee.fma(x, y, addend, formats.get(fmt)), np.array(want, x.dtype))

    check()


@pytest.mark.parametrize("operation", ["add", "multiply"])
@pytest.mark.parametrize("fmt", ["f32", "f16"])
def test_sums_and_products_are_exact_arithmetic_rounded_once(fmt, operation):
    @bounded(60)
    @given(words(fmt, 30), words(fmt, 30), st.integers(0, 999))
    def check(x, y, seed):
        for other in (y, near(fmt, x, seed)):
            want = [getattr(exact, operation)(int(a), int(b), fmt) for a, b in zip(x, other, strict=True)]
            got = getattr(ieee, operation)(x, other, formats.get(fmt))
            assert_bitwise_equal(got, np.array(want, x.dtype))

    check()


def test_every_pair_of_float16_exponents_adds_as_the_hardware():
    """All pairs of the words with the three highest fraction bits, the low bits all set or all clear."""
    kept = np.arange(1 << 9, dtype=np.uint16) << 7
    x = np.concatenate([kept, kept | 127])[:, None]
    y = x.reshape(1, -1)
    with np.errstate(all="ignore"):
        want = x.view(np.float16) + y.view(np.float16)
    assert_bitwise_equal(ieee.add(x, y, formats.F16), canonical(want, "f16"))


@pytest.mark.parametrize(
    ("x", "y", "total"),
    [
        (0x3F800000, 0x33800000, 0x3F800000), (0x3F800000, 0x33800001, 0x3F800001),
        (0x3F800001, 0x33800000, 0x3F800002), (0x7F7FFFFF, 0x73000000, 0x7F800000),
        (0x7F7FFFFF, 0x72FFFFFF, 0x7F7FFFFF), (0x3F800000, 0xBF800000, 0x00000000),
        (0x80000000, 0x80000000, 0x80000000), (0x80000000, 0x00000000, 0x00000000),
        (0x00000001, 0x00000001, 0x00000002), (0x00800000, 0x80000001, 0x007FFFFF),
        (0x7F800000, 0xFF800000, 0x7FFFFFFF), (0x7F800000, 0xFF7FFFFF, 0x7F800000),
        (0xFFC12345, 0x3F800000, 0x7FFFFFFF), (0x7F800001, 0x00000000, 0x7FFFFFFF),
    ],
)  # fmt: skip
def test_a_sum_that_a_person_can_check(x, y, total):
    assert hex(int(ieee.add(word(x), word(y))[0])) == hex(total)


@pytest.mark.parametrize(
    ("x", "y", "product"),
    [
        (0x3FC00000, 0x3FC00000, 0x40100000), (0x00000001, 0x3F000000, 0x00000000),
        (0x00000003, 0x3F000000, 0x00000002), (0x80000001, 0x3E800000, 0x80000000),
        (0x7F000000, 0x40000000, 0x7F800000), (0x7F7FFFFF, 0xBF800000, 0xFF7FFFFF),
        (0x7F800000, 0x00000000, 0x7FFFFFFF), (0xFF800000, 0xBF800000, 0x7F800000),
        (0x80000000, 0xBF800000, 0x00000000), (0x20000000, 0x20000000, 0x00800000),
        (0x20000000, 0x1F800000, 0x00400000),
    ],
)  # fmt: skip
def test_a_product_that_a_person_can_check(x, y, product):
    assert hex(int(ieee.multiply(word(x), word(y))[0])) == hex(product)


def test_one_rounding_of_a_fused_multiply_add_differs_from_two():
    x, z = word(0x3F800001), word(0xBF800002)
    fused, apart = ieee.fma(x, x, z), ieee.add(ieee.multiply(x, x), z)
    assert (hex(int(fused[0])), hex(int(apart[0]))) == ("0x28800000", "0x0")


def test_operands_broadcast():
    x, y = np.array([[0x3F800000], [0x40000000]], np.uint32), np.array([0x3F800000, 0x40000000], np.uint32)
    assert ieee.add(x, y).tolist() == [[0x40000000, 0x40400000], [0x40400000, 0x40800000]]


@pytest.mark.parametrize("fmt", ["e4m3", "e5m2", "f16", "bf16"])
def test_widen_is_exact(fmt):
    count = 1 << (8 * np.dtype(STORAGE[fmt]).itemsize)
    every = np.arange(count, dtype=STORAGE[fmt])
    got = ieee.widen(every, formats.get(fmt))
    for code, wide in zip(every, got, strict=True):
        narrow, widened = exact.decode(int(code), fmt), exact.decode(int(wide), "f32")
        assert (narrow.kind, narrow.kind == exact.NAN or narrow.negative) == (
            widened.kind, widened.kind == exact.NAN or widened.negative
        )  # fmt: skip
        assert narrow.kind != exact.NUMBER or narrow.value == widened.value, hex(code)
