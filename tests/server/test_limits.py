# SPDX-License-Identifier: Apache-2.0
"""Bodies and work above a limit are refused before they cost anything, with the limit in the refusal."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.server.bodies import changed, mma, out, post, post_raw, problem, product

from mmaemu import Bits, wire
from mmaemu.errors import ServiceBusyError
from mmaemu.wire import CONTENT_TYPE, JSON_TYPE, Call
from mmaemu_server import limits
from mmaemu_server.admission import Admission
from mmaemu_server.app import create_app
from mmaemu_server.settings import Settings

SETTINGS = Settings(
    max_body_bytes=50_000,
    max_json_bytes=20_000,
    max_macs=100_000,
    max_k=512,
    max_result_bytes=20_000,
    max_json_result_bytes=1_000,
    max_cells=2,
    max_trace_terms=400,
)


@pytest.fixture(scope="module")
def small() -> Iterator[TestClient]:
    with TestClient(create_app(SETTINGS)) as client:
        yield client


def chunks(total):
    """A body whose length nobody announces."""
    for _ in range(total // 1000):
        yield bytes(1000)


@pytest.mark.parametrize("body", [bytes(50_001), chunks(51_000)], ids=["announced", "streamed"])
def test_a_body_above_the_limit_is_refused(small, body):
    reply = post_raw(small, "scaled_mm", body)
    problem(reply, 413, "limit-exceeded", "body")
    assert reply.headers["connection"] == "close"


@pytest.mark.parametrize("body", [b" " * 20_001, chunks(21_000)], ids=["announced", "streamed"])
def test_json_above_its_limit_is_pointed_to_the_binary_form(small, body):
    found = problem(post_raw(small, "scaled_mm", body, JSON_TYPE), 413, "limit-exceeded", "body")
    assert CONTENT_TYPE in found["detail"]


def test_a_body_of_just_the_limit_is_read(small):
    problem(post_raw(small, "scaled_mm", bytes(50_000)), 400, "wire-format")


def test_a_length_that_is_a_lie_does_not_help(small):
    reply = post_raw(small, "scaled_mm", chunks(51_000), Content_Length="10")
    problem(reply, 413, "limit-exceeded", "body")


def test_too_many_products_are_refused(small):
    problem(post(small, product(m=32, n=32, k=128)), 422, "limit-exceeded", "M * N * K")


def test_too_long_sums_are_refused(small):
    problem(post(small, product(m=1, n=16, k=528)), 422, "limit-exceeded", "K")


def test_a_vast_result_of_no_products_is_refused(small):
    empty = Bits("float8_e4m3fn", np.zeros((1 << 30, 0), np.uint8))
    problem(post(small, changed(product(), a=empty, b_t=empty)), 422, "limit-exceeded", "result bytes")


def test_a_result_too_large_for_json_points_to_the_binary_form(small):
    call = product(m=16, n=32, k=16)
    found = problem(post(small, call, Accept=JSON_TYPE), 422, "limit-exceeded", "result bytes as JSON")
    assert CONTENT_TYPE in found["detail"]
    assert out(post(small, call)).shape == (16, 32)


def test_too_many_cells_are_refused(small):
    call = product(k=16, op="explain", cells=[[0, 0], [0, 1], [0, 2]])
    problem(post(small, call), 422, "limit-exceeded", "cells")


def test_too_long_traces_are_refused(small):
    call = product(k=256, op="explain", cells=[[0, 0], [0, 1]])
    problem(post(small, call), 422, "limit-exceeded", "cells * K")


def test_a_plan_alone_counts_as_one_cell(small):
    problem(post(small, product(k=512, op="explain")), 422, "limit-exceeded", "cells * K")


def test_a_plan_of_vast_shapes_is_refused(small):
    specs = {name: {"dtype": "float8_e4m3fn", "shape": [1 << 40, 1 << 40]} for name in "ab"}
    problem(post(small, Call("explain", {}, {"specs": specs})), 422, "limit-exceeded", "K")


def test_too_many_instructions_are_refused(small):
    words = np.zeros((250, 512), np.uint8)
    tensors = {name: Bits("float8_e4m3fn", words[:, :64]) for name in "ab"}
    call = Call("mma", {**tensors, "c": Bits("float32", np.zeros(250, np.uint32))}, mma().options)
    assert out(post(small, call), "d").shape == (250,)
    large = create_app(SETTINGS.model_copy(update={"max_macs": 100}))
    with TestClient(large) as client:
        problem(post(client, mma()), 422, "limit-exceeded", "M * N * K")


def test_the_service_says_its_limits(small):
    shown = small.get("/v1/limits").json()
    assert shown == limits.as_json(SETTINGS)
    assert shown["max_macs"] == 100_000 and "host" not in shown


def test_the_call_after_a_refused_body_is_answered(small):
    post_raw(small, "scaled_mm", chunks(51_000))
    assert out(post(small, mma()), "d").shape == (5,)


@pytest.mark.parametrize("given", ["1e6", 10**6, "1000000"])
def test_a_limit_may_be_written_as_a_power(given):
    assert Settings(max_macs=given).max_macs == 10**6


@pytest.mark.parametrize("given", ["0", "1.5", "many", "1e"])
def test_a_limit_that_is_no_count_is_refused(given):
    with pytest.raises(ValueError, match="max_macs"):
        Settings(max_macs=given)


def test_settings_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("MMAEMU_QUEUE_LENGTH", "7")
    assert Settings().queue_length == 7


def test_every_setting_is_described():
    assert all(field.description for field in Settings.model_fields.values())


def test_the_call_after_the_last_place_is_told_to_come_back():
    admission = Admission(workers=1, queue_length=1, max_held_bytes=100)
    with admission.enter(), admission.enter():
        with pytest.raises(ServiceBusyError) as caught, admission.enter():
            pass
        assert caught.value.retry_after and caught.value.retry_after >= 1
    with admission.enter():
        assert admission.inside == 1


def test_bodies_that_do_not_fit_together_are_told_to_come_back():
    admission = Admission(workers=1, queue_length=1, max_held_bytes=100)
    with admission.enter() as first, admission.enter() as second:
        first.hold(60)
        with pytest.raises(ServiceBusyError):
            second.hold(60)
    assert admission.held_bytes == 0


def test_a_body_that_is_alone_may_be_larger_than_what_all_may_hold():
    admission = Admission(workers=1, queue_length=1, max_held_bytes=100)
    with admission.enter() as place:
        place.hold(60)
        place.hold(60)
        assert admission.held_bytes == 120


def test_a_place_is_free_again_after_a_refusal(small):
    for _ in range(SETTINGS.workers + SETTINGS.queue_length + 1):
        assert post_raw(small, "mma", b"", "text/plain").status_code == 415
        assert post_raw(small, "mma", bytes(50_001)).status_code == 413
    assert post_raw(small, "mma", wire.call_to_json(mma()), JSON_TYPE).status_code == 200
