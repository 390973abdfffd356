# SPDX-License-Identifier: Apache-2.0
"""What a worker does with one body: decode, check the limits, run, encode. Nothing here knows about processes."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import traceback
from dataclasses import dataclass

from mmaemu import calls, wire
from mmaemu.backends.interface import Progress
from mmaemu.errors import MmaemuError
from mmaemu_server import limits, problems
from mmaemu_server.limits import WorkLimitError, WorkLimits
from mmaemu_server.problems import Problem


@dataclass(frozen=True)
class Job:
    """One call as it came: which door, and the content types of the body and of the reply."""

    op: str
    body_type: str
    reply_type: str
    request_id: str = ""


class Stopped(BaseException):
    """Raised between tiles of a call that nobody waits for any more. No fault: nothing on the way may handle it."""


@dataclass(frozen=True)
class Answer:
    """A reply ready to send."""

    status: int
    headers: dict[str, str]
    body: bytes


def execute(
    job: Job, body: bytes | bytearray | memoryview, allowed: WorkLimits, progress: Progress | None = None
) -> Answer:
    """The answer to one call. Never raises but what `progress` raises to stop it: what goes wrong is a problem too."""
    try:
        return _execute(job, body, allowed, progress)
    except MmaemuError as error:
        return of_problem(problems.of_error(error))
    except MemoryError:
        too_big = WorkLimitError.because(
            "memory", got="a call that does not fit", wanted="a smaller one", hint="Cut the product along M or N."
        )
        return of_problem(problems.of_error(too_big))
    except Exception as error:
        log_fault(error, job.request_id)
        return of_problem(problems.internal())


def of_problem(problem: Problem) -> Answer:
    return _answer(problem.status, problems.CONTENT_TYPE, problem.body(), problem.headers)


def log_fault(error: BaseException, request_id: str) -> None:
    """One line: the kind of fault and where it was. Its text is left out, for it may quote tensor data."""
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    where = [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}" for frame in frames]
    line = {"level": "error", "event": "fault", "request_id": request_id, "error": type(error).__name__, "at": where}
    print(json.dumps(line), file=sys.stderr, flush=True)


def _execute(job: Job, body: bytes | bytearray | memoryview, allowed: WorkLimits, progress: Progress | None) -> Answer:
    decode = wire.call_from_json if job.body_type == wire.JSON_TYPE else wire.call_from_safetensors
    call = decode(job.op, body)
    # A trace is JSON whatever the reply's form is.
    explain = job.op == "explain"
    as_json = explain or job.reply_type == wire.JSON_TYPE
    limits.check(calls.cost(call), allowed, explain=explain, json_reply=as_json)
    reply = calls.run(call, progress)
    if as_json:
        return _answer(200, wire.JSON_TYPE, wire.reply_to_json(reply, call.form), {})
    return _answer(200, wire.CONTENT_TYPE, wire.reply_to_safetensors(reply), {})


def _answer(status: int, content_type: str, body: bytes, headers: dict[str, str]) -> Answer:
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode("ascii")
    return Answer(status, {"Content-Type": content_type, "Content-Digest": f"sha-256=:{digest}:", **headers}, body)
