# SPDX-License-Identifier: Apache-2.0
"""The application: routes, the worker pool's life, and every error as a problem."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import mmaemu
from mmaemu.errors import LimitExceededError, MmaemuError
from mmaemu_server import limits, problems, routes, schemas
from mmaemu_server.admission import Admission
from mmaemu_server.devices import Pool
from mmaemu_server.logs import RequestLog
from mmaemu_server.problems import Problem, ProblemError
from mmaemu_server.settings import Settings


def create_app(settings: Settings | None = None) -> FastAPI:
    """The service as an ASGI app. Workers start with its lifespan, or at the first call where none is run."""
    settings = settings or Settings()
    pool = Pool(settings.workers, limits.work_limits(settings), settings.timeout_seconds)
    admission = Admission(settings.workers, settings.queue_length, settings.max_held_bytes)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        pool.start()
        try:
            yield
        finally:
            pool.close()

    # FastAPI's own pages of documentation load scripts from elsewhere.
    app = FastAPI(
        title="mmaemu",
        version=mmaemu.__version__,
        summary="What bits would this NVIDIA GPU have returned?",
        description=schemas.DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.settings = settings
    app.state.pool = pool
    app.include_router(routes.router(settings, pool, admission))
    app.add_exception_handler(MmaemuError, _mmaemu_error)
    app.add_exception_handler(ProblemError, _problem_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_middleware(RequestLog)
    schemas.install(app)
    return app


async def _mmaemu_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, MmaemuError)
    response = _response(problems.of_error(error))
    if isinstance(error, LimitExceededError):
        response.headers["Connection"] = "close"  # the rest of the body is not read
    return response


async def _problem_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return _response(error.problem)


async def _http_error(request: Request, error: Exception) -> Response:
    """What the router itself refuses."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another")
        return _response(problems.method_not_allowed(request.method, allowed))
    if error.status_code == 404:
        return _response(problems.not_found(request.url.path))
    return _response(Problem("internal-error", error.status_code, str(error.detail)))


def _response(problem: Problem) -> Response:
    headers: dict[str, Any] = {**problem.headers, "Content-Type": problems.CONTENT_TYPE}
    return Response(problem.body(), problem.status, headers)
