# SPDX-License-Identifier: Apache-2.0
"""Calls and replies as a whole: which tensors and options an operation has, and both forms of each.

In safetensors the options are one JSON object in `__metadata__["mmaemu"]`, and so is a reply's info. In JSON, tensors
and options stand side by side in one object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mmaemu.bits import Bits
from mmaemu.errors import InvalidInputError
from mmaemu.wire import strict_json
from mmaemu.wire.json_tensors import FORMS, Form, tensor_from_json, tensor_to_json
from mmaemu.wire.safetensors import read_safetensors, write_safetensors
from mmaemu.wire.strict_json import describe, wrong

CONTENT_TYPE = "application/vnd.safetensors"
JSON_TYPE = "application/json"

_METADATA = "mmaemu"


@dataclass(frozen=True)
class Operation:
    """What one operation takes and returns, by name."""

    tensors: tuple[str, ...]
    options: tuple[str, ...]
    results: tuple[str, ...]


_GEMM_TENSORS = ("a", "b", "b_t", "scale_a", "scale_b", "bias", "scale_result")
_GEMM_OPTIONS = ("out_dtype", "use_fast_accum", "profile", "overrides", "splitk", "backend", "strides")

OPERATIONS: dict[str, Operation] = {
    "scaled_mm": Operation(_GEMM_TENSORS, _GEMM_OPTIONS, ("out",)),
    "accumulate": Operation(("a", "b", "b_t", "scale_a", "scale_b"), _GEMM_OPTIONS, ("out",)),
    "mma": Operation(("a", "b", "c"), ("preset", "fmt_a", "fmt_b", "acc", "backend"), ("d",)),
    "explain": Operation(_GEMM_TENSORS, (*_GEMM_OPTIONS, "cells", "specs"), ()),
}

_RESULTS = frozenset(name for operation in OPERATIONS.values() for name in operation.results)


@dataclass(frozen=True)
class Call:
    """One call: its operation, tensors and options, not looked at beyond their names."""

    op: str
    tensors: dict[str, Bits]
    options: dict[str, Any] = field(default_factory=dict)
    form: Form = "bits"
    """The form in which tensor `a` came, where the call came as JSON: its reply follows."""


@dataclass(frozen=True)
class Reply:
    """Result tensors, and what computed them. The reply of explain is info alone: the trace."""

    tensors: dict[str, Bits]
    info: dict[str, Any] = field(default_factory=dict)


def call_from_safetensors(op: str, data: bytes | bytearray | memoryview) -> Call:
    """The call in a safetensors file; tensors are views of `data`. Metadata of other programs is passed over."""
    known = _operation(op)
    tensors, metadata = read_safetensors(data)
    options = _options(metadata)
    _check_names(tensors, known.tensors, "tensor", op)
    _check_names(options, known.options, "option", op)
    return Call(op, tensors, options)


def call_to_safetensors(call: Call) -> bytes:
    """The file that `call_from_safetensors` reads as this call."""
    return write_safetensors(call.tensors, {_METADATA: _dumps(call.options)})


def call_from_json(op: str, data: bytes | bytearray | memoryview) -> Call:
    """The call in a JSON object: members that are tensors of the operation, and members that are options of it."""
    known = _operation(op)
    found = _json_object(data)
    _check_names(found, (*known.tensors, *known.options), "tensor or option", op)
    tensors = {name: tensor_from_json(value, name) for name, value in found.items() if name in known.tensors}
    options = {name: value for name, value in found.items() if name in known.options}
    a = found.get("a")
    form: Form = next((form for form in FORMS if isinstance(a, dict) and form in a), "bits")
    return Call(op, tensors, options, form)


def call_to_json(call: Call, form: Form | None = None) -> bytes:
    """The JSON that `call_from_json` reads as this call, its tensors in `form` (the call's own by default)."""
    tensors = {name: tensor_to_json(bits, form or call.form) for name, bits in call.tensors.items()}
    return _dumps({**tensors, **call.options}).encode("ascii")


def reply_from_safetensors(data: bytes | bytearray | memoryview) -> Reply:
    """The reply in a safetensors file; tensors are views of `data`."""
    tensors, metadata = read_safetensors(data)
    return Reply(tensors, _options(metadata))


def reply_to_safetensors(reply: Reply) -> bytes:
    """The file that `reply_from_safetensors` reads as this reply."""
    return write_safetensors(reply.tensors, {_METADATA: _dumps(reply.info)})


def reply_from_json(data: bytes | bytearray | memoryview) -> Reply:
    """The reply in a JSON object: the result tensors by their names, and everything else as info."""
    found = _json_object(data)
    tensors = {name: tensor_from_json(value, name) for name, value in found.items() if name in _RESULTS}
    return Reply(tensors, {name: value for name, value in found.items() if name not in _RESULTS})


def reply_to_json(reply: Reply, form: Form = "bits") -> bytes:
    """The JSON that `reply_from_json` reads as this reply."""
    tensors = {name: tensor_to_json(bits, form) for name, bits in reply.tensors.items()}
    return _dumps({**tensors, **reply.info}).encode("ascii")


def _operation(op: str) -> Operation:
    if op not in OPERATIONS:
        raise InvalidInputError.because("op", got=describe(op), wanted=f"one of {', '.join(OPERATIONS)}")
    return OPERATIONS[op]


def _check_names(found: Iterable[str], known: tuple[str, ...], kind: str, op: str) -> None:
    for name in found:
        if name not in known:
            raise InvalidInputError.because(
                name[:60], got=f"the unknown {kind} {name[:60]!r}", wanted=f"for {op} one of {', '.join(known)}"
            )


def _options(metadata: Mapping[str, str]) -> dict[str, Any]:
    where = f"__metadata__.{_METADATA}"
    options = strict_json.loads(metadata.get(_METADATA, "{}").encode("utf-8", "replace"), where)
    if not isinstance(options, dict):
        raise wrong(where, describe(options), "a JSON object of options")
    return options


def _json_object(data: bytes | bytearray | memoryview) -> dict[str, Any]:
    found = strict_json.loads(data, "body")
    if not isinstance(found, dict):
        raise wrong("body", describe(found), "a JSON object")
    return found


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
