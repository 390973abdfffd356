# SPDX-License-Identifier: Apache-2.0
"""The one place that makes refusals: RFC 9457 problem details with a stable type.

Free of the web framework, for workers make problems too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from mmaemu.errors import MmaemuError, RemoteTimeoutError, ServiceBusyError

CONTENT_TYPE = "application/problem+json"
PREFIX = "urn:mmaemu:problem:"

_LONGEST_DETAIL = 2000
_LONGEST_MEMBER = 500

TITLES = {
    "backend-unavailable": "This machine cannot run the call",
    "internal-error": "The service failed",
    "invalid-input": "The call is not well formed",
    "limit-exceeded": "The call is larger than this service allows",
    "method-not-allowed": "This door takes another method",
    "not-found": "There is nothing at this address",
    "reference-rejects": "torch or cuBLASLt would refuse this call",
    "reference-rejects-value": "torch would refuse this call with a ValueError",
    "remote-timeout": "The time limit passed",
    "service-busy": "The service cannot take the call now",
    "unsupported-feature": "mmaemu has not modelled this call",
    "unsupported-media-type": "The body is of another type",
    "wire-format": "The body is not what the wire format says",
}
"""Every problem type of the service, and its title."""


@dataclass(frozen=True)
class Problem:
    """A refusal: its status, the members of its body, and headers that go with it."""

    code: str
    status: int
    detail: str
    members: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def body(self) -> bytes:
        content: dict[str, Any] = {
            "type": PREFIX + self.code,
            "title": TITLES[self.code],
            "status": self.status,
            "detail": self.detail[:_LONGEST_DETAIL],
        }
        content |= {name: text[:_LONGEST_MEMBER] for name, text in self.members.items()}
        return json.dumps(content).encode("ascii")


class ProblemError(Exception):
    """Carries a Problem that is no MmaemuError up to the handler."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def of_error(error: MmaemuError) -> Problem:
    """The problem that `error` is over HTTP: its sentence and its filled fields."""
    headers = {}
    if isinstance(error, ServiceBusyError):
        headers["Retry-After"] = f"{error.retry_after or 1:.0f}"
    elif error.status == 503:
        headers["Retry-After"] = "60"
    return Problem(
        error.code if error.code in TITLES else "internal-error", error.status, error.message, error.details(), headers
    )


def internal() -> Problem:
    """What a user sees of a fault in the service: that it is one, and nothing of its inside."""
    detail = "A fault in the service itself; its log has the request under the X-Request-ID of this reply."
    return Problem("internal-error", 500, detail)


def not_found(path: str) -> Problem:
    return Problem("not-found", 404, f"path: got {path[:80]}; wanted a door that GET / or GET /openapi.json lists.")


def method_not_allowed(method: str, allowed: str) -> Problem:
    detail = f"method: got {method[:20]}; wanted {allowed}."
    return Problem("method-not-allowed", 405, detail, headers={"Allow": allowed})


def unsupported_media_type(got: str, wanted: str) -> Problem:
    members = {"field": "Content-Type", "got": got[:80], "wanted": wanted}
    return Problem("unsupported-media-type", 415, f"Content-Type: got {got[:80]}; wanted {wanted}.", members)


def worker_died() -> Problem:
    detail = "worker: got a process that ended in the middle of this call; a new one is starting. Send the call again."
    return Problem("service-busy", 503, detail, {"field": "worker"}, {"Retry-After": "1"})


def timed_out(seconds: float) -> Problem:
    error = RemoteTimeoutError.because(
        "timeout_seconds",
        got=f"a call that still ran after {seconds:g} s",
        wanted="one that ends sooner",
        hint="It was stopped. Cut the product along M or N: the bits do not change.",
    )
    return of_error(error)


def body_too_slow(length: int, seconds: float) -> Problem:
    detail = f"body: got {length} bytes in {seconds:g} s; wanted the whole body in that time."
    return Problem("remote-timeout", 408, detail, {"field": "body"}, {"Connection": "close"})
