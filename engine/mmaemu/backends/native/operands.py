# SPDX-License-Identifier: Apache-2.0
"""Operands as the kernels read them: words in row-major order, and where NaN and infinities are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mmaemu.backends.native import library
from mmaemu.backends.native.library import address
from mmaemu.model.formats import AnyBits, Format

Index = NDArray[np.intp]


def rows_together(words: AnyBits) -> AnyBits:
    """The same words in row-major order without gaps."""
    if words.itemsize == 1 and words.T.flags.c_contiguous and not words.flags.c_contiguous:
        turned = np.empty(words.shape, words.dtype)
        library.found().mmaemu_transpose(
            address(words), words.shape[0], words.shape[1], words.shape[0], address(turned)
        )
        return turned
    return np.ascontiguousarray(words)


def not_finite(words: AnyBits, fmt: Format) -> tuple[Index, Index]:
    """The rows, and the columns, of contiguous fp8 words that hold NaN or Inf."""
    rows, columns = words.shape
    marks = np.zeros(rows, np.uint8), np.zeros(columns, np.uint8)
    library.found().mmaemu_not_finite(
        address(words), columns, rows, columns, fmt.max_finite + 1, address(marks[0]), address(marks[1])
    )
    return np.flatnonzero(marks[0]), np.flatnonzero(marks[1])
