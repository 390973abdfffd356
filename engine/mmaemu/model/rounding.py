# SPDX-License-Identifier: Apache-2.0
"""Integers back to bit patterns: every rounding and saturation that mmaemu uses.

A number comes in as magnitude * 2^lsb_exponent with a sign. Rounding drops low bits toward zero (`RZ`) or to nearest,
ties to even (`RNE`). Results below the format's smallest normal become subnormal, in either mode.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mmaemu.model.formats import AnyBits, Format

I64 = NDArray[np.int64]
Rounding = Literal["RZ", "RNE"]
Overflow = Literal["infinity", "saturate", "nan"]

_SHIFT_LIMIT = 62  # magnitudes are below 2^61: a shift by 62 leaves nothing and rounds to nothing


def bit_length(magnitude: NDArray[np.integer]) -> I64:
    """Bits needed for each magnitude, as int.bit_length. Magnitudes are below 2^61.

    The exponent field of a conversion to double is a count of leading zeros. The conversion rounds above 2^53, which
    can only carry into the next power of two; so the upper half is counted apart, where it is exact.
    """
    wide = magnitude.astype(np.int64)
    high = wide >> 32
    return np.where(high > 0, _exact_bit_length(high) + 32, _exact_bit_length(wide & 0xFFFFFFFF))


def exact_bit_length(magnitude: NDArray[np.integer]) -> I64:
    """`bit_length` for magnitudes below 2^53, in one conversion."""
    return _exact_bit_length(magnitude)


def _exact_bit_length(magnitude: NDArray[np.integer]) -> I64:
    field = magnitude.astype(np.float64).view(np.int64) >> 52
    length: I64 = np.maximum(field - 1022, 0)
    return length


def shift_right(magnitude: I64, amount: I64, rounding: Rounding) -> I64:
    """magnitude / 2^amount, rounded; negative amounts shift left. Non-negative magnitudes below 2^61."""
    left = np.clip(-amount, 0, _SHIFT_LIMIT)
    right = np.clip(amount, 0, _SHIFT_LIMIT)
    kept: I64 = (magnitude << left) >> right
    if rounding == "RZ":
        return kept
    dropped = magnitude - (kept << right)
    half = (np.int64(1) << right) >> 1
    up = (right > 0) & ((dropped > half) | ((dropped == half) & (kept & 1 == 1)))
    rounded: I64 = kept + up
    return rounded


def shift_right_sticky(magnitude: I64, amount: I64) -> I64:
    """magnitude >> amount, with bit 0 set if anything was dropped: enough for one later rounding to be right."""
    right = np.clip(amount, 0, _SHIFT_LIMIT)
    kept: I64 = magnitude >> right
    sticky: I64 = kept | ((kept << right) != magnitude)
    return sticky


def pack(
    negative: NDArray[np.bool_],
    magnitude: I64,
    lsb_exponent: I64 | NDArray[np.int32] | int,
    fmt: Format,
    rounding: Rounding = "RNE",
    overflow: Overflow = "infinity",
    zero_keeps_sign: bool = True,
) -> AnyBits:
    """Bit patterns of (-1)^negative * magnitude * 2^lsb_exponent in `fmt`.

    Too large: infinity (the largest finite number in formats without one), the largest finite number with
    overflow="saturate", or NaN with the result's sign with overflow="nan". `RZ`
    overflows to infinity too, from 2^(max_exponent + 1) on: tensor cores truncate each step and still return Inf
    (reported: RTX 4090, H100). A zero result keeps the sign unless `zero_keeps_sign` is False. No NaN comes in.
    """
    lsb = np.asarray(lsb_exponent, np.int64)
    length = bit_length(magnitude)
    drop = np.maximum(length - 1 - fmt.fraction_bits, fmt.min_exponent - fmt.fraction_bits - lsb)
    kept = shift_right(magnitude, drop, rounding)
    # A carry out of the rounding needs no care: biased exponent and fraction are one number, the carry moves up.
    exponent = lsb + drop + fmt.fraction_bits
    biased = np.where(kept >> fmt.fraction_bits > 0, exponent + fmt.bias - 1, 0)
    code = np.where(magnitude > 0, kept + (np.maximum(biased, 0) << fmt.fraction_bits), 0)

    limit = fmt.max_finite >> fmt.ignored_low_bits
    if fmt.infinity is not None and overflow == "infinity":
        top = fmt.infinity >> fmt.ignored_low_bits
    else:
        top = fmt.canonical_nan >> fmt.ignored_low_bits if overflow == "nan" else limit
    code = np.where(code > limit, top, code)
    signed = negative if zero_keeps_sign else negative & (code > 0)
    code = (code << fmt.ignored_low_bits) | np.where(signed, fmt.sign_bit, 0)
    return code.astype(fmt.storage)
