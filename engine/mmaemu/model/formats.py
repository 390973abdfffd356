# SPDX-License-Identifier: Apache-2.0
"""The number formats that tensor cores read and write, one table row each.

A format is its fields; no code asks for a format's name to decide what to compute. Sources: e4m3 and e5m2 are OCP 8-bit
Floating Point 1.0 (e4m3 has no infinity and one NaN per sign); f16 and f32 are IEEE 754; bf16 is the upper half of
f32; tf32 is f32 storage of which the tensor core reads the sign, 8 exponent and 10 fraction bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mmaemu.errors import InvalidInputError

AnyBits = NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format; derived numbers are properties, so a row holds no redundant fact."""

    name: str
    torch_name: str
    exponent_bits: int
    fraction_bits: int
    bias: int
    has_infinity: bool
    """False for e4m3: its all-ones exponent holds numbers, and only all-ones everywhere is NaN."""
    canonical_nan: int
    ignored_low_bits: int = 0
    """Storage bits below the fraction that the tensor core does not read (tf32)."""

    @property
    def storage_bits(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits + self.ignored_low_bits

    @property
    def itemsize(self) -> int:
        return self.storage_bits // 8

    @property
    def storage(self) -> np.dtype[np.unsignedinteger]:
        return np.dtype(f"u{self.itemsize}")

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal number, and of every subnormal."""
        return 1 - self.bias

    @property
    def max_exponent(self) -> int:
        return (1 << self.exponent_bits) - (2 if self.has_infinity else 1) - self.bias

    @property
    def sign_bit(self) -> int:
        return 1 << (self.storage_bits - 1)

    @property
    def exponent_mask(self) -> int:
        return (1 << self.exponent_bits) - 1

    @property
    def infinity(self) -> int | None:
        """The code of +Inf, or None where the format has none."""
        return self.exponent_mask << (self.fraction_bits + self.ignored_low_bits) if self.has_infinity else None

    @property
    def max_finite(self) -> int:
        """The code of the largest finite number."""
        all_ones = (self.exponent_mask << self.fraction_bits) | ((1 << self.fraction_bits) - 1)
        above = 1 << self.fraction_bits if self.has_infinity else 1
        return (all_ones - above) << self.ignored_low_bits


E4M3 = Format("e4m3", "float8_e4m3fn", 4, 3, 7, False, 0x7F)
E5M2 = Format("e5m2", "float8_e5m2", 5, 2, 15, True, 0x7F)
F16 = Format("f16", "float16", 5, 10, 15, True, 0x7FFF)
BF16 = Format("bf16", "bfloat16", 8, 7, 127, True, 0x7FFF)
TF32 = Format("tf32", "tf32", 8, 10, 127, True, 0x7FFFFFFF, ignored_low_bits=13)
F32 = Format("f32", "float32", 8, 23, 127, True, 0x7FFFFFFF)

ALL = (E4M3, E5M2, F16, BF16, TF32, F32)
FP8 = (E4M3, E5M2)

_BY_NAME = {f.name: f for f in ALL} | {f.torch_name: f for f in ALL}


def get(name: str | Format, field: str = "format") -> Format:
    """The format called `name`: mmaemu's short name or torch's dtype name."""
    if isinstance(name, Format):
        return name
    found = _BY_NAME.get(name.removeprefix("torch.")) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(f"{f.name} ({f.torch_name})" if f.name != f.torch_name else f.name for f in ALL)
        raise InvalidInputError.because(field, got=repr(name)[:80], wanted=f"one of {known}")
    return found
