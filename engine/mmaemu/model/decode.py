# SPDX-License-Identifier: Apache-2.0
"""Bit patterns to integers: value = sign * magnitude * 2^(exponent - fraction_bits).

Magnitudes are not normalised: a subnormal keeps its leading zeros and the format's smallest exponent, as the hardware's
multipliers see it (recorded: about 2,700 subnormal operands in each e4m3 recording). Zeros, NaN and infinities have
magnitude 0; `special` tells NaN and infinities apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mmaemu.model.formats import AnyBits, Format

I32 = NDArray[np.int32]

FINITE, INFINITE, NAN = 0, 1, 2


@dataclass(frozen=True)
class Decoded:
    """Equal-shaped integer arrays; `special` is None when every element is finite."""

    sign: I32
    magnitude: I32
    exponent: I32
    fraction_bits: int
    special: NDArray[np.uint8] | None = None

    @property
    def kinds(self) -> NDArray[np.uint8]:
        """FINITE, INFINITE or NAN, element by element."""
        return np.zeros(self.sign.shape, np.uint8) if self.special is None else self.special

    def __getitem__(self, index: object) -> Decoded:
        def part(array: NDArray[np.generic]) -> NDArray[np.generic]:
            return array[index]  # type: ignore[call-overload, no-any-return]

        special = None if self.special is None else part(self.special)
        return Decoded(part(self.sign), part(self.magnitude), part(self.exponent), self.fraction_bits, special)  # type: ignore[arg-type]


def decode(bits: AnyBits, fmt: Format) -> Decoded:
    """Integer parts of `bits`, any shape. -0 decodes to sign -1 and magnitude 0."""
    if fmt.storage_bits == 8:
        return _look_up(bits, fmt)
    return _decode(bits, fmt)


def encode(value: Decoded, fmt: Format) -> AnyBits:
    """The inverse of `decode`, for finite values that need no rounding: at most `fmt`'s fraction bits, exponents in its
    range, and normalised unless subnormal. A zero keeps its sign.
    """
    fraction = value.magnitude << (fmt.fraction_bits - value.fraction_bits)
    # The leading one of a normal number counts as one more in the exponent field; a subnormal has neither.
    code = np.where(value.magnitude > 0, fraction + ((value.exponent - fmt.min_exponent) << fmt.fraction_bits), 0)
    return (code | np.where(value.sign < 0, fmt.sign_bit, 0)).astype(fmt.storage)


@cache
def _all_codes(fmt: Format) -> Decoded:
    return _decode(np.arange(256, dtype=np.uint8), fmt)


def _look_up(bits: AnyBits, fmt: Format) -> Decoded:
    """The same through a table of all 256 codes, which is many times faster."""
    table = _all_codes(fmt)
    special = table.kinds[bits]
    return Decoded(
        sign=table.sign[bits],
        magnitude=table.magnitude[bits],
        exponent=table.exponent[bits],
        fraction_bits=fmt.fraction_bits,
        special=special if special.any() else None,
    )


def _decode(bits: AnyBits, fmt: Format) -> Decoded:
    word = bits.astype(np.int64) >> fmt.ignored_low_bits
    fraction = word & ((1 << fmt.fraction_bits) - 1)
    field = (word >> fmt.fraction_bits) & fmt.exponent_mask
    negative = (word >> (fmt.fraction_bits + fmt.exponent_bits)) & 1

    magnitude = fraction + (np.minimum(field, 1) << fmt.fraction_bits)
    exponent = np.maximum(field, 1) - fmt.bias
    special = _special(field, fraction, fmt)
    return Decoded(
        sign=(1 - 2 * negative).astype(np.int32),
        magnitude=np.where(special == FINITE, magnitude, 0).astype(np.int32),
        exponent=exponent.astype(np.int32),
        fraction_bits=fmt.fraction_bits,
        special=special if special.any() else None,
    )


def _special(field: NDArray[np.int64], fraction: NDArray[np.int64], fmt: Format) -> NDArray[np.uint8]:
    top = field == fmt.exponent_mask
    if fmt.has_infinity:
        return np.where(top, np.where(fraction == 0, INFINITE, NAN), FINITE).astype(np.uint8)
    return np.where(top & (fraction == (1 << fmt.fraction_bits) - 1), NAN, FINITE).astype(np.uint8)
