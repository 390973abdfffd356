# SPDX-License-Identifier: Apache-2.0
"""NaN and infinities of a dot product, as flags that are or-ed together.

A finite product is never infinite by itself (reported: RTX 4090), so only special operands, a special accumulator and
an overflowing result raise a flag. +Inf and -Inf together are NaN, and so is Inf * 0 (reported: RTX 4090, H100).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mmaemu.model.decode import FINITE, INFINITE, NAN, Decoded
from mmaemu.model.formats import AnyBits, Format

Flags = NDArray[np.uint8]

PLUS_INF, MINUS_INF, NOT_A_NUMBER = 1, 2, 4
BOTH_INF = PLUS_INF | MINUS_INF


def of_products(a: Decoded, b: Decoded) -> Flags | None:
    """Flags of sum_k a[k]*b[k] over axis 0, operands broadcast; None when every operand is finite."""
    if _all_finite(a) and _all_finite(b):
        return None
    kinds = product_kinds(a, b)
    infinity = np.where(a.sign * b.sign < 0, MINUS_INF, PLUS_INF)
    flags = np.where(kinds == NAN, NOT_A_NUMBER, np.where(kinds == INFINITE, infinity, 0))
    return settle(np.bitwise_or.reduce(flags.astype(np.uint8), axis=0))


def product_kinds(a: Decoded, b: Decoded) -> NDArray[np.uint8]:
    """FINITE, INFINITE or NAN for each product a*b, operands broadcast."""
    infinite = (a.kinds == INFINITE) | (b.kinds == INFINITE)
    zero = ((a.magnitude == 0) & (a.kinds == FINITE)) | ((b.magnitude == 0) & (b.kinds == FINITE))
    nan = (a.kinds == NAN) | (b.kinds == NAN) | (infinite & zero)
    return np.where(nan, NAN, np.where(infinite, INFINITE, FINITE)).astype(np.uint8)


def of_value(value: Decoded) -> Flags | None:
    """Flags of each element, None when all are finite."""
    if value.special is None:
        return None
    infinity = np.where(value.sign < 0, MINUS_INF, PLUS_INF)
    return np.where(value.special == NAN, NOT_A_NUMBER, np.where(value.special == INFINITE, infinity, 0)).astype(
        np.uint8
    )


def either(x: Flags | None, y: Flags | None) -> Flags | None:
    """Flags of a sum of two."""
    if x is None or y is None:
        return y if x is None else x
    return settle(x | y)


def settle(flags: Flags) -> Flags:
    """Inf - Inf is NaN."""
    return np.where(flags & BOTH_INF == BOTH_INF, NOT_A_NUMBER, flags).astype(np.uint8)


def write(bits: AnyBits, flags: Flags | None, fmt: Format, nan: int) -> AnyBits:
    """`bits` with the flagged elements replaced by infinities and the NaN pattern."""
    if flags is None or not flags.any():
        return bits
    assert fmt.infinity is not None, "accumulators are f32 or f16"
    one = fmt.storage.type
    bits = np.where(flags == PLUS_INF, one(fmt.infinity), bits)
    bits = np.where(flags == MINUS_INF, one(fmt.infinity | fmt.sign_bit), bits)
    return np.where(flags & NOT_A_NUMBER, one(nan), bits).astype(fmt.storage)


def _all_finite(value: Decoded) -> bool:
    return value.special is None or not value.special.any()
