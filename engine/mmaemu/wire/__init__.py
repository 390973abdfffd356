# SPDX-License-Identifier: Apache-2.0
"""The wire: a call or a reply as one safetensors file, or as one JSON object.

The client, the service and the command line share it. Everything read is checked before it is used; what is malformed
raises WireFormatError, an unknown name InvalidInputError.
"""

from __future__ import annotations

from mmaemu.wire.json_tensors import FORMS, Form, tensor_from_json, tensor_to_json
from mmaemu.wire.messages import (
    CONTENT_TYPE,
    JSON_TYPE,
    OPERATIONS,
    Call,
    Operation,
    Reply,
    call_from_json,
    call_from_safetensors,
    call_to_json,
    call_to_safetensors,
    reply_from_json,
    reply_from_safetensors,
    reply_to_json,
    reply_to_safetensors,
)
from mmaemu.wire.safetensors import read_safetensors, write_safetensors

__all__ = [
    "CONTENT_TYPE",
    "Call",
    "FORMS",
    "Form",
    "JSON_TYPE",
    "OPERATIONS",
    "Operation",
    "Reply",
    "call_from_json",
    "call_from_safetensors",
    "call_to_json",
    "call_to_safetensors",
    "read_safetensors",
    "reply_from_json",
    "reply_from_safetensors",
    "reply_to_json",
    "reply_to_safetensors",
    "tensor_from_json",
    "tensor_to_json",
    "write_safetensors",
]
