# SPDX-License-Identifier: Apache-2.0
"""Products and accumulator on one grid: the common exponent, and what each term keeps below it.

Every array has the terms of a step on axis 0 and the outputs on the rest; operands broadcast, so one function serves a
list of dot products ([k, count] with [k, count]) and a tile of a matrix product ([k, m, 1] with [k, 1, n]).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mmaemu.model.decode import I32, Decoded
from mmaemu.profiles.instruction import StepRule

NO_EXPONENT = -(1 << 20)
"""Exponent of a term that takes no part in the common exponent: below every real one, even as a sum of two."""

_BLOCK_TERMS = 1 << 18
"""Terms that are aligned at once: more would leave the processor's cache, fewer would not be worth a thread's turn."""


def without_zeros(value: Decoded) -> Decoded:
    """Zeros leave the search for the common exponent."""
    return replace(value, exponent=np.where(value.magnitude == 0, np.int32(NO_EXPONENT), value.exponent))


def common_exponent(a: Decoded, b: Decoded, accumulator: Decoded, rule: StepRule) -> I32:
    """The largest exponent of a step's terms.

    Products are not normalised: their exponent is the sum of the operands' exponents (recorded).
    """
    common = np.maximum(accumulator.exponent, np.int32(rule.min_exponent))
    for k in _blocks(a, common.size):
        np.maximum(common, (a.exponent[k] + b.exponent[k]).max(axis=0), out=common)
    return common


def kept_products(a: Decoded, b: Decoded, common: I32, rule: StepRule) -> I32:
    """Each product on the grid 2^(common - fraction_bits): bits below it are dropped from the exact magnitude, so
    truncation is toward zero. NaN and infinities count as zero here.
    """
    # How far the grid lies below a product's own last bit when the product has the common exponent: the same for
    # every term, so it goes into one operand before the multiplication.
    spare = rule.fraction_bits - a.fraction_bits - b.fraction_bits
    kept: I32 = (a.magnitude << max(spare, 0)) * b.magnitude
    # numpy defines shifts past the width: nothing is left (a test holds it to that).
    kept >>= (common + np.int32(max(-spare, 0)) - a.exponent) - b.exponent
    kept *= a.sign
    kept *= b.sign
    return kept


def kept_accumulator(accumulator: Decoded, common: I32, rule: StepRule) -> I32:
    """The accumulator on the same grid, truncated toward zero like any other term (reported: H100, RTX 4090)."""
    spare = rule.fraction_bits - accumulator.fraction_bits
    kept = (accumulator.magnitude << max(spare, 0)) >> (common - accumulator.exponent + np.int32(max(-spare, 0)))
    signed: I32 = kept * accumulator.sign
    return signed


def exact_sum(a: Decoded, b: Decoded, accumulator: Decoded, common: I32, rule: StepRule) -> NDArray[np.signedinteger]:
    """The integer sum of a step's terms on the grid; nothing is lost here."""
    dtype = sum_dtype(rule)
    total = kept_accumulator(accumulator, common, rule).astype(dtype)
    for k in _blocks(a, common.size):
        total += np.add.reduce(kept_products(a[k], b[k], common, rule), axis=0, dtype=dtype)
    return total


def sum_dtype(rule: StepRule) -> type[np.signedinteger]:
    """The narrowest integer that holds the exact sum of a step."""
    # Each product is below 4 and the accumulator below 2, in units of 2^common_exponent.
    bound = (4 * rule.group + 2) << rule.fraction_bits
    return np.int32 if bound < 1 << 31 else np.int64


def _blocks(operand: Decoded, outputs: int) -> Iterator[slice]:
    """Runs of terms, a few at a time, so that temporaries stay small however many outputs there are."""
    step = max(_BLOCK_TERMS // max(outputs, 1), 1)
    for first in range(0, len(operand.sign), step):
        yield slice(first, first + step)
