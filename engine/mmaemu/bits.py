# SPDX-License-Identifier: Apache-2.0
"""Operands as bit patterns, for callers who have neither torch nor ml_dtypes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmaemu.errors import InvalidInputError
from mmaemu.model import formats
from mmaemu.model.formats import AnyBits


@dataclass(frozen=True, eq=False)
class Bits:
    """An array of bit patterns: `dtype` names the format (torch's or the short name), `array` holds unsigned integers
    of the format's width, any shape and strides.

    `strides` (in elements) replaces the array's own when the reference's layout checks look at it: a copy can so speak
    for a tensor that lies elsewhere.
    """

    dtype: str
    array: AnyBits
    strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        fmt = formats.get(self.dtype, "dtype")
        if not isinstance(self.array, np.ndarray) or self.array.dtype != fmt.storage:
            got = self.array.dtype if isinstance(self.array, np.ndarray) else type(self.array).__name__
            raise InvalidInputError.because("array", got=got, wanted=f"{fmt.storage}, the width of {fmt.torch_name}")
        if self.strides is not None and len(self.strides) != self.array.ndim:
            raise InvalidInputError.because("strides", got=self.strides, wanted=f"{self.array.ndim} numbers")
        object.__setattr__(self, "dtype", fmt.torch_name)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def layout(self) -> tuple[int, ...]:
        """Strides in elements, as torch counts them."""
        if self.strides is not None:
            return self.strides
        return tuple(stride // self.array.itemsize for stride in self.array.strides)


@dataclass(frozen=True)
class Spec:
    """An operand without data: enough for `explain` to show the plan. `strides` default to row-major."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None

    @property
    def layout(self) -> tuple[int, ...]:
        if self.strides is not None:
            return self.strides
        strides, step = [], 1
        for size in reversed(self.shape):
            strides.append(step)
            step *= max(size, 1)
        return tuple(reversed(strides))
