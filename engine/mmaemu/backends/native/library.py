# SPDX-License-Identifier: Apache-2.0
"""The compiled kernels: found beside this file, spoken to through ctypes, which lets go of the interpreter lock.

A C interface and not a Python extension, so that one library serves every version of Python and a wheel is bound to a
platform alone.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mmaemu.backends import structures
from mmaemu.backends.structures import Output, Rule
from mmaemu.profiles.instruction import StepRule

FILE = Path(os.environ.get("MMAEMU_KERNELS") or Path(__file__).with_name("kernels.so"))
"""MMAEMU_KERNELS names another build of the library: those that `make sanitize` and `make avx512` make."""

KERNELS = {"general": 0, "plain": 1, "avx2": 2, "avx512": 3}
"""general runs every rule of every instruction; the others fp8 by the rule of Ada and Hopper, the fastest last."""


@cache
def rule_of(rule: StepRule) -> Rule:
    order = structures.order_of(rule)
    found = structures.rule_of(rule, address(order))
    found.memory = order  # it lives as long as what points to it
    return found


_FLOATS = [c_void_p, c_int64]  # where numbers begin, and how far apart rows or numbers are
_WORDS = [c_void_p, c_int64, c_int64, c_int]  # where words begin, two steps in bytes, and their format
_ARGUMENTS = {
    "mmaemu_has": [c_int],
    "mmaemu_sum": [
        c_int, *_WORDS, *_WORDS, c_int64, c_int64, POINTER(Rule), c_int64, c_void_p, *_FLOATS, *_FLOATS,
        c_int, *_FLOATS,
    ],
    "mmaemu_dot": [
        c_void_p, c_int, c_void_p, c_int, c_void_p, c_void_p, c_int, c_int64, c_int64, POINTER(Rule),
    ],
    "mmaemu_reduce": [
        *_FLOATS, c_int64, c_int64, c_int64, c_int, c_int, *_FLOATS, *_FLOATS, POINTER(Output),
    ],
    "mmaemu_epilogue": [
        *_FLOATS, c_int64, c_int64, c_int, *_FLOATS, *_FLOATS, c_int, c_void_p, c_void_p, POINTER(Output), *_FLOATS,
    ],
    "mmaemu_not_finite": [c_void_p, c_int64, c_int64, c_int64, c_int64, c_int, c_void_p],
}  # fmt: skip

_NO_MEMORY = 2
_CHECKED = ("mmaemu_sum", "mmaemu_dot")
_ANSWERS = (*_CHECKED, "mmaemu_has", "mmaemu_not_finite")


@cache
def load() -> ctypes.CDLL | None:
    """The library, or None where it was not built or does not fit this machine; `why_missing` says which."""
    if not FILE.exists():
        return None
    try:
        library = ctypes.CDLL(str(FILE))
        for name, arguments in _ARGUMENTS.items():
            function = getattr(library, name)
            function.argtypes = arguments
            function.restype = c_int if name in _ANSWERS else None
            if name in _CHECKED:
                function.errcheck = _check
    except (OSError, AttributeError):
        return None
    return library


def found() -> ctypes.CDLL:
    """`load` where a caller knows that the library is there."""
    library = load()
    assert library is not None, why_missing()
    return library


def why_missing() -> str:
    """What to do where `load` returns None."""
    if FILE.exists():
        return f"{FILE.name} does not load here; reinstall mmaemu with a C++ compiler on the PATH, or delete the file"
    return "not compiled: install a C++ compiler (Debian: apt-get install g++), then pip install mmaemu again"


def has(kernel: str) -> bool:
    """Whether this processor runs it."""
    return bool(found().mmaemu_has(KERNELS[kernel]))


@cache
def fastest() -> str:
    """The name of the quickest kernel of this processor."""
    return next(filter(has, reversed(KERNELS)))


def address(array: np.ndarray[Any, Any] | None) -> int | None:
    return None if array is None else array.ctypes.data


def _check(status: int, function: Any, arguments: tuple[Any, ...]) -> int:
    if status == _NO_MEMORY:
        raise MemoryError("the compiled kernels' working memory")
    assert status == 0, "callers ask mmaemu_has first"
    return status
