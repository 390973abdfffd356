# SPDX-License-Identifier: Apache-2.0
"""All 65,536 products of each pair of fp8 formats: one product, no accumulator, nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support import exact_oracle as exact

from mmaemu import model
from mmaemu.testing import assert_bitwise_equal

FP8 = ("e4m3", "e5m2")
CODES = np.arange(256, dtype=np.uint8)
A, B = (grid.reshape(-1, 1) for grid in np.meshgrid(CODES, CODES, indexing="ij"))
ZERO = np.zeros(65536, np.uint32)


def values(fmt):
    """The 256 numbers as doubles, which hold them and all their products exactly."""
    named = {exact.NAN: np.nan, exact.INF: np.inf}
    numbers = [exact.decode(code, fmt) for code in range(256)]
    return np.array([float(n.value) if n.kind == exact.NUMBER else (-1) ** n.negative * named[n.kind] for n in numbers])


def expected(fmt_a, fmt_b):
    with np.errstate(invalid="ignore"):
        wide = np.multiply.outer(values(fmt_a), values(fmt_b)).reshape(-1)
    single = wide.astype(np.float32)
    assert np.array_equal(single.astype(np.float64), wide, equal_nan=True), "every product fits a float32"
    words = (single + np.float32(0)).view(np.uint32)
    words[np.isnan(single)] = 0x7FFFFFFF
    return words


@pytest.mark.parametrize("preset", ["ada", "hopper-wgmma", "b200-mma"])
@pytest.mark.parametrize("fmt_b", FP8)
@pytest.mark.parametrize("fmt_a", FP8)
def test_every_product_is_exact(fmt_a, fmt_b, preset):
    got = model.dot(A, B, ZERO, fmt_a, fmt_b, preset=preset)
    assert_bitwise_equal(got, expected(fmt_a, fmt_b))


@pytest.mark.parametrize("preset", ["ada", "hopper-mma", "b200-mma"])
@pytest.mark.parametrize("fmt_b", FP8)
@pytest.mark.parametrize("fmt_a", FP8)
def test_every_product_rounds_once_to_float16(fmt_a, fmt_b, preset):
    numbers = {fmt: [exact.decode(code, fmt) for code in range(256)] for fmt in FP8}
    want = []
    for x in numbers[fmt_a]:
        for y in numbers[fmt_b]:
            kind, negative = exact.product_kind(x, y), x.negative != y.negative
            if kind == exact.NUMBER:
                word = exact.encode(negative, x.units * y.units, x.unit + y.unit, "f16", "RNE", zero_sign=False)
            else:
                word = 0x7FFF if kind == exact.NAN else 0xFC00 if negative else 0x7C00
            want.append(word)
    # 13 fraction bits below the floor of the common exponent, -20, still hold every bit down to 2^-33, and float16
    # has none below 2^-24: only a product under 2^-33, which is far below half of that, may be cut.
    got = model.dot(A, B, np.zeros(65536, np.uint16), fmt_a, fmt_b, preset=preset, acc="f16")
    assert_bitwise_equal(got, np.array(want, np.uint16))
