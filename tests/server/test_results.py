# SPDX-License-Identifier: Apache-2.0
"""Over HTTP come the bits of a local call, in the form that was asked for, under a digest that holds."""

from __future__ import annotations

import base64
import hashlib

import pytest
from tests.server.bodies import changed, fp8, mma, out, post, post_raw, product

import mmaemu
from mmaemu import Bits, calls, profiles, wire
from mmaemu.testing import assert_bitwise_equal
from mmaemu.wire import CONTENT_TYPE, JSON_TYPE
from mmaemu_server import schemas

KINDS = [CONTENT_TYPE, JSON_TYPE]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", ["scaled_mm", "accumulate"])
@pytest.mark.parametrize("options", [{}, {"use_fast_accum": True}, {"profile": "rtx4060-cublaslt12.8"}], ids=str)
def test_a_product_has_the_bits_of_a_local_one(service, kind, op, options):
    call = product(op=op, **options)
    assert_bitwise_equal(out(post(service, call, kind)), calls.run(call).tensors["out"])


@pytest.mark.parametrize("out_dtype", ["bfloat16", "float16", "float8_e4m3fn", None])
def test_every_output_type_travels(service, out_dtype):
    call = product(out_dtype=out_dtype)
    assert_bitwise_equal(out(post(service, call)), calls.run(call).tensors["out"])


@pytest.mark.parametrize("kind", KINDS)
def test_mma_has_the_words_of_a_local_dot(service, kind):
    assert_bitwise_equal(out(post(service, mma(), kind), "d"), calls.run(mma()).tensors["d"])


@pytest.mark.parametrize("kind", KINDS)
def test_explain_gives_the_local_trace(service, kind):
    call = product(op="explain", cells=[[0, 0], [2, 31]])
    reply = post(service, call, kind)
    assert reply.headers["content-type"] == JSON_TYPE
    assert mmaemu.Trace.from_dict(reply.json()).to_dict() == calls.run(call).info


def test_both_forms_agree_on_an_empty_product(service):
    call = changed(product(), a=fp8(0, 160))
    for kind in KINDS:
        assert out(post(service, call, kind)).shape == (0, 32)


@pytest.mark.parametrize(
    ("accept", "body", "reply"),
    [
        ("*/*", JSON_TYPE, JSON_TYPE),
        ("*/*", CONTENT_TYPE, CONTENT_TYPE),
        (JSON_TYPE, CONTENT_TYPE, JSON_TYPE),
        (CONTENT_TYPE, JSON_TYPE, CONTENT_TYPE),
        (f"text/html, {CONTENT_TYPE};q=0.5", JSON_TYPE, CONTENT_TYPE),
        (f"{JSON_TYPE};q=0, {CONTENT_TYPE}", JSON_TYPE, CONTENT_TYPE),
        (f"{JSON_TYPE}, {CONTENT_TYPE}", JSON_TYPE, JSON_TYPE),
        (f"{JSON_TYPE}; q=0.0", JSON_TYPE, JSON_TYPE),
        ("text/html", JSON_TYPE, JSON_TYPE),
        (",;=", CONTENT_TYPE, CONTENT_TYPE),
    ],
)
def test_the_reply_follows_accept_and_then_the_body(service, accept, body, reply):
    assert post(service, mma(), body, Accept=accept).headers["content-type"] == reply


@pytest.mark.parametrize("form", wire.FORMS)
def test_a_json_reply_has_the_form_of_a(service, form):
    found = post_raw(service, "mma", wire.call_to_json(mma(), form), JSON_TYPE).json()
    assert form in found["d"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_digest_holds(service, kind):
    reply = post(service, mma(), kind)
    digest = base64.b64encode(hashlib.sha256(reply.content).digest()).decode()
    assert reply.headers["content-digest"] == f"sha-256=:{digest}:"


def test_a_reply_says_what_computed_it(service):
    info = wire.reply_from_safetensors(post(service, product(profile="h200")).content).info
    wanted = profiles.get("h200").digest
    assert info == {"engine_version": mmaemu.__version__, "profile": "h200", "profile_digest": wanted}


@pytest.mark.parametrize("word", [0x7FC00000, 0xFF800000], ids=["NaN", "-Infinity"])
@pytest.mark.parametrize("kind", KINDS)
def test_scales_that_are_not_finite_follow_ieee(service, kind, word):
    import numpy as np

    call = changed(product(), scale_a=Bits("float32", np.array(word, np.uint32)))
    assert_bitwise_equal(out(post(service, call, kind)), calls.run(call).tensors["out"])


@pytest.mark.parametrize("op", schemas.EXAMPLES)
def test_the_example_in_the_schema_works(service, op):
    assert service.post(f"/v1/{op}", json=schemas.EXAMPLES[op]).status_code == 200


def test_the_ones_of_the_example_add_up(service):
    """Sixteen products of one, times one half twice: 4, in bfloat16 0x4080."""
    reply = service.post("/v1/scaled_mm", json={**schemas.EXAMPLES["scaled_mm"]}, headers={"Accept": CONTENT_TYPE})
    assert set(out(reply).array.ravel().tolist()) == {0x4080}
