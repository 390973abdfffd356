# SPDX-License-Identifier: Apache-2.0
"""Content types of a request, and its body counted while it arrives."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from mmaemu.errors import LimitExceededError
from mmaemu.wire import CONTENT_TYPE, JSON_TYPE
from mmaemu_server import problems
from mmaemu_server.admission import Place
from mmaemu_server.problems import ProblemError
from mmaemu_server.settings import Settings

TYPES = (CONTENT_TYPE, JSON_TYPE)


def body_type(request: Request) -> str:
    """Which of the two wire forms the body is in, or a 415 problem."""
    wanted = " or ".join(TYPES)
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise ProblemError(problems.unsupported_media_type(f"content encoding {encoding}", f"{wanted}, not compressed"))
    given = request.headers.get("content-type", "")
    name = given.partition(";")[0].strip().lower()
    if name not in TYPES:
        raise ProblemError(problems.unsupported_media_type(given or "none", wanted))
    return name


def reply_type(request: Request, body: str) -> str:
    """The form that Accept names, if it names just one of the two; else the body's."""
    named = set()
    for entry in request.headers.get("accept", "").split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        if name in TYPES and not any(_is_zero(parameter) for parameter in parameters):
            named.add(name)
    return named.pop() if len(named) == 1 else body


def _is_zero(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    return name.strip() == "q" and value.strip().rstrip("0") in ("", "0.", ".")


async def read(request: Request, kind: str, place: Place, settings: Settings) -> bytearray:
    """The whole body. LimitExceededError as soon as it is known to be too long, whatever its length header says."""
    limit = settings.max_body_bytes
    if kind == JSON_TYPE:
        limit = min(limit, settings.max_json_bytes)
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced[:20]) > limit:
        raise _too_long(int(announced[:20]), kind, limit)
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_timeout_seconds):
            async for chunk in request.stream():
                if len(body) + len(chunk) > limit:
                    raise _too_long(None, kind, limit)
                place.hold(len(chunk))
                body += chunk
    except TimeoutError:
        raise ProblemError(problems.body_too_slow(len(body), settings.body_timeout_seconds)) from None
    return body


def _too_long(length: int | None, kind: str, limit: int) -> LimitExceededError:
    hint = ""
    if kind == JSON_TYPE:
        hint = f"Larger calls go as {CONTENT_TYPE}, which has its own limit; GET /v1/limits shows both."
    got = f"more than {limit} bytes" if length is None else f"{length} bytes"
    error = LimitExceededError.because("body", got=got, wanted=f"at most {limit} bytes of {kind}", hint=hint)
    return error
