# SPDX-License-Identifier: Apache-2.0
"""The compiled kernels: found beside this file, spoken to through ctypes, which lets go of the interpreter lock.

A C interface and not a Python extension, so that one library serves every version of Python and a wheel is bound to a
platform alone.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import c_int, c_int64, c_uint32, c_void_p
from functools import cache
from pathlib import Path

import numpy as np

from mmaemu.model.formats import AnyBits

FILE = Path(os.environ.get("MMAEMU_KERNELS") or Path(__file__).with_name("kernels.so"))
"""MMAEMU_KERNELS names another build of the library: the one that `make sanitize` makes."""
PLAIN, AVX2 = 0, 1
KERNELS = {"plain": PLAIN, "avx2": AVX2}

_ARGUMENTS = {
    "mmaemu_has": [c_int],
    "mmaemu_fp8_sum": [
        c_int, c_void_p, c_int64, c_int, c_void_p, c_int64, c_int, c_int64, c_int64, c_int, c_int64, c_void_p, c_void_p,
        c_void_p, c_int64, c_void_p, c_int64, c_int, c_void_p, c_int64,
    ],
    "mmaemu_transpose": [c_void_p, c_int64, c_int64, c_int64, c_void_p],
    "mmaemu_not_finite": [c_void_p, c_int64, c_int64, c_int64, c_int, c_void_p, c_void_p],
    "mmaemu_epilogue": [
        c_void_p, c_int64, c_int64, c_int64, c_int, c_void_p, c_int64, c_void_p, c_int64, c_int, c_void_p, c_void_p,
        c_int, c_int, c_uint32, c_void_p, c_int64,
    ],
}  # fmt: skip

_ANSWERS = ("mmaemu_has", "mmaemu_fp8_sum")


@cache
def load() -> ctypes.CDLL | None:
    """The library, or None where it was not built or does not fit this machine; `why_missing` says which."""
    if not FILE.exists():
        return None
    try:
        library = ctypes.CDLL(str(FILE))
        for name, arguments in _ARGUMENTS.items():
            getattr(library, name).argtypes = arguments
            getattr(library, name).restype = c_int if name in _ANSWERS else None
    except (OSError, AttributeError):
        return None
    return library


def why_missing() -> str:
    """What to do where `load` returns None."""
    if FILE.exists():
        return f"{FILE.name} does not load here; reinstall mmaemu with a C++ compiler on the PATH, or delete the file"
    return "not compiled: install a C++ compiler (Debian: apt-get install g++), then pip install mmaemu again"


@cache
def fastest() -> str:
    """The name of the quickest kernel of this processor."""
    library = load()
    assert library is not None
    return next(name for name in ("avx2", "plain") if library.mmaemu_has(KERNELS[name]))


def address(array: AnyBits | np.ndarray[tuple[int, ...], np.dtype[np.generic]] | None) -> int | None:
    return None if array is None else array.ctypes.data
