# SPDX-License-Identifier: Apache-2.0
"""Comparing bits, for tests of mmaemu and for tests that use it as their oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from mmaemu import tensors
from mmaemu.errors import InvalidInputError, MmaemuError
from mmaemu.model import formats
from mmaemu.model.decode import NAN, decode
from mmaemu.model.formats import AnyBits, Format

_SHOWN = 5
_LONGEST_CELL, _TAIL = 40, 8


def assert_bitwise_equal(
    actual: Any, expected: Any, nan: Literal["bits", "mask"] = "bits", *, call: Mapping[str, Any] | None = None
) -> None:
    """Raise AssertionError unless both hold the same bit patterns: +0 is not -0, and NaN payloads count.

    nan="mask": NaN may meet any NaN, for references that do not canonicalise NaN; say in a comment which one it is.
    actual, expected: torch tensors, numpy arrays (also of plain unsigned words) or Bits, of one dtype and shape. The
    message gives the first differing coordinates, both words and the distance in units of the last place, and the
    `explain` call that shows how mmaemu comes to its word. call: the arguments of `mmaemu.scaled_mm` by name; that call
    is then spelled out, and its explanation of the first coordinate is part of the message.
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
        raise AssertionError(_report(got, want, differs, got_dtype, fmt, call))


def _report(
    got: AnyBits, want: AnyBits, differs: Any, dtype: str, fmt: Format | None, call: Mapping[str, Any] | None
) -> str:
    lines = [f"{int(differs.sum())} of {differs.size} {dtype} words differ"]
    digits = got.itemsize * 2
    for coordinate in np.argwhere(differs)[:_SHOWN]:
        at = tuple(int(i) for i in coordinate)
        line = f"  {at}: actual 0x{int(got[at]):0{digits}X}, expected 0x{int(want[at]):0{digits}X}"
        if fmt is not None:
            line += f", {_distance(int(got[at]), int(want[at]), fmt)}"
        lines.append(line)
    if len(np.argwhere(differs)) > _SHOWN:
        lines.append("  ...")
    if got.ndim == 2:
        at = tuple(int(i) for i in np.argwhere(differs)[0])
        lines.append(f"To see why: print(mmaemu.explain({_arguments(call)}cells=[{at}]))")
        lines += _explanation(call, at)
    return "\n".join(lines)


def _distance(one: int, other: int, fmt: Format) -> str:
    """Infinity is one past the largest number; a NaN is nowhere on the line."""
    kinds = decode(np.array([one, other], fmt.storage), fmt).kinds
    if NAN in kinds:
        return "both NaN" if (kinds == NAN).all() else "one of them NaN"
    return f"{abs(_rank(one, fmt) - _rank(other, fmt))} ulp apart"


def _arguments(call: Mapping[str, Any] | None) -> str:
    """The arguments as a caller would write them: tensors by their names, options by their values."""
    if call is None:
        return "..., "
    parts = []
    for name, value in call.items():
        plain = value is None or isinstance(value, str | bool | int | tuple)
        named = getattr(value, "name", None) if name == "profile" else None
        shown = repr(named) if isinstance(named, str) else repr(value) if plain or name == "out_dtype" else name
        parts.append(f"{name}={shown}")
    return ", ".join(parts) + ", "


def _explanation(call: Mapping[str, Any] | None, at: tuple[int, ...]) -> list[str]:
    """The cell's part of the explanation, shortened; a call that cannot be explained says why."""
    if call is None:
        return []
    from mmaemu.trace import explain

    known = {name: value for name, value in call.items() if name not in ("out", "threads", "progress")}
    try:
        text = str(explain(**known, cells=[at]))
    except (MmaemuError, TypeError) as error:
        return [f"That call has no explanation: {error}"]
    cell = text[text.index("cell (") :].splitlines()
    if len(cell) > _LONGEST_CELL:
        cell = [*cell[: _LONGEST_CELL - _TAIL], "  ...", *cell[-_TAIL:]]
    return ["", *cell]


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
