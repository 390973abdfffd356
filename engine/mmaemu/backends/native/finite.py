# SPDX-License-Identifier: Apache-2.0
"""Where fp8 operands hold NaN and infinities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mmaemu.backends.native import library
from mmaemu.backends.native.library import address
from mmaemu.model import formats
from mmaemu.model.formats import AnyBits, Format

Index = NDArray[np.intp]

_LOWEST = {fmt: fmt.max_finite + 1 for fmt in formats.FP8}
_NOWHERE: Index = np.zeros(0, np.intp)


def rows_that_are_not(words: AnyBits, fmt: Format) -> Index:
    """The rows of fp8 words, of any strides, that hold NaN or Inf."""
    find, where = library.found().mmaemu_not_finite, (address(words), *words.strides, *words.shape, _LOWEST[fmt])
    if not find(*where, None):
        return _NOWHERE
    marks = np.empty(words.shape[0], np.uint8)
    find(*where, address(marks))
    return np.flatnonzero(marks)
