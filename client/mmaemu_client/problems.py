# SPDX-License-Identifier: Apache-2.0
"""Refusals as the service sends them (RFC 9457 problem details), back to the classes that a local call raises."""

from __future__ import annotations

import json
from typing import Any

import httpx

from mmaemu.errors import (
    BackendUnavailableError,
    BadReplyError,
    InvalidInputError,
    LimitExceededError,
    MmaemuError,
    ReferenceRejectsError,
    ReferenceRejectsValueError,
    RemoteError,
    RemoteTimeoutError,
    ServiceBusyError,
    ServiceUnreachableError,
    UnsupportedFeatureError,
    WireFormatError,
)

CONTENT_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:mmaemu:problem:"

PASSING_STATUSES = (429, 502, 503, 504)
"""The service, or a proxy before it, may answer a little later."""

_LASTING: dict[str, type[MmaemuError]] = {
    error.code: error
    for error in (
        BackendUnavailableError,
        InvalidInputError,
        LimitExceededError,
        ReferenceRejectsError,
        ReferenceRejectsValueError,
        RemoteTimeoutError,
        UnsupportedFeatureError,
        WireFormatError,
    )
}
"""Problems that stand: the same call would meet them again."""
_LONGEST_MESSAGE = 4000


def error_of(status: int, headers: httpx.Headers, body: bytes | bytearray, retry_after: float | None) -> MmaemuError:
    """The error that an unsuccessful reply is: the local class and sentence where its problem names one."""
    problem = _problem(headers, body)
    code = str(problem.get("type", "")).removeprefix(TYPE_PREFIX) if problem else ""
    if problem and code in _LASTING:
        return _LASTING[code](_message(problem, status), **_details(problem))
    if status in (429, 503):
        busy = ServiceBusyError(_busy(problem, status, retry_after), **_details(problem or {}))
        busy.retry_after = retry_after
        return busy
    if problem:
        return RemoteError(_message(problem, status), **_details(problem))
    if status in (502, 504):
        return ServiceUnreachableError.because(
            "url", got=f"status {status} from a gateway in between", wanted="the mmaemu service behind it"
        )
    return BadReplyError.because(
        "reply",
        got=f"status {status} with content type {headers.get('content-type', 'none')[:80]}",
        wanted=f"a result or {CONTENT_TYPE}",
        hint=_where(status, headers),
    )


def is_passing(status: int, error: MmaemuError) -> bool:
    """Whether another try may succeed. A backend that the service lacks is a 503 too, but a lasting one."""
    return status in PASSING_STATUSES and type(error) not in _LASTING.values()


def _problem(headers: httpx.Headers, body: bytes | bytearray) -> dict[str, Any] | None:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != CONTENT_TYPE:
        return None
    try:
        problem = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return problem if isinstance(problem, dict) else None


def _message(problem: dict[str, Any], status: int) -> str:
    for member in ("detail", "title"):
        text = problem.get(member)
        if isinstance(text, str) and text:
            return text[:_LONGEST_MESSAGE]
    return f"The service answered with status {status} and no explanation."


def _details(problem: dict[str, Any]) -> dict[str, str]:
    members = ("field", "got", "wanted", "hint")
    return {name: problem[name] for name in members if isinstance(problem.get(name), str)}


def _busy(problem: dict[str, Any] | None, status: int, retry_after: float | None) -> str:
    text = _message(problem, status) if problem else f"The service refuses for now (status {status})."
    return text if retry_after is None else f"{text} It asks to come back in {retry_after:g} s."


def _where(status: int, headers: httpx.Headers) -> str:
    if 300 <= status < 400 and "location" in headers:
        return f"It points to {headers['location'][:200]}; redirects are not followed, so use that address."
    return "Is the address that of an mmaemu service?"
