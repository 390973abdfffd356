# SPDX-License-Identifier: Apache-2.0
"""One call as data, and the retries around it as a conversation without any I/O.

`attempts` yields what to do next (Send, Wait) and is told what came of it; the sync and the async client differ only in
how they do it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Generic, TypeVar

import httpx

from mmaemu.errors import BadReplyError, MmaemuError, RemoteTimeoutError, ServiceUnreachableError
from mmaemu_client import problems
from mmaemu_client.settings import Settings

T = TypeVar("T")

FIRST_WAIT = 0.25
LONGEST_WAIT = 8.0


@dataclass(frozen=True)
class Answer:
    """One HTTP reply, read to its end."""

    status: int
    headers: httpx.Headers
    body: bytes | bytearray = field(repr=False)
    """A bytearray where it can be, because results are views of it and callers may write into theirs."""


@dataclass(frozen=True)
class Failure:
    """No whole reply. `in_reply`: the reply had begun."""

    error: Exception
    in_reply: bool = False
    timed_out: bool = False


@dataclass(frozen=True)
class Exchange(Generic[T]):
    """One call: what to send, and how to read the answer of a success."""

    method: str
    path: str
    read: Callable[[Answer], T]
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Send:
    """Do the exchange once, within `timeout` seconds."""

    timeout: float


@dataclass(frozen=True)
class Wait:
    seconds: float


Conversation = Generator[Send | Wait, Answer | Failure | None, T]


def attempts(exchange: Exchange[T], settings: Settings) -> Conversation[T]:
    """Try until there is an answer, the retries are used up, or the deadline leaves no room for another try.

    Every call is a pure function of its request, so that trying again is safe even where the first try has arrived.
    """
    deadline = time.monotonic() + settings.timeout
    for attempt in range(settings.max_retries + 1):
        outcome = yield Send(max(deadline - time.monotonic(), 0.001))
        if isinstance(outcome, Answer) and 200 <= outcome.status < 300:
            return exchange.read(outcome)
        assert outcome is not None
        error, retry = _judge(outcome, settings)
        wait = _wait(attempt, _retry_after(outcome))
        if not retry or attempt == settings.max_retries or time.monotonic() + wait >= deadline:
            raise error from (outcome.error if isinstance(outcome, Failure) else None)
        yield Wait(wait)
    raise AssertionError("the last attempt returns or raises")


def _judge(outcome: Answer | Failure, settings: Settings) -> tuple[MmaemuError, bool]:
    """The error that this outcome is, and whether another try may end better."""
    if isinstance(outcome, Answer):
        error = problems.error_of(outcome.status, outcome.headers, outcome.body, _retry_after(outcome))
        return error, problems.is_passing(outcome.status, error)
    if outcome.timed_out:
        error = RemoteTimeoutError.because(
            "timeout",
            got=f"no whole reply within {settings.timeout:g} s, all tries together",
            wanted="a reply",
            hint="MMAEMU_TIMEOUT or timeout= gives it longer.",
        )
        return error, False
    if outcome.in_reply:
        return BadReplyError.because(
            "reply", got=f"a reply that broke off ({_kind(outcome.error)})", wanted="a whole reply"
        ), True
    tls = _is_tls(outcome.error)
    return ServiceUnreachableError.because(
        "url",
        got=f"no connection to {settings.url} ({_kind(outcome.error)})",
        wanted="a running mmaemu service",
        hint="Its certificate is not trusted here: MMAEMU_CA_BUNDLE names a file of certificates." if tls else "",
    ), not tls


def _kind(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200] if str(error) else type(error).__name__


def _is_tls(error: BaseException | None) -> bool:
    return error is not None and "CERTIFICATE_VERIFY_FAILED" in str(error)


def _wait(attempt: int, retry_after: float | None) -> float:
    """Seconds before the next try: doubling, with jitter so that clients do not come back all at once."""
    backoff = min(LONGEST_WAIT, FIRST_WAIT * 2.0**attempt) * random.uniform(0.5, 1.0)
    return max(backoff, retry_after or 0.0)


def _retry_after(outcome: Answer | Failure) -> float | None:
    """The Retry-After header in seconds, given as a number or a date. None where it is absent or unreadable."""
    text = outcome.headers.get("retry-after", "") if isinstance(outcome, Answer) else ""
    try:
        if text.strip().isdigit():
            return float(text)
        when = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
