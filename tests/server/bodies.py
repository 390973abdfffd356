# SPDX-License-Identifier: Apache-2.0
"""Calls for the tests of the service, and what a problem has to look like."""

from __future__ import annotations

from typing import Any

import numpy as np

from mmaemu import Bits, wire
from mmaemu.wire import CONTENT_TYPE, JSON_TYPE, Call
from mmaemu_server import problems

M, N, K = 3, 32, 160
HALF = Bits("float32", np.array(0x3F000000, np.uint32))


def fp8(*shape: int, seed: int = 0) -> Bits:
    return Bits("float8_e4m3fn", np.random.default_rng(seed).integers(0, 256, shape, np.uint8))


def product(m: int = M, n: int = N, k: int = K, op: str = "scaled_mm", **options: Any) -> Call:
    tensors = {"a": fp8(m, k), "b_t": fp8(n, k, seed=1), "scale_a": HALF, "scale_b": HALF}
    return Call(op, tensors, {"out_dtype": "float32", **options})


def changed(call: Call, **tensors: Bits | None) -> Call:
    """The call with some tensors replaced, or left out."""
    kept = {name: bits for name, bits in {**call.tensors, **tensors}.items() if bits is not None}
    return Call(call.op, kept, call.options)


def mma(**options: Any) -> Call:
    c = Bits("float32", np.zeros(5, np.uint32))
    return Call("mma", {"a": fp8(5, 32), "b": fp8(5, 32, seed=1), "c": c}, {"preset": "hopper-wgmma", **options})


def post(client: Any, call: Call, kind: str = CONTENT_TYPE, **headers: str) -> Any:
    body = wire.call_to_json(call) if kind == JSON_TYPE else wire.call_to_safetensors(call)
    return post_raw(client, call.op, body, kind, **headers)


def post_raw(client: Any, op: str, body: Any, kind: str = CONTENT_TYPE, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(f"/v1/{op}", content=body, headers={"Content-Type": kind, **named})


def out(reply: Any, name: str = "out") -> Bits:
    assert reply.status_code == 200, reply.text
    if reply.headers["content-type"] == JSON_TYPE:
        return wire.reply_from_json(reply.content).tensors[name]
    return wire.reply_from_safetensors(reply.content).tensors[name]


def problem(reply: Any, status: int, code: str, field: str = "") -> dict[str, Any]:
    """The problem that `reply` is, checked against the contract of all of them."""
    assert reply.status_code == status, reply.text[:500]
    assert reply.headers["content-type"] == problems.CONTENT_TYPE
    found: dict[str, Any] = reply.json()
    assert found["type"] == f"urn:mmaemu:problem:{code}", found
    assert found["title"] and found["status"] == status and found["detail"]
    assert set(found) <= {"type", "title", "status", "detail", "field", "got", "wanted", "hint"}
    assert len(reply.content) < 4096 and "Traceback" not in reply.text
    if field:
        assert found["field"] == field, found
    if status in (429, 503):
        assert int(reply.headers["retry-after"]) >= 1
    return found
