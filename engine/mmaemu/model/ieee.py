# SPDX-License-Identifier: Apache-2.0
"""Add, multiply and fused multiply-add on bit patterns: IEEE 754, RNE, subnormals kept, in integers.

In f32 these are the GPU's ordinary FADD, FMUL and FFMA, which the promotion of slow accumulation, the split-K reduction
and the epilogue use; in f16 they add the accumulator of lowered instructions. Every NaN result is the format's
canonical NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mmaemu.model import rounding, special
from mmaemu.model.decode import INFINITE, NAN, Decoded, decode
from mmaemu.model.formats import F32, AnyBits, Format

I64 = NDArray[np.int64]


def multiply(x: AnyBits, y: AnyBits, fmt: Format = F32) -> AnyBits:
    """x * y. 0 * Inf is NaN; signs of zeros multiply."""
    x, y = np.broadcast_arrays(x, y)
    left, right = decode(x, fmt), decode(y, fmt)
    magnitude, lsb, negative = _product(left, right)
    result = rounding.pack(negative, magnitude, lsb, fmt)
    kind = special.product_kinds(left, right)
    if not kind.any():
        return result
    result = np.where(kind == INFINITE, _infinity(negative, fmt), result)
    return np.where(kind == NAN, _nan(fmt), result)


def add(x: AnyBits, y: AnyBits, fmt: Format = F32) -> AnyBits:
    """x + y. Exact cancellation gives +0, -0 + -0 gives -0, Inf - Inf is NaN."""
    x, y = np.broadcast_arrays(x, y)
    left = decode(x, fmt)
    lsb = left.exponent.astype(np.int64) - fmt.fraction_bits
    return _add(left.magnitude.astype(np.int64), lsb, left.sign < 0, left.kinds, decode(y, fmt), fmt)


def fma(x: AnyBits, y: AnyBits, z: AnyBits, fmt: Format = F32) -> AnyBits:
    """x * y + z with one rounding; special values as in `multiply`, then `add`."""
    x, y, z = np.broadcast_arrays(x, y, z)
    left, right = decode(x, fmt), decode(y, fmt)
    magnitude, lsb, negative = _product(left, right)
    return _add(magnitude, lsb, negative, special.product_kinds(left, right), decode(z, fmt), fmt)


def _product(left: Decoded, right: Decoded) -> tuple[I64, I64, NDArray[np.bool_]]:
    magnitude = left.magnitude.astype(np.int64) * right.magnitude
    lsb = left.exponent.astype(np.int64) + right.exponent - left.fraction_bits - right.fraction_bits
    return magnitude, lsb, left.sign * right.sign < 0


def _add(
    magnitude: I64, lsb: I64, negative: NDArray[np.bool_], kind: NDArray[np.uint8], addend: Decoded, fmt: Format
) -> AnyBits:
    """(-1)^negative * magnitude * 2^lsb + addend. Magnitudes are below 2^48."""
    other_magnitude = addend.magnitude.astype(np.int64)
    other_lsb = addend.exponent.astype(np.int64) - addend.fraction_bits
    other_negative = addend.sign < 0

    # Both are raised to fill 60 bits, so what falls off below is far under the rounding point; a sticky bit stands for
    # it. A zero must not decide the common exponent.
    x_magnitude, x_lsb = _raise(magnitude, lsb)
    y_magnitude, y_lsb = _raise(other_magnitude, other_lsb)
    common = np.maximum(np.where(magnitude > 0, x_lsb, y_lsb), np.where(other_magnitude > 0, y_lsb, x_lsb))
    x_signed = np.where(negative, -1, 1) * rounding.shift_right_sticky(x_magnitude, common - x_lsb)
    y_signed = np.where(other_negative, -1, 1) * rounding.shift_right_sticky(y_magnitude, common - y_lsb)
    total = x_signed + y_signed
    sign = np.where(total == 0, negative & other_negative, total < 0)
    result = rounding.pack(sign, np.abs(total), common, fmt)

    other_kind = addend.kinds
    if not (kind.any() or other_kind.any()):
        return result
    x_inf, y_inf = kind == INFINITE, other_kind == INFINITE
    result = np.where(x_inf, _infinity(negative, fmt), np.where(y_inf, _infinity(other_negative, fmt), result))
    nan = (kind == NAN) | (other_kind == NAN) | (x_inf & y_inf & (negative != other_negative))
    return np.where(nan, _nan(fmt), result)


def _raise(magnitude: I64, lsb: I64) -> tuple[I64, I64]:
    by = np.where(magnitude > 0, 60 - rounding.exact_bit_length(magnitude), 0)
    return magnitude << by, lsb - by


def _infinity(negative: NDArray[np.bool_], fmt: Format) -> AnyBits:
    assert fmt.infinity is not None, "IEEE arithmetic is defined here for formats with an infinity"
    return np.where(negative, fmt.storage.type(fmt.infinity | fmt.sign_bit), fmt.storage.type(fmt.infinity))


def _nan(fmt: Format) -> np.unsignedinteger:
    return fmt.storage.type(fmt.canonical_nan)


def widen(bits: AnyBits, fmt: Format) -> AnyBits:
    """`bits` of a narrower format in f32: exact, but for NaN, which becomes canonical."""
    value = decode(bits, fmt)
    lsb = value.exponent - value.fraction_bits
    wide = rounding.pack(value.sign < 0, value.magnitude.astype(np.int64), lsb, F32)
    wide = np.where(value.kinds == INFINITE, _infinity(value.sign < 0, F32), wide)
    return np.where(value.kinds == NAN, _nan(F32), wide)
