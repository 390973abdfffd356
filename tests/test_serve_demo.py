# SPDX-License-Identifier: Apache-2.0
"""`make serve` as a newcomer meets it: a greeting with its bits, a clean stop, plain words when it cannot start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

TOOL = Path(__file__).resolve().parents[1] / "tools" / "serve_demo.py"
LAST_LINE_OF_GREETING = "Ctrl-C stops the service"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def tool_on(port: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(TOOL), "--port", str(port)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MMAEMU_")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        watchdog = threading.Timer(120, process.terminate)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.terminate()
            process.communicate()


def read_greeting(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(LAST_LINE_OF_GREETING):
            break
    return "".join(lines)


@pytest.fixture(scope="module")
def visit() -> Iterator[dict[str, object]]:
    """One whole visit: start, read the greeting, ask for /healthz, interrupt, ask again."""
    port = free_port()
    seen: dict[str, object] = {"port": port}
    with tool_on(port) as process:
        seen["greeting"] = read_greeting(process)
        url = f"http://127.0.0.1:{port}/healthz"
        seen["health"] = httpx.get(url, timeout=30).status_code if process.poll() is None else None
        process.send_signal(signal.SIGINT)
        rest, log = process.communicate(timeout=60)
        seen |= {"rest": rest, "log": log, "status": process.returncode}
        with socket.socket() as probe:
            seen["listening"] = probe.connect_ex(("127.0.0.1", port)) == 0
        yield seen


def test_greeting_gives_the_address(visit):
    assert f"ready at http://127.0.0.1:{visit['port']}" in visit["greeting"], visit


def test_hopper_pushes_the_small_products_out(visit):
    """448 has its last kept bit at 2**(8-13); each 2**-6 beside it lies below, so 448 alone is left: 0x43E00000."""
    assert "0x43E00000 = 448.0 " in visit["greeting"], visit


def test_ada_keeps_the_first_sixteen(visit):
    """16 * 2**-6 = 0.25 is summed before the 448 comes, and 0.25 is 8 units of its last kept bit: 0x43E02000."""
    assert "0x43E02000 = 448.25 " in visit["greeting"], visit


def test_service_stays_up_after_the_greeting(visit):
    assert visit["health"] == 200, visit


def test_interrupt_ends_it_with_status_zero(visit):
    assert visit["status"] == 0, visit


def test_interrupt_leaves_no_traceback(visit):
    assert "Traceback" not in f"{visit['rest']}{visit['log']}"


def test_interrupt_leaves_nobody_listening(visit):
    assert visit["listening"] is False


@pytest.fixture(scope="module")
def taken() -> Iterator[tuple[int, int, str]]:
    """Port, exit status and standard error of the tool on a port that somebody else listens on."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        run = subprocess.run(
            [sys.executable, str(TOOL), "--port", str(port)], capture_output=True, text=True, timeout=60
        )
    yield port, run.returncode, run.stderr


def test_taken_port_fails(taken):
    assert taken[1] == 1


def test_taken_port_is_named_with_the_way_out(taken):
    port, _, message = taken
    assert f"port {port}" in message and "PORT=8643 make serve" in message


@pytest.fixture(scope="module")
def broken() -> subprocess.CompletedProcess[str]:
    """The tool with a setting that the service refuses to start with."""
    environment = {**os.environ, "MMAEMU_WORKERS": "many"}
    command = [sys.executable, str(TOOL), "--port", str(free_port())]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def test_service_that_cannot_start_fails_the_tool(broken):
    assert broken.returncode == 1


def test_service_that_cannot_start_shows_its_log(broken):
    assert "workers" in broken.stderr.lower(), broken.stderr
