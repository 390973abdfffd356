# SPDX-License-Identifier: Apache-2.0
"""A real server on a real socket: it stays awake during long work, and survives what happens to its workers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from tests.server.bodies import changed, mma, out, post, post_raw, problem, product

from mmaemu import Bits, calls, wire
from mmaemu.testing import assert_bitwise_equal
from mmaemu.wire import JSON_TYPE

pytestmark = pytest.mark.timeout(180)


def finite(m: int, n: int, k: int, **options: Any) -> Any:
    """A product for the reference, which has much to do even without NaN."""
    call = product(m=m, n=n, k=k, backend="reference", **options)
    return changed(call, **{name: Bits(FP8, call.tensors[name].array & np.uint8(0xBF)) for name in ("a", "b_t")})


FP8 = "float8_e4m3fn"
LONG = finite(2048, 1024, 8192)
"""Half a minute of work or more: only ever stopped, never waited for."""


class Background:
    """A call under way in a thread of its own."""

    def __init__(self, server: Any, call: Any = LONG) -> None:
        self.client = server.client()
        self.reply: Any = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._send, args=(call,))
        self._thread.start()

    def _send(self, call: Any) -> None:
        try:
            self.reply = post(self.client, call)
        except httpx.HTTPError as error:
            self.error = error

    def join(self) -> Any:
        self._thread.join(90)
        assert not self._thread.is_alive()
        self.client.close()
        return self.reply


def until(condition: Callable[[], Any], seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def warm(server: Any) -> int:
    """The process id of the one worker, after a first call."""
    with server.client() as client:
        next_call_works(client)
    (pid,) = server.workers()
    return int(pid)


def at_work(server: Any, pid: int, call: Any = LONG) -> Background:
    """A long call that the worker has begun to compute."""
    before = cpu_seconds(pid)
    background = Background(server, call)
    until(lambda: cpu_seconds(pid) > before + 0.5)
    return background


def next_call_works(client: httpx.Client) -> None:
    assert_bitwise_equal(out(post(client, mma()), "d"), calls.run(mma()).tensors["d"])


def test_health_answers_at_once_while_a_long_product_runs(start):
    server = start()
    pid = warm(server)
    running = at_work(server, pid)
    with server.client() as client:
        began = time.monotonic()
        for _ in range(5):
            assert client.get("/healthz").json() == {"status": "ok"}
        assert time.monotonic() - began < 3
    assert running.reply is None and alive(pid)
    os.kill(pid, signal.SIGKILL)
    running.join()


def test_a_worker_killed_at_work_costs_its_call_and_no_other(start):
    server = start()
    pid = warm(server)
    running = at_work(server, pid)
    os.kill(pid, signal.SIGKILL)
    problem(running.join(), 503, "service-busy", "worker")
    with server.client() as client:
        next_call_works(client)
    assert server.workers() != [pid]


def test_a_worker_killed_at_rest_costs_no_call(start):
    server = start()
    pid = warm(server)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))
    with server.client() as client:
        next_call_works(client)


def test_a_call_above_the_time_limit_is_stopped(start):
    server = start(timeout_seconds=2)
    pid = warm(server)
    with server.client() as client:
        found = problem(post(client, LONG), 504, "remote-timeout", "timeout_seconds")
        assert "2 s" in found["got"]
        next_call_works(client)
        assert server.workers() == [pid]


def test_a_call_that_cannot_be_stopped_between_tiles_is_killed(start):
    """One tile, and so nothing to stop between, that takes longer than the limit and the time to stop."""
    server = start(timeout_seconds=0.5)
    pid = warm(server)
    endless = finite(64, 64, 1 << 19, overrides={"instruction.group": 1})
    with server.client() as client:
        problem(post(client, endless), 504, "remote-timeout", "timeout_seconds")
        assert not alive(pid)
        next_call_works(client)


def test_a_call_beyond_the_queue_is_told_to_come_back(start):
    server = start(queue_length=0)
    pid = warm(server)
    running = at_work(server, pid)
    with server.client() as client:
        problem(post(client, mma()), 429, "service-busy", "queue")
        os.kill(pid, signal.SIGKILL)
        running.join()
        next_call_works(client)


def test_a_client_that_leaves_takes_its_work_along(start):
    server = start()
    pid = warm(server)
    before = cpu_seconds(pid)
    body = wire.call_to_safetensors(LONG)
    headers = f"Content-Type: {wire.CONTENT_TYPE}\r\nContent-Length: {len(body)}"
    with raw_request(server, headers, body, "scaled_mm"):
        until(lambda: cpu_seconds(pid) > before + 0.5)
    until(lambda: states(server) == ["idle"])
    with server.client() as client:
        next_call_works(client)
    assert server.workers() == [pid]


def states(server: Any) -> list[str]:
    with server.client() as client:
        return [each["state"] for each in client.get("/v1/work").json()["workers"]]


def test_work_shows_how_far_a_call_is(start):
    server = start()
    pid = warm(server)
    assert states(server) == ["idle"]
    running = at_work(server, pid, finite(128, 1024, 4096))
    shares = []
    with server.client() as client:
        while running.reply is None:
            (each,) = client.get("/v1/work").json()["workers"]
            if each["state"] == "busy" and each["share_done"] is not None:
                assert each["op"] == "scaled_mm" and each["request_id"] and each["seconds"] > 0
                shares.append(each["share_done"])
            time.sleep(0.02)
    assert running.join().status_code == 200
    assert shares == sorted(shares) and len(set(shares)) > 2 and 0 < shares[0] and shares[-1] < 1
    until(lambda: states(server) == ["idle"])


def test_leaving_at_any_moment_harms_no_later_call(start):
    """Clients whose patience is about as long as their call: stopped before, in and after it, at every stage."""
    server = start()
    pid = warm(server)
    call = finite(64, 512, 512)
    expected = calls.run(call).tensors["out"]
    with server.client() as client:
        began = time.monotonic()
        assert_bitwise_equal(out(post(client, call)), expected)
        usual = time.monotonic() - began
        left = 0
        for index in range(40):
            try:
                reply = client.post(
                    "/v1/scaled_mm", content=wire.call_to_safetensors(call),
                    headers={"Content-Type": wire.CONTENT_TYPE}, timeout=usual * (0.1 + index / 20),
                )  # fmt: skip
            except httpx.TimeoutException:
                left += 1
                next_call_works(client)
            else:
                assert_bitwise_equal(out(reply), expected)
        assert left > 0
        assert_bitwise_equal(out(post(client, call)), expected)
    assert server.workers() == [pid]


def test_a_client_that_leaves_the_queue_is_not_computed_for(start):
    server = start()
    pid = warm(server)
    running = at_work(server, pid)
    with server.client() as client, pytest.raises(httpx.ReadTimeout):
        client.timeout = httpx.Timeout(0.5)
        post(client, LONG)
    os.kill(pid, signal.SIGKILL)
    running.join()
    with server.client() as client:
        began = time.monotonic()
        next_call_works(client)
        assert time.monotonic() - began < 15


def test_workers_die_with_a_server_that_is_killed(start):
    server = start()
    pid = warm(server)
    running = at_work(server, pid)
    server.process.kill()
    until(lambda: not alive(pid), 10)
    running.join()
    assert running.error is not None


def test_a_stop_at_rest_is_clean(start):
    server = start()
    pid = warm(server)
    server.process.terminate()
    assert server.process.wait(20) == 0
    assert not alive(pid)


def test_a_stop_lets_a_running_call_finish(start):
    server = start()
    pid = warm(server)
    call = finite(256, 512, 4096)
    running = at_work(server, pid, call)
    server.process.terminate()
    reply = running.join()
    assert out(reply).shape == (256, 512)
    assert server.process.wait(20) == 0


def test_a_stop_ends_a_call_that_runs_too_long(start):
    server = start(shutdown_seconds=1)
    pid = warm(server)
    running = at_work(server, pid)
    server.process.terminate()
    assert server.process.wait(20) == 0
    assert not alive(pid)
    running.join()


def test_two_workers_compute_side_by_side(start):
    server = start(workers=2)
    with server.client() as client:
        next_call_works(client)
        first, second = until(lambda: server.workers() if len(server.workers()) == 2 else None)
        before = {pid: cpu_seconds(pid) for pid in (first, second)}
        running = [Background(server), Background(server)]
        until(lambda: all(cpu_seconds(pid) > before[pid] + 0.3 for pid in before), 60)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        for each in running:
            problem(each.join(), 503, "service-busy", "worker")


def endless(chunk: bytes, count: int):
    for _ in range(count):
        yield chunk


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "streamed"])
def test_a_body_above_the_limit_gets_its_answer_over_a_socket(start, announced):
    server = start(max_body_bytes=1_000_000)
    chunk = bytes(100_000)
    with server.client() as client:
        headers = {"Content-Length": "400000000"} if announced else {}
        reply = post_raw(client, "scaled_mm", endless(chunk, 4000), **headers)
        problem(reply, 413, "limit-exceeded", "body")
        next_call_works(client)


def raw_request(server: Any, headers: str, body: bytes, op: str = "mma") -> socket.socket:
    url = httpx.URL(server.url)
    connection = socket.create_connection((url.host, url.port), timeout=30)
    connection.sendall(f"POST /v1/{op} HTTP/1.1\r\nHost: test\r\n{headers}\r\n\r\n".encode() + body)
    return connection


def test_a_body_that_never_ends_is_given_up(start):
    server = start(body_timeout_seconds=0.5)
    headers = f"Content-Type: {JSON_TYPE}\r\nContent-Length: 100"
    with raw_request(server, headers, b"{") as connection:
        answer = connection.makefile("rb").read()  # to the end: the server closes
    assert b" 408 " in answer.splitlines()[0] and b"urn:mmaemu:problem:remote-timeout" in answer
    with server.client() as client:
        next_call_works(client)


def test_a_body_announced_too_long_is_refused_before_it_is_sent(start):
    server = start()
    with raw_request(server, f"Content-Type: {JSON_TYPE}\r\nContent-Length: 2000000", b"") as connection:
        answer = connection.makefile("rb").read()
    assert b" 413 " in answer.splitlines()[0] and b"urn:mmaemu:problem:limit-exceeded" in answer


def test_a_client_that_leaves_in_mid_body_harms_nobody(start):
    server = start()
    with raw_request(server, f"Content-Type: {JSON_TYPE}\r\nContent-Length: 100", b"{"):
        pass
    with server.client() as client:
        next_call_works(client)
    gone = [line for line in server.lines if line.get("status") == 499]
    assert len(gone) == 1


def test_the_log_is_one_json_line_a_request_without_data(start):
    server = start()
    with server.client() as client:
        post(client, product(), X_Request_ID="my-id.1")
        post_raw(client, "mma", b"\x00secret")
        client.get("/healthz", headers={"X-Request-ID": "not an id\x7f"})
    until(lambda: sum(line["event"] == "request" for line in server.lines) == 3)
    first, second, third = (line for line in server.lines if line["event"] == "request")
    assert (first["method"], first["path"], first["status"]) == ("POST", "/v1/scaled_mm", 200)
    assert first["request_id"] == "my-id.1" and first["ms"] > 0
    assert second["status"] == 400 and "secret" not in str(second)
    assert third["request_id"] != "not an id\x7f"
    assert server.stray == []


def test_a_port_that_is_taken_ends_the_start_with_one_error(start):
    server = start()
    code = "from mmaemu_server.serve import serve; from mmaemu_server.settings import Settings; serve(Settings())"
    variables = {**os.environ, "MMAEMU_PORT": str(httpx.URL(server.url).port)}
    second = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=60)
    assert second.returncode != 0
    assert "Traceback" not in second.stderr
    lines = [json.loads(line) for line in second.stderr.splitlines()]
    assert ["address already in use" in line["event"] for line in lines if line["level"] == "error"] == [True]
