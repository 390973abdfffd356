# SPDX-License-Identifier: Apache-2.0
"""Comparing bits, for tests of mmaemu and for tests that use it as their oracle."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from mmaemu import tensors
from mmaemu.errors import InvalidInputError
from mmaemu.model import formats
from mmaemu.model.decode import NAN, decode
from mmaemu.model.formats import AnyBits, Format

_SHOWN = 5


def assert_bitwise_equal(actual: Any, expected: Any, nan: Literal["bits", "mask"] = "bits") -> None:
    """Raise AssertionError unless both hold the same bit patterns: +0 is not -0, and NaN payloads count.

    nan="mask": NaN may meet any NaN, for references that do not canonicalise NaN; say in a comment which one it is.
    actual, expected: torch tensors, numpy arrays (also of plain unsigned words) or Bits, of one dtype and shape. The
    message gives the first differing coordinates, both words and the distance in units of the last place.
    """
    if nan not in ("bits", "mask"):
        raise InvalidInputError.because("nan", got=repr(nan)[:80], wanted="'bits' or 'mask'")
    got, got_dtype = _words(actual, "actual")
    want, want_dtype = _words(expected, "expected")
    if got_dtype != want_dtype:
        raise AssertionError(f"dtypes differ: actual {got_dtype}, expected {want_dtype}")
    if got.shape != want.shape:
        raise AssertionError(f"shapes differ: actual {got.shape}, expected {want.shape}")
    fmt = _format(got_dtype)
    if nan == "mask" and fmt is None:
        raise InvalidInputError.because("nan", got=f"'mask' with {got_dtype}", wanted="a floating-point dtype")
    differs = got != want
    if nan == "mask" and fmt is not None:
        both_nan = (decode(got, fmt).kinds == NAN) & (decode(want, fmt).kinds == NAN)
        differs &= ~both_nan
    if differs.any():
        raise AssertionError(_report(got, want, differs, got_dtype, fmt))


def _report(got: AnyBits, want: AnyBits, differs: Any, dtype: str, fmt: Format | None) -> str:
    lines = [f"{int(differs.sum())} of {differs.size} {dtype} words differ"]
    digits = got.itemsize * 2
    for coordinate in np.argwhere(differs)[:_SHOWN]:
        at = tuple(int(i) for i in coordinate)
        line = f"  {at}: actual 0x{int(got[at]):0{digits}X}, expected 0x{int(want[at]):0{digits}X}"
        if fmt is not None:
            line += f", {abs(_rank(int(got[at]), fmt) - _rank(int(want[at]), fmt))} ulp apart"
        lines.append(line)
    if len(np.argwhere(differs)) > _SHOWN:
        lines.append("  ...")
    if got.ndim == 2:
        at = tuple(int(i) for i in np.argwhere(differs)[0])
        lines.append(f"To see why: print(mmaemu.explain(..., cells=[{at}])) with the arguments of the call.")
    return "\n".join(lines)


def _rank(word: int, fmt: Format) -> int:
    """Position on the number line, so that neighbours differ by one."""
    magnitude = (word & (fmt.sign_bit - 1)) >> fmt.ignored_low_bits
    return -magnitude if word & fmt.sign_bit else magnitude


def _words(value: Any, field: str) -> tuple[AnyBits, str]:
    if isinstance(value, np.ndarray | np.generic) and np.asarray(value).dtype.kind == "u":
        array: AnyBits = np.asarray(value)
        return array, array.dtype.name
    operand = tensors.read(value, field)
    if operand.bits is None:
        wanted = "one of " + ", ".join(fmt.torch_name for fmt in formats.ALL)
        raise InvalidInputError.because(field, got=operand.dtype, wanted=wanted)
    return operand.bits, operand.dtype


def _format(dtype: str) -> Format | None:
    return next((fmt for fmt in formats.ALL if fmt.torch_name == dtype), None)
