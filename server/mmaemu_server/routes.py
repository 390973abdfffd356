# SPDX-License-Identifier: Apache-2.0
"""The doors: four that compute, and those that say what this service is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict

from fastapi import APIRouter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

import mmaemu
from mmaemu import profiles
from mmaemu.backends import registry
from mmaemu.profiles.describe import describe, summary
from mmaemu_server import bodies, limits, page, problems, schemas
from mmaemu_server.admission import Admission
from mmaemu_server.devices import Pool
from mmaemu_server.problems import ProblemError
from mmaemu_server.settings import Settings
from mmaemu_server.work import Answer, Job

WIRE_VERSION = 1

_CLIENT_GONE = 499
"""Only ever seen in the log: nobody is there to receive it."""


def router(settings: Settings, pool: Pool, admission: Admission) -> APIRouter:
    """All routes of one service."""
    doors = APIRouter()
    for op in schemas.CALLS:
        doors.add_api_route(f"/v1/{op}", _compute(op, settings, pool, admission), methods=["POST"], **schemas.door(op))

    @doors.get("/v1/profiles", tags=["about"], summary="Profiles and instruction presets")
    async def list_profiles() -> Response:
        known = [summary(profiles.get(name)) for name in profiles.names()]
        return JSONResponse({"default": profiles.default_name(), "profiles": known, "presets": profiles.preset_names()})

    @doors.get("/v1/profiles/{name}", tags=["about"], summary="Every value of a profile, with source and confidence")
    async def show_profile(name: str) -> Response:
        if name not in profiles.names():
            wanted = f"one of {', '.join(profiles.names())}"
            members = {"field": "profile", "got": name[:80], "wanted": wanted}
            detail = f"profile: got {name[:80]!r}; wanted {wanted}."
            raise ProblemError(problems.Problem("not-found", 404, detail, members))
        return JSONResponse(describe(profiles.get(name)))

    @doors.get("/v1/backends", tags=["about"], summary="Which backends this machine has, and why not the others")
    async def backends() -> Response:
        return JSONResponse({name: asdict(status) for name, status in registry.backends_status().items()})

    @doors.get("/v1/version", tags=["about"], summary="The engine's version and the wire's")
    async def version() -> Response:
        return JSONResponse({"engine_version": mmaemu.__version__, "wire": WIRE_VERSION})

    @doors.get("/v1/limits", tags=["about"], summary="What a call may ask for")
    async def show_limits() -> Response:
        return JSONResponse(limits.as_json(settings))

    @doors.get("/v1/work", tags=["about"], summary="What each worker does, and how far it is")
    async def work() -> Response:
        return JSONResponse({"workers": pool.status()})

    @doors.get("/healthz", tags=["about"], summary="Whether the process answers")
    async def healthz() -> Response:
        return JSONResponse({"status": "ok"})

    @doors.get("/", include_in_schema=False)
    async def start_page(request: Request) -> Response:
        return HTMLResponse(page.render(str(request.base_url)), headers={"Content-Security-Policy": page.POLICY})

    return doors


def _compute(op: str, settings: Settings, pool: Pool, admission: Admission) -> Callable[[Request], Awaitable[Response]]:
    async def door(request: Request) -> Response:
        body_type = bodies.body_type(request)
        reply_type = bodies.reply_type(request, body_type)
        try:
            with admission.enter() as place:
                body = await bodies.read(request, body_type, place, settings)
                started = time.perf_counter()
                job = Job(op, body_type, reply_type, request.state.request_id)
                answer = await _unless_gone(request, pool.run(job, body))
                admission.took(time.perf_counter() - started)
        except ClientDisconnect:
            return Response(status_code=_CLIENT_GONE)
        return Response(answer.body, answer.status, answer.headers)

    return door


async def _unless_gone(request: Request, work: Awaitable[Answer]) -> Answer:
    """The answer; if the client leaves before it, the work is stopped and ClientDisconnect raised."""
    answer = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnect
        return answer.result()
    finally:
        for task in (answer, gone):
            task.cancel()
        await asyncio.gather(answer, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
