# SPDX-License-Identifier: Apache-2.0
"""A fault of our own: the user learns that there is one, the log where it was, and nobody sees any data."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient
from tests.server.bodies import product

from mmaemu import calls, errors, wire
from mmaemu.errors import MmaemuError
from mmaemu_server import limits, problems
from mmaemu_server.app import create_app
from mmaemu_server.settings import Settings
from mmaemu_server.work import Job, execute

JOB = Job("scaled_mm", wire.CONTENT_TYPE, wire.CONTENT_TYPE, "id-1")
BODY = wire.call_to_safetensors(product(m=1, n=16, k=16))
LIMITS = limits.work_limits(Settings())


def failing(error):
    def run(call, progress=None):
        raise error

    return run


def test_a_fault_in_a_worker_is_an_internal_error_without_its_text(monkeypatch, capsys):
    monkeypatch.setattr(calls, "run", failing(ZeroDivisionError("secret words")))
    answer = execute(JOB, BODY, LIMITS)
    found = json.loads(answer.body)
    assert answer.status == 500 and found["type"] == "urn:mmaemu:problem:internal-error"
    logged = json.loads(capsys.readouterr().err)
    assert logged["request_id"] == "id-1" and logged["error"] == "ZeroDivisionError"
    assert logged["at"][-1].startswith("test_faults.py:")
    assert "secret" not in str(found) + str(logged)


def test_a_call_that_does_not_fit_memory_is_told_so(monkeypatch):
    monkeypatch.setattr(calls, "run", failing(MemoryError()))
    answer = execute(JOB, BODY, LIMITS)
    assert answer.status == 422 and json.loads(answer.body)["field"] == "memory"


def test_a_fault_in_the_service_is_an_internal_error_without_its_text(capsys):
    app = create_app(Settings())

    @app.get("/fault")
    async def fault():
        raise ZeroDivisionError("secret words")

    reply = TestClient(app).get("/fault")
    assert reply.status_code == 500 and reply.headers["content-type"] == problems.CONTENT_TYPE
    assert reply.json()["type"] == "urn:mmaemu:problem:internal-error"
    assert "secret" not in reply.text + capsys.readouterr().err


def every_error(kind=MmaemuError):
    return [kind, *(below for direct in kind.__subclasses__() for below in every_error(direct))]


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_makes_a_problem(kind):
    found = problems.of_error(kind.because("a", got="x" * 5000, wanted="y", hint="z"))
    body = json.loads(found.body())
    assert body["status"] == kind.status and body["title"] and len(body["got"]) <= 500
    assert ("Retry-After" in found.headers) == (kind.status in (429, 503))


@pytest.mark.parametrize(
    "kind",
    [
        errors.BackendUnavailableError,
        errors.InvalidInputError,
        errors.LimitExceededError,
        errors.ReferenceRejectsError,
        errors.UnsupportedFeatureError,
        errors.WireFormatError,
    ],
)
def test_the_errors_of_the_engine_keep_their_code(kind):
    assert json.loads(problems.of_error(kind("text")).body())["type"] == f"urn:mmaemu:problem:{kind.code}"


def test_the_same_body_draws_the_same_bytes():
    first, second = (execute(JOB, BODY, LIMITS) for _ in range(2))
    assert first == second
