# SPDX-License-Identifier: Apache-2.0
"""Add, multiply and fused multiply-add on bit patterns: IEEE 754, RNE, subnormals kept, in integers.

In f32 these are the GPU's ordinary FADD, FMUL and FFMA, which the promotion of slow accumulation, the split-K reduction
and the epilogue use; in f16 they add the accumulator of lowered instructions. Every NaN result is the format's
canonical NaN.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmaemu.model import rounding, special
from mmaemu.model.decode import INFINITE, NAN, Decoded, decode
from mmaemu.model.formats import F32, AnyBits, Format

I64 = NDArray[np.int64]

_FULL = 60
_LOWEST = np.int64(-(1 << 20))


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
    left, right = decode(x, fmt), decode(y, fmt)
    return _add(_term(left), _term(right), fmt)


def fma(x: AnyBits, y: AnyBits, z: AnyBits, fmt: Format = F32) -> AnyBits:
    """x * y + z with one rounding; special values as in `multiply`, then `add`."""
    x, y, z = np.broadcast_arrays(x, y, z)
    left, right, addend = decode(x, fmt), decode(y, fmt), decode(z, fmt)
    magnitude, lsb, negative = _product(left, right)
    product = _Term(*_raise(magnitude, lsb), negative, special.product_kinds(left, right))
    other = _term(addend)
    return _add(product, other._replace(lsb=np.where(addend.magnitude > 0, other.lsb, _LOWEST)), fmt)


def _product(left: Decoded, right: Decoded) -> tuple[I64, I64, NDArray[np.bool_]]:
    magnitude = left.magnitude.astype(np.int64) * right.magnitude
    lsb = left.exponent.astype(np.int64) + right.exponent - left.fraction_bits - right.fraction_bits
    return magnitude, lsb, left.sign * right.sign < 0


class _Term(NamedTuple):
    """A summand whose magnitude fills up to 60 bits: what falls off below in a sum is far under the rounding point."""

    magnitude: I64
    lsb: I64
    negative: NDArray[np.bool_]
    kinds: NDArray[np.uint8]


def _term(value: Decoded) -> _Term:
    """A word as a summand. Only the smallest exponent has subnormals, so larger lsb means larger or equal magnitude."""
    spare = _FULL - value.fraction_bits - 1
    magnitude = value.magnitude.astype(np.int64) << spare
    lsb = value.exponent.astype(np.int64) - (value.fraction_bits + spare)
    return _Term(magnitude, lsb, value.sign < 0, value.kinds)


def _raise(magnitude: I64, lsb: I64) -> tuple[I64, I64]:
    """A product, below 2^48, shifted up to fill 60 bits; a zero gets an lsb that never decides the common one."""
    by = _FULL - rounding.exact_bit_length(magnitude)
    return magnitude << by, np.where(magnitude > 0, lsb - by, _LOWEST)


def _add(x: _Term, y: _Term, fmt: Format) -> AnyBits:
    common = np.maximum(x.lsb, y.lsb)
    x_signed = np.where(x.negative, -1, 1) * rounding.shift_right_sticky(x.magnitude, common - x.lsb)
    y_signed = np.where(y.negative, -1, 1) * rounding.shift_right_sticky(y.magnitude, common - y.lsb)
    total = x_signed + y_signed
    sign = np.where(total == 0, x.negative & y.negative, total < 0)
    result = rounding.pack(sign, np.abs(total), common, fmt)

    if not (x.kinds.any() or y.kinds.any()):
        return result
    x_inf, y_inf = x.kinds == INFINITE, y.kinds == INFINITE
    result = np.where(x_inf, _infinity(x.negative, fmt), np.where(y_inf, _infinity(y.negative, fmt), result))
    nan = (x.kinds == NAN) | (y.kinds == NAN) | (x_inf & y_inf & (x.negative != y.negative))
    return np.where(nan, _nan(fmt), result)


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
