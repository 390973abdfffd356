# SPDX-License-Identifier: Apache-2.0
"""Whole calls and replies: both forms carry the same, and unknown names are told from known ones."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mmaemu import Bits, wire
from mmaemu.errors import InvalidInputError, WireFormatError
from mmaemu.testing import assert_bitwise_equal
from mmaemu.wire import Call, Reply

A = Bits("float8_e4m3fn", np.arange(32, dtype=np.uint8).reshape(2, 16))
SCALE = Bits("float32", np.array(0x7FC00001, np.uint32))
CALL = Call(
    "scaled_mm",
    {"a": A, "b_t": A, "scale_a": SCALE, "scale_b": SCALE},
    {"out_dtype": "bfloat16", "splitk": [2, "inplace"], "strides": {"a": [16, 1]}, "overrides": {"gemm.k_tile": 32}},
)
REPLY = Reply({"out": SCALE}, {"engine_version": "9", "profile": "h200", "profile_digest": "00"})


def same(found, wanted):
    assert found.options == wanted.options and found.op == wanted.op and set(found.tensors) == set(wanted.tensors)
    for name in wanted.tensors:
        assert_bitwise_equal(found.tensors[name], wanted.tensors[name])


def test_a_call_survives_a_safetensors_file():
    same(wire.call_from_safetensors("scaled_mm", wire.call_to_safetensors(CALL)), CALL)


@pytest.mark.parametrize("form", ["bits", "b64"])
def test_a_call_survives_json(form):
    found = wire.call_from_json("scaled_mm", wire.call_to_json(CALL, form))
    same(found, CALL)
    assert found.form == form


@pytest.mark.parametrize(
    "there_and_back",
    [
        lambda reply: wire.reply_from_safetensors(wire.reply_to_safetensors(reply)),
        lambda reply: wire.reply_from_json(wire.reply_to_json(reply)),
    ],
)
def test_a_reply_survives_both_forms(there_and_back):
    found = there_and_back(REPLY)
    assert found.info == REPLY.info
    assert_bitwise_equal(found.tensors["out"], SCALE)


def test_the_reply_of_explain_is_its_trace_alone():
    trace = {"schema": "s", "cells": [{"d": 1}]}
    assert json.loads(wire.reply_to_json(Reply({}, trace))) == trace


def test_metadata_of_other_programs_is_passed_over():
    data = wire.write_safetensors(CALL.tensors, {"format": "pt"})
    assert wire.call_from_safetensors("scaled_mm", data).options == {}


@pytest.mark.parametrize("op", wire.OPERATIONS)
def test_an_unknown_option_is_refused_with_the_known_ones(op):
    with pytest.raises(InvalidInputError) as caught:
        wire.call_from_safetensors(op, wire.write_safetensors({}, {"mmaemu": '{"splits": 2}'}))
    assert caught.value.field == "splits"
    assert all(name in caught.value.wanted for name in wire.OPERATIONS[op].options)


@pytest.mark.parametrize("op", wire.OPERATIONS)
def test_an_unknown_tensor_is_refused_with_the_known_ones(op):
    with pytest.raises(InvalidInputError) as caught:
        wire.call_from_safetensors(op, wire.write_safetensors({"mat1": SCALE}, {}))
    assert caught.value.field == "mat1"
    assert all(name in caught.value.wanted for name in wire.OPERATIONS[op].tensors)


def test_an_unknown_member_of_a_json_call_is_refused():
    with pytest.raises(InvalidInputError) as caught:
        wire.call_from_json("mma", b'{"scale_a": 1}')
    assert caught.value.field == "scale_a"


def test_an_unknown_operation_is_refused():
    with pytest.raises(InvalidInputError) as caught:
        wire.call_from_json("matmul", b"{}")
    assert caught.value.field == "op"


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b"null", b"{", b'{"a":}', b'\xff{"a":1}', b'"a"'])
def test_json_that_is_no_object_is_refused(body):
    with pytest.raises(WireFormatError) as caught:
        wire.call_from_json("scaled_mm", body)
    assert caught.value.field == "body"


def test_json_in_another_encoding_is_refused():
    with pytest.raises(WireFormatError):
        wire.call_from_json("scaled_mm", "{}".encode("utf-16"))


def test_a_bare_nan_is_refused_with_the_way_to_write_it():
    with pytest.raises(WireFormatError) as caught:
        wire.call_from_json("scaled_mm", b'{"scale_a": {"dtype": "float32", "shape": [], "values": NaN}}')
    assert '"NaN"' in caught.value.hint


@pytest.mark.parametrize("text", ["[]", "3", "{", '{"a": 1, "a": 2}'])
def test_options_that_are_no_object_are_refused(text):
    with pytest.raises(WireFormatError) as caught:
        wire.call_from_safetensors("mma", wire.write_safetensors({}, {"mmaemu": text}))
    assert caught.value.field == "__metadata__.mmaemu"
