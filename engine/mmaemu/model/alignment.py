# SPDX-License-Identifier: Apache-2.0
"""Products and accumulator on one grid: the common exponent, and what each term keeps below it.

Every array has the terms of a step on axis 0 and the outputs on the rest; operands broadcast, so one function serves a
list of dot products ([k, count] with [k, count]) and a tile of a matrix product ([k, m, 1] with [k, 1, n]).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mmaemu.model.decode import I32, Decoded
from mmaemu.profiles.instruction import StepRule

NO_EXPONENT = -(1 << 20)
"""Exponent of a term that takes no part in the common exponent: below every real one, even as a sum of two."""


@dataclass(frozen=True)
class Aligned:
    """Terms of one step as integers on the grid 2^(common_exponent - fraction_bits), truncated toward zero."""

    common_exponent: I32
    products: I32
    accumulator: I32


def without_zeros(value: Decoded) -> Decoded:
    """Zeros leave the search for the common exponent."""
    return replace(value, exponent=np.where(value.magnitude == 0, np.int32(NO_EXPONENT), value.exponent))


def align(a: Decoded, b: Decoded, accumulator: Decoded, rule: StepRule) -> Aligned:
    """Align the products a[k]*b[k] and the accumulator of one step.

    Products are exact and not normalised: significands in [0, 4), exponent the sum of the operands' exponents
    (recorded). Bits below the grid are dropped from the magnitude, so truncation is toward zero. NaN and infinities
    count as zero here.
    """
    product_exponent = a.exponent + b.exponent
    common = np.maximum(product_exponent.max(axis=0), accumulator.exponent)
    common = np.maximum(common, np.int32(rule.min_exponent))

    # How far the grid lies below a product's own last bit when the product has the common exponent: the same for
    # every term, so it goes into one operand before the multiplication.
    spare = rule.fraction_bits - a.fraction_bits - b.fraction_bits
    magnitude = (a.magnitude << max(spare, 0)) * b.magnitude
    # numpy defines shifts past the width: nothing is left (a test holds it to that).
    magnitude >>= (common + np.int32(max(-spare, 0))) - product_exponent
    magnitude *= a.sign
    magnitude *= b.sign

    spare = rule.fraction_bits - accumulator.fraction_bits
    kept = (accumulator.magnitude << max(spare, 0)) >> (common - accumulator.exponent + np.int32(max(-spare, 0)))
    return Aligned(common, magnitude, kept * accumulator.sign)


def sum_dtype(rule: StepRule) -> type[np.signedinteger]:
    """The narrowest integer that holds the exact sum of a step."""
    # Each product is below 4 and the accumulator below 2, in units of 2^common_exponent.
    bound = (4 * rule.group + 2) << rule.fraction_bits
    return np.int32 if bound < 1 << 31 else np.int64


def total(aligned: Aligned, dtype: type[np.signedinteger]) -> NDArray[np.signedinteger]:
    """The exact integer sum of a step's terms."""
    summed: NDArray[np.signedinteger] = np.add.reduce(aligned.products, axis=0, dtype=dtype)
    return summed + aligned.accumulator
