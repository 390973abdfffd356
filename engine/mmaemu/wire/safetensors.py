# SPDX-License-Identifier: Apache-2.0
"""safetensors files as bit views: an 8-byte length, a JSON header, and the tensors' bytes without gaps.

The numpy binding of the safetensors package has no fp8 and no bfloat16, and neither torch nor it may be needed by a
thin client; so this small reader and writer keep words as they are. The reader is strict: what two readers could
understand differently is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from mmaemu.bits import Bits
from mmaemu.errors import InvalidInputError
from mmaemu.model import formats
from mmaemu.model.formats import Format
from mmaemu.wire import strict_json
from mmaemu.wire.strict_json import describe, wrong

MAX_HEADER_BYTES = 1 << 20
MAX_RANK = 8
MAX_TENSOR_BYTES = 1 << 60

FORMATS: dict[str, Format] = {
    "F8_E4M3": formats.E4M3,
    "F8_E5M2": formats.E5M2,
    "F16": formats.F16,
    "BF16": formats.BF16,
    "F32": formats.F32,
}
"""Data types of the wire, by safetensors' names. tf32 operands travel as F32 words."""

NAMES = {fmt.torch_name: name for name, fmt in FORMATS.items()}


@dataclass(frozen=True)
class _Entry:
    name: str
    fmt: Format
    shape: tuple[int, ...]
    start: int
    stop: int


def read_safetensors(data: bytes | bytearray | memoryview) -> tuple[dict[str, Bits], dict[str, str]]:
    """The tensors and the metadata of a file, in the header's order.

    Tensors are read-only views of `data`; only one that lies unaligned for its words is copied. WireFormatError names
    the tensor and what is wrong with it.
    """
    view = memoryview(data).cast("B")
    header, body = _header(view)
    metadata = _metadata(header.pop("__metadata__", {}))
    entries = [_entry(name, fields) for name, fields in header.items()]
    _check_offsets(entries, len(body))
    return {entry.name: _tensor(entry, body) for entry in entries}, metadata


def write_safetensors(tensors: Mapping[str, Bits], metadata: Mapping[str, str]) -> bytes:
    """The file that holds `tensors` row-major, whatever their strides, and `metadata`. Same input, same bytes."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    parts: list[bytes] = []
    position = 0
    # Wide words first: each tensor then starts aligned to its words, as the format asks of writers.
    for name, bits in sorted(tensors.items(), key=lambda item: -item[1].array.itemsize):
        if bits.dtype not in NAMES:
            raise InvalidInputError.because(name, got=bits.dtype, wanted=f"one of {', '.join(NAMES)}")
        raw = np.ascontiguousarray(bits.array).astype(bits.array.dtype.newbyteorder("<"), copy=False).tobytes()
        header[name] = {
            "dtype": NAMES[bits.dtype],
            "shape": list(bits.shape),
            "data_offsets": [position, position + len(raw)],
        }
        parts.append(raw)
        position += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise InvalidInputError.because("metadata", got=f"{len(text)} bytes", wanted=f"at most {MAX_HEADER_BYTES}")
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def _header(view: memoryview) -> tuple[dict[str, Any], memoryview]:
    if len(view) < 8:
        raise wrong("header", f"{len(view)} bytes in all", "a safetensors file: at least 8 bytes")
    length = int.from_bytes(view[:8], "little")
    if length > MAX_HEADER_BYTES:
        hint = "Is this a safetensors file? Its first 8 bytes are the header's length."
        raise wrong("header", f"a header of {length} bytes", f"at most {MAX_HEADER_BYTES}", hint)
    if 8 + length > len(view):
        raise wrong("header", f"{len(view) - 8} bytes after the length", f"a header of {length} bytes")
    text = view[8 : 8 + length]
    if bytes(text[:1]) != b"{":
        raise wrong("header", "no JSON object", "a JSON object that starts with its brace")
    header = strict_json.loads(text, "header")
    assert isinstance(header, dict), "JSON that starts with a brace is an object"
    return header, view[8 + length :]


def _metadata(found: Any) -> dict[str, str]:
    if not isinstance(found, dict):
        raise wrong("__metadata__", describe(found), "an object of strings")
    for name, text in found.items():
        if not isinstance(text, str):
            raise wrong(f"__metadata__.{name[:60]}", describe(text), "a string")
    return found


def _entry(name: str, fields: Any) -> _Entry:
    if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
        got = "members " + ", ".join(sorted(fields))[:80] if isinstance(fields, dict) else describe(fields)
        raise wrong(name[:60], got, "an object with dtype, shape and data_offsets")
    field = name[:60]
    dtype = fields["dtype"]
    fmt = FORMATS.get(dtype) if isinstance(dtype, str) else None
    if fmt is None:
        raise wrong(f"{field}.dtype", describe(dtype), f"one of {', '.join(FORMATS)}")
    shape = read_shape(fields["shape"], field, fmt)
    offsets = fields["data_offsets"]
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(is_size(offset) for offset in offsets):
        raise wrong(f"{field}.data_offsets", describe(offsets), "two offsets, [start, stop]")
    start, stop = offsets
    length = prod(shape) * fmt.itemsize
    if stop - start != length:
        wanted = f"{length}, for shape {list(shape)} of {dtype}"
        raise wrong(f"{field}.data_offsets", f"{stop - start} bytes", wanted)
    return _Entry(name, fmt, shape, start, stop)


def read_shape(found: Any, field: str, fmt: Format) -> tuple[int, ...]:
    """The shape that a header or a JSON tensor names, small enough for arithmetic on it to be safe."""
    if not isinstance(found, list) or len(found) > MAX_RANK or not all(is_size(size) for size in found):
        raise wrong(f"{field}.shape", describe(found), f"a list of at most {MAX_RANK} sizes")
    if prod(max(size, 1) for size in found) * fmt.itemsize > MAX_TENSOR_BYTES:
        raise wrong(f"{field}.shape", "a product of sizes beyond 2^60 bytes", "the shape of a tensor that can exist")
    return tuple(found)


def is_size(value: Any) -> bool:
    return type(value) is int and value >= 0


def _check_offsets(entries: list[_Entry], length: int) -> None:
    """Together the tensors cover the data once: no gap, no overlap, nothing after the last."""
    position = 0
    for entry in sorted(entries, key=lambda entry: (entry.start, entry.stop)):
        if entry.start != position:
            got = f"start {entry.start}, which {'overlaps' if entry.start < position else 'leaves a gap after'} "
            before = f"the tensor before it, that ends at {position}" if position else "the beginning, 0"
            raise wrong(f"{entry.name[:60]}.data_offsets", got + before, f"start {position}")
        position = entry.stop
        if position > length:
            got = f"stop {position} in {length} bytes of data"
            raise wrong(f"{entry.name[:60]}.data_offsets", got, "data that is there", "Is the file truncated?")
    if position != length:
        raise wrong("data", f"{length - position} bytes after the last tensor", "none")


def _tensor(entry: _Entry, body: memoryview) -> Bits:
    little = entry.fmt.storage.newbyteorder("<")
    words = np.frombuffer(body[entry.start : entry.stop], little).reshape(entry.shape)
    if not words.flags.aligned:
        words = words.copy()
    return Bits(entry.fmt.torch_name, words.astype(entry.fmt.storage, copy=False))
