# SPDX-License-Identifier: Apache-2.0
"""One tensor as JSON: {"dtype", "shape", and exactly one of "bits", "b64", "values"}.

bits: hexadecimal words of the format's full width, "38" for fp8, "3F800000" for float32; b64: little-endian bytes;
values: numbers, and "NaN", "Infinity", "-Infinity" as strings, rounded to nearest even.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from math import prod
from typing import Any, Literal, get_args

import numpy as np

from mmaemu.bits import Bits
from mmaemu.model import decode, formats, rounding
from mmaemu.model.formats import AnyBits, Format
from mmaemu.wire.safetensors import NAMES, read_shape
from mmaemu.wire.strict_json import describe, wrong

Form = Literal["bits", "b64", "values"]
FORMS: tuple[Form, ...] = get_args(Form)

_SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def tensor_from_json(obj: Any, field: str) -> Bits:
    """The tensor that `obj` describes. WireFormatError names `field` and the member that is wrong."""
    if not isinstance(obj, dict):
        raise wrong(field, describe(obj), "an object with dtype, shape and one of bits, b64, values")
    forms = [form for form in FORMS if form in obj]
    unknown = sorted(set(obj) - {"dtype", "shape", *FORMS})
    if unknown or len(forms) != 1:
        got = f"member {unknown[0][:60]!r}" if unknown else f"{', '.join(forms) or 'none'} of bits, b64, values"
        raise wrong(field, got, "dtype, shape and exactly one of bits, b64, values")
    fmt = _format(obj.get("dtype"), field)
    shape = read_shape(obj.get("shape"), field, fmt)
    form = forms[0]
    words = {"bits": _from_bits, "b64": _from_b64, "values": _from_values}[form](
        obj[form], shape, fmt, f"{field}.{form}"
    )
    return Bits(fmt.torch_name, words.reshape(shape))


def tensor_to_json(bits: Bits, form: Form = "bits") -> dict[str, Any]:
    """`bits` as such an object. Only "values" loses something: which NaN a NaN was."""
    fmt = formats.get(bits.dtype)
    words = np.ascontiguousarray(bits.array).reshape(bits.shape)
    if form == "b64":
        data: Any = base64.b64encode(words.astype(words.dtype.newbyteorder("<"), copy=False).tobytes()).decode("ascii")
    else:
        flat = _to_hex(words) if form == "bits" else _to_values(words, fmt)
        data = _nested(iter(flat), bits.shape)
    return {"dtype": bits.dtype, "shape": list(bits.shape), form: data}


def _format(name: Any, field: str) -> Format:
    found = next((fmt for fmt in formats.ALL if name in (fmt.name, fmt.torch_name)), None)
    if found is None or found.torch_name not in NAMES:
        raise wrong(f"{field}.dtype", describe(name), f"one of {', '.join(NAMES)}")
    return found


def _from_bits(data: Any, shape: tuple[int, ...], fmt: Format, field: str) -> AnyBits:
    words = data.split() if isinstance(data, str) else _flat(data, shape, field)
    _check_count(len(words), shape, field)
    digits = 2 * fmt.itemsize
    for word in words:
        if not isinstance(word, str) or len(word) != digits or not word.isascii() or not word.isalnum():
            raise wrong(field, describe(word), f"words of {digits} hexadecimal digits")
    try:
        raw = bytes.fromhex("".join(words))
    except ValueError:
        raise wrong(field, "a letter that is no hexadecimal digit", f"words of {digits} hexadecimal digits") from None
    return np.frombuffer(raw, fmt.storage.newbyteorder(">")).astype(fmt.storage)


def _from_b64(data: Any, shape: tuple[int, ...], fmt: Format, field: str) -> AnyBits:
    if not isinstance(data, str):
        raise wrong(field, describe(data), "a string of base64")
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise wrong(field, "characters or padding that are not base64", "base64 of the little-endian bytes") from None
    length = prod(shape) * fmt.itemsize
    if len(raw) != length:
        raise wrong(field, f"{len(raw)} bytes", f"{length}, for shape {list(shape)} of {fmt.torch_name}")
    return np.frombuffer(raw, fmt.storage.newbyteorder("<")).astype(fmt.storage)


def _from_values(data: Any, shape: tuple[int, ...], fmt: Format, field: str) -> AnyBits:
    found = _flat(data, shape, field)
    _check_count(len(found), shape, field)
    numbers = np.fromiter((_number(value, field) for value in found), np.float64, len(found))
    words = _round(numbers, fmt)
    finite = np.isfinite(numbers)
    lost = finite & ((words & (fmt.sign_bit - 1)) > fmt.max_finite)
    if fmt.infinity is None:
        lost |= np.isinf(numbers)
    if lost.any():
        largest = next(_to_values(np.array([fmt.max_finite], fmt.storage), fmt))
        got = repr(float(numbers[lost][0]))
        raise wrong(field, got, f"numbers up to {largest:g} in magnitude, what {fmt.torch_name} holds")
    return words


def _number(value: Any, field: str) -> float:
    if isinstance(value, str) and value in _SPECIAL:
        return _SPECIAL[value]
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong(field, describe(value), "numbers, or the strings NaN, Infinity, -Infinity")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if np.isinf(number):
        raise wrong(field, "a number beyond the range of a double", 'numbers, or the string "Infinity"')
    return number


def _round(numbers: np.ndarray[Any, np.dtype[np.float64]], fmt: Format) -> AnyBits:
    """Nearest even; NaN is the format's one NaN; a finite number too large gives a code above the largest finite."""
    fraction, exponent = np.frexp(np.where(np.isfinite(numbers), numbers, 0.0))
    magnitude = np.abs(np.ldexp(fraction, 53)).astype(np.int64)
    overflow: rounding.Overflow = "nan" if fmt.infinity is None else "infinity"
    negative = np.signbit(numbers)
    words = rounding.pack(negative, magnitude, exponent.astype(np.int64) - 53, fmt, "RNE", overflow)
    code = fmt.storage.type
    if fmt.infinity is not None:
        infinite = np.where(negative, code(fmt.infinity | fmt.sign_bit), code(fmt.infinity))
        words = np.where(np.isinf(numbers), infinite, words)
    return np.where(np.isnan(numbers), code(fmt.canonical_nan), words)


def _to_hex(words: AnyBits) -> list[str]:
    digits = 2 * words.itemsize
    text = words.astype(words.dtype.newbyteorder(">"), copy=False).tobytes().hex().upper()
    return [text[start : start + digits] for start in range(0, len(text), digits)]


def _to_values(words: AnyBits, fmt: Format) -> Iterator[float | str]:
    flat = decode.decode(words.reshape(-1), fmt)
    # Exact: the widest magnitude has 24 bits and a double reaches far below the smallest exponent.
    numbers = np.ldexp(flat.magnitude.astype(np.float64), flat.exponent - flat.fraction_bits) * flat.sign
    for number, sign, kind in zip(numbers.tolist(), flat.sign.tolist(), flat.kinds.tolist(), strict=True):
        if kind == decode.NAN:
            yield "NaN"
        elif kind == decode.INFINITE:
            yield "Infinity" if sign > 0 else "-Infinity"
        else:
            yield number


def _nested(items: Iterator[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return next(items)
    if 0 in shape:
        return []  # a shape of [2^40, 0] must not become 2^40 empty lists
    return [_nested(items, shape[1:]) for _ in range(shape[0])]


def _flat(data: Any, shape: tuple[int, ...], field: str) -> list[Any]:
    """The elements of a flat list, or of lists nested as `shape` says; a tensor without dimensions may stand alone."""
    if not isinstance(data, list):
        if shape == ():
            return [data]
        raise wrong(field, describe(data), f"a list of {prod(shape)} elements, flat or nested as {list(shape)}")
    if not any(isinstance(item, list) for item in data):
        return data
    level, depth = data, 1
    for size in shape[1:]:
        if not all(isinstance(item, list) and len(item) == size for item in level):
            break
        level, depth = [element for item in level for element in item], depth + 1
    if depth != len(shape) or len(data) != shape[0] or any(isinstance(item, list) for item in level):
        raise wrong(field, "lists nested in another way", f"a flat list, or lists nested as {list(shape)}")
    return level


def _check_count(count: int, shape: tuple[int, ...], field: str) -> None:
    if count != prod(shape):
        raise wrong(field, f"{count} elements", f"{prod(shape)}, for shape {list(shape)}")
