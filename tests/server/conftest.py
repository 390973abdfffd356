# SPDX-License-Identifier: Apache-2.0
"""Services for the tests: one in this process behind an ASGI transport, and real ones in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from mmaemu_server.app import create_app
from mmaemu_server.settings import Settings


@pytest.fixture(scope="session")
def service() -> Iterator[TestClient]:
    """A service with the limits of a default one."""
    with TestClient(create_app(Settings()), raise_server_exceptions=True) as client:
        yield client


@dataclass
class Server:
    """A real server: `url`, its process, and the lines that it has logged so far."""

    process: subprocess.Popen[str]
    url: str = ""
    lines: list[dict[str, Any]] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)
    """What it wrote that is no JSON line."""

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60)

    def workers(self) -> list[int]:
        """Process ids of its workers."""
        return [pid for pid in _children(self.process.pid) if "spawn_main" in _command(pid)]


def _children(pid: int) -> list[int]:
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/children") as children:
            found += [int(child) for child in children.read().split()]
    return found


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as command:
            return command.read()
    except FileNotFoundError:
        return ""


@contextmanager
def _running(settings: dict[str, Any]) -> Iterator[Server]:
    code = "from mmaemu_server.serve import serve; from mmaemu_server.settings import Settings; serve(Settings())"
    variables = {f"MMAEMU_{name.upper()}": str(value) for name, value in {"port": 0, **settings}.items()}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MMAEMU_")}
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**kept, **variables}, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    server, listening = Server(process), threading.Event()

    def follow() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            try:
                server.lines.append(json.loads(line))
            except ValueError:
                server.stray.append(line)
                continue
            if server.lines[-1].get("event") == "listening":
                server.url = server.lines[-1]["url"]
                listening.set()

    reader = threading.Thread(target=follow)
    reader.start()
    try:
        assert listening.wait(60), server.stray
        yield server
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(30)
        assert process.stderr is not None
        process.stderr.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    """start(**settings): a real server, stopped after the test."""
    if not sys.platform.startswith("linux"):
        pytest.skip("needs Linux: the tests find workers in /proc")
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(_running(settings))
