# SPDX-License-Identifier: Apache-2.0
"""One JSON line a request, a request id that the client sees too, and a problem in place of any traceback."""

from __future__ import annotations

import json
import logging
import re
import time
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mmaemu_server import problems
from mmaemu_server.work import log_fault

log = logging.getLogger("mmaemu.server")

_PLAIN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class JsonLines(logging.Formatter):
    """Formats every record as one JSON object; messages that are dicts are merged in."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}", "level": record.levelname.lower()}
        line |= record.msg if isinstance(record.msg, dict) else {"event": record.getMessage()}
        return json.dumps(line)


def set_up() -> None:
    """Send our lines and uvicorn's to stderr as JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for name in ("mmaemu.server", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.INFO)


class RequestLog:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"")
        request_id = given.decode("ascii") if _PLAIN_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        started, status = time.perf_counter(), 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id.encode("ascii"))]
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except Exception as error:
            log_fault(error, request_id)
            if status == 0:
                await _send_internal(send_with_id)
        finally:
            log.info(
                {
                    "event": "request",
                    "method": scope["method"],
                    "path": scope["path"][:200],
                    "status": status,
                    "ms": round(1000 * (time.perf_counter() - started), 1),
                    "request_id": request_id,
                }
            )


async def _send_internal(send: Send) -> None:
    problem = problems.internal()
    headers = [(b"content-type", problems.CONTENT_TYPE.encode("ascii"))]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": problem.body()})
