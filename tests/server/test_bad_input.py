# SPDX-License-Identifier: Apache-2.0
"""Every bad input is a problem that names the field, and the next call is answered as before."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.server.bodies import HALF, K, M, N, changed, fp8, mma, out, post, post_raw, problem, product

from mmaemu import Bits, calls, wire
from mmaemu.testing import assert_bitwise_equal
from mmaemu.wire import CONTENT_TYPE, JSON_TYPE, Call


@pytest.fixture(autouse=True)
def _next_call_works(service):
    yield
    assert_bitwise_equal(out(post(service, mma()), "d"), calls.run(mma()).tensors["d"])


GOOD = product()
F32 = Bits("float32", np.zeros((M, K), np.uint32))
E5M2 = {name: Bits("float8_e5m2", GOOD.tensors[name].array) for name in ("a", "b_t")}
HALF16 = Bits("float16", np.array(0x3800, np.uint16))
ROWS = Bits("float32", np.zeros((M, 1), np.uint32))
COLUMNS = Bits("float32", np.zeros((1, N), np.uint32))

REFUSED = {
    "mat1 of float32": (changed(GOOD, a=F32), "reference-rejects", "a"),
    "e5m2 twice": (changed(GOOD, **E5M2), "reference-rejects", ""),
    "three dimensions": (changed(GOOD, a=fp8(1, M, K)), "reference-rejects", "a"),
    "one dimension": (changed(GOOD, b_t=None, b=fp8(K)), "reference-rejects", "b"),
    "inner sizes that differ": (changed(GOOD, a=fp8(M, K + 16)), "reference-rejects", "b"),
    "K that is no multiple of 16": (product(k=24), "reference-rejects", "a"),
    "N that is no multiple of 16": (product(n=24), "reference-rejects", "b"),
    "a column-major a": (product(strides={"a": [1, M]}), "reference-rejects", "a"),
    "a row-major b": (changed(product(strides={"b": [N, 1]}), b_t=None, b=fp8(K, N)), "reference-rejects", "b"),
    "a scale of the wrong shape": (
        changed(GOOD, scale_a=Bits("float32", np.zeros(M, np.uint32))), "reference-rejects", "scale_a, scale_b",
    ),
    "a scale of float16": (changed(GOOD, scale_a=HALF16), "reference-rejects", "scale_a"),
    "an unknown output type": (product(out_dtype="int8"), "reference-rejects", "out_dtype"),
    "row-wise scales with a float32 output": (
        changed(product(out_dtype="float32"), scale_a=ROWS, scale_b=COLUMNS),
        "reference-rejects",
        "out_dtype",
    ),
    "a profile of instructions only": (product(profile="v100"), "unsupported-feature", "profile"),
    "an unknown profile": (product(profile="h9000"), "invalid-input", "profile"),
    "an unknown preset": (mma(preset="abacus"), "invalid-input", "preset"),
    "a preset without this format": (mma(preset="v100"), "unsupported-feature", "fmt_a, fmt_b, acc"),
    "no scale": (changed(GOOD, scale_a=None), "invalid-input", "scale_a"),
    "an unknown tensor": (changed(GOOD, mat1=HALF), "invalid-input", "mat1"),
    "an unknown option": (product(splits=2), "invalid-input", "splits"),
    "a splitk that is none": (product(splitk={}), "invalid-input", "splitk"),
    "an absent backend": (product(backend="cuda"), "backend-unavailable", "backend"),
    "a cell outside": (product(op="explain", cells=[[M, 0]]), "invalid-input", "cells"),
}  # fmt: skip
STATUS = {"reference-rejects": 422, "invalid-input": 422, "unsupported-feature": 501, "backend-unavailable": 503}


@pytest.mark.parametrize("kind", [CONTENT_TYPE, JSON_TYPE])
@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_call_is_a_problem_that_names_the_field(service, name, kind):
    call, code, field = REFUSED[name]
    reply = post(service, call, kind)
    problem(reply, STATUS[code], code, field)


@pytest.mark.parametrize("name", ["a column-major a", "an unknown profile", "row-wise scales with a float32 output"])
def test_a_problem_has_the_sentence_of_the_local_error(service, name):
    call, code, _ = REFUSED[name]
    found = problem(post(service, call), STATUS[code], code)
    with pytest.raises(Exception) as caught:
        calls.run(call)
    assert found["detail"] == str(caught.value)


FILE = wire.call_to_safetensors(product())


def _header(**entries):
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


DAMAGED = {
    "nothing": (b"", "header"),
    "a truncated length": (FILE[:5], "header"),
    "a truncated header": (FILE[:100], "header"),
    "truncated data": (FILE[:-1], ""),
    "bytes too many": (FILE + b"\0", "data"),
    "text": (b"curl: (3) URL rejected", "header"),
    "overlapping tensors": (
        _header(
            a={"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]},
            b={"dtype": "F8_E4M3", "shape": [4], "data_offsets": [2, 6]},
        )
        + bytes(6),
        "b.data_offsets",
    ),
    "a short tensor": (
        _header(a={"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 3]}) + bytes(3), "a.data_offsets",
    ),
    "a gap": (_header(a={"dtype": "F8_E4M3", "shape": [1], "data_offsets": [1, 2]}) + bytes(2), "a.data_offsets"),
    "integers": (_header(a={"dtype": "I32", "shape": [1], "data_offsets": [0, 4]}) + bytes(4), "a.dtype"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_a_problem_that_names_the_field(service, name):
    body, field = DAMAGED[name]
    problem(post_raw(service, "scaled_mm", body), 400, "wire-format", field)


NO_JSON = [b"", b"nonsense", b"{", b"[]", b"null", b'{"a": }', b"\xff\xfe{", b'{"a": 1, "a": 2}', b"[" * 100_000]


@pytest.mark.parametrize("body", NO_JSON, ids=range(len(NO_JSON)))
def test_json_that_is_no_json_object_is_a_problem(service, body):
    problem(post_raw(service, "scaled_mm", body, JSON_TYPE), 400, "wire-format", "body")


def test_a_bare_nan_in_json_is_a_problem_that_says_how_to_write_it(service):
    body = b'{"scale_a": {"dtype": "float32", "shape": [], "values": NaN}}'
    assert '"NaN"' in problem(post_raw(service, "scaled_mm", body, JSON_TYPE), 400, "wire-format", "body")["hint"]


def test_a_malformed_json_tensor_names_its_member(service):
    body = json.loads(wire.call_to_json(product()))
    body["a"]["bits"][0][0] = "3"
    reply = post_raw(service, "scaled_mm", json.dumps(body).encode(), JSON_TYPE)
    problem(reply, 400, "wire-format", "a.bits")


def test_a_bad_body_is_not_echoed(service):
    secret = "s3cret" * 20_000
    reply = post_raw(service, "scaled_mm", json.dumps({"out_dtype": secret, "profile": secret}).encode(), JSON_TYPE)
    assert reply.status_code == 422 and reply.text.count("s3cret") < 40


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/octet-stream", "x"]
)
def test_another_content_type_is_a_problem_that_names_both_forms(service, kind):
    found = problem(post_raw(service, "mma", b"{}", kind), 415, "unsupported-media-type", "Content-Type")
    assert CONTENT_TYPE in found["wanted"] and JSON_TYPE in found["wanted"]


def test_a_compressed_body_is_refused(service):
    reply = post_raw(service, "mma", b"{}", JSON_TYPE, Content_Encoding="gzip")
    problem(reply, 415, "unsupported-media-type", "Content-Type")


def test_a_charset_beside_the_content_type_is_no_obstacle(service):
    reply = post_raw(service, "mma", wire.call_to_json(mma()), "Application/JSON; charset=utf-8")
    assert reply.status_code == 200


def test_an_unknown_address_is_a_problem(service):
    problem(service.get("/v1/nothing"), 404, "not-found")


def test_an_unknown_profile_address_names_the_known_ones(service):
    found = problem(service.get("/v1/profiles/h9000"), 404, "not-found", "profile")
    assert "h200" in found["wanted"]


def test_another_method_is_a_problem_with_the_right_ones(service):
    reply = service.get("/v1/scaled_mm")
    problem(reply, 405, "method-not-allowed")
    assert reply.headers["allow"] == "POST"


def test_a_huge_address_draws_a_small_answer(service):
    problem(service.get("/" + "x" * 5000), 404, "not-found")


def test_specs_in_place_of_tensors_are_checked_like_tensors(service):
    specs = {"a": {"dtype": "float32", "shape": [M, K]}, "b": {"dtype": "float8_e4m3fn", "shape": [K, N]}}
    problem(post(service, Call("explain", {}, {"specs": specs})), 422, "reference-rejects", "a")
