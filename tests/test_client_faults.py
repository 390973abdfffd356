# SPDX-License-Identifier: Apache-2.0
"""What the clients do when the service, the network or a proxy misbehaves. The server here is wrong on purpose."""

from __future__ import annotations

import asyncio
import base64
import gc
import hashlib
import json
import multiprocessing
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from mmaemu import wire
from mmaemu.bits import Bits
from mmaemu.errors import (
    BackendUnavailableError,
    BadReplyError,
    InvalidInputError,
    ReferenceRejectsError,
    RemoteError,
    RemoteTimeoutError,
    ServiceBusyError,
    ServiceUnreachableError,
)
from mmaemu.remote import AsyncClient, Client
from mmaemu.testing import assert_bitwise_equal
from mmaemu_client import exchange

pytestmark = pytest.mark.timeout(60)

Play = Callable[[BaseHTTPRequestHandler], None]
OPERANDS = (
    Bits("float8_e4m3fn", np.zeros((1, 16), np.uint8)),
    Bits("float8_e4m3fn", np.zeros((16, 16), np.uint8).T),
    np.float32(1),
    np.float32(1),
)


class FaultyServer:
    """Plays its parts in order, the last one for ever, and remembers when it was asked and with which headers."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.parts: list[Play] = []
        self.asked: list[tuple[float, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                outer.asked.append((time.monotonic(), {k.lower(): v for k, v in self.headers.items()}))
                part = outer.parts.pop(0) if len(outer.parts) > 1 else outer.parts[0]
                part(self)

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, *_: object) -> None:
                """A client that hangs up is part of the play."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self._server.server_port}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server():
    running = FaultyServer()
    yield running
    running.close()


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    monkeypatch.setattr(exchange, "FIRST_WAIT", 0.01)


def reply(status: int, body: bytes, content_type: str, **headers: str) -> Play:
    def play(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", content_type)
        handler.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return play


def problem(status: int, code: str, detail: str, headers: dict[str, str] | None = None, **members: str) -> Play:
    body = {"type": f"urn:mmaemu:problem:{code}", "title": code, "status": status, "detail": detail, **members}
    return reply(status, json.dumps(body).encode(), "application/problem+json", **(headers or {}))


def digest(body: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"


def result(words: np.ndarray, dtype: str = "bfloat16") -> bytes:
    return wire.reply_to_safetensors(wire.Reply({"out": Bits(dtype, words)}, {"engine_version": "0"}))


WORDS = np.arange(16, dtype=np.uint16).reshape(1, 16)
FINE = reply(200, b'{"engine_version": "1.2"}', "application/json")
BUSY = problem(429, "service-busy", "The queue is full.", {"Retry-After": "0"})


@pytest.fixture(params=["sync", "async"])
def call(request, server):
    """Calls one method of a Client, or of an AsyncClient, on the faulty server."""

    def through_client(name, *args, timeout=20.0, max_retries=3, **kwargs):
        with Client(server.url, timeout=timeout, max_retries=max_retries, api_key="k-1") as client:
            return getattr(client, name)(*args, **kwargs)

    def through_async_client(name, *args, timeout=20.0, max_retries=3, **kwargs):
        async def body():
            async with AsyncClient(server.url, timeout=timeout, max_retries=max_retries, api_key="k-1") as client:
                return await getattr(client, name)(*args, **kwargs)

        return asyncio.run(body())

    return through_client if request.param == "sync" else through_async_client


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_passing_status_is_tried_again(call, server, status):
    server.parts = [reply(status, b"later", "text/plain"), FINE]
    assert call("version") == {"engine_version": "1.2"}


def test_a_closed_connection_is_tried_again(call, server):
    server.parts = [lambda handler: handler.connection.shutdown(socket.SHUT_RDWR), FINE]
    assert call("version") == {"engine_version": "1.2"}


def test_retry_after_in_seconds_is_waited_for(call, server):
    server.parts = [problem(503, "service-busy", "Starting.", {"Retry-After": "1"}), FINE]
    call("version")
    assert server.asked[1][0] - server.asked[0][0] >= 1.0


def test_retry_after_as_a_date_is_understood(call, server):
    server.parts = [
        problem(503, "service-busy", "Starting.", {"Retry-After": formatdate(time.time() + 900, usegmt=True)})
    ]
    with pytest.raises(ServiceBusyError) as caught:
        call("version")
    assert caught.value.retry_after is not None and 800 < caught.value.retry_after <= 900


def test_a_retry_after_beyond_the_deadline_is_not_waited_for(call, server):
    server.parts = [problem(429, "service-busy", "The queue is full.", {"Retry-After": "300"})]
    with pytest.raises(ServiceBusyError) as caught:
        call("version")
    assert (caught.value.retry_after, len(server.asked)) == (300.0, 1)


def test_after_the_last_retry_the_service_is_busy(call, server):
    server.parts = [BUSY]
    with pytest.raises(ServiceBusyError, match="The queue is full."):
        call("version", max_retries=2)
    assert len(server.asked) == 3


def test_zero_retries_ask_once(call, server):
    server.parts = [BUSY]
    with pytest.raises(ServiceBusyError):
        call("version", max_retries=0)
    assert len(server.asked) == 1


def test_a_missing_backend_is_not_tried_again_although_it_is_a_503(call, server):
    server.parts = [problem(503, "backend-unavailable", "No CUDA here.", {"Retry-After": "0"})]
    with pytest.raises(BackendUnavailableError, match="No CUDA here."):
        call("version")
    assert len(server.asked) == 1


def test_a_timeout_of_the_service_is_not_tried_again(call, server):
    server.parts = [problem(504, "remote-timeout", "The work took longer than 600 s.")]
    with pytest.raises(RemoteTimeoutError, match="longer than 600 s"):
        call("version")
    assert len(server.asked) == 1


def test_a_refusal_arrives_with_class_sentence_and_fields(call, server):
    local = ReferenceRejectsError.because("bias", got="3 numbers", wanted="N = 16", hint="Count again.")
    server.parts = [problem(422, "reference-rejects", local.message, None, **local.details())]
    with pytest.raises(ReferenceRejectsError) as caught:
        call("version")
    assert (caught.value.message, caught.value.details()) == (local.message, local.details())


def test_an_unknown_problem_is_a_remote_error(call, server):
    server.parts = [problem(418, "teapot", "Short and stout.")]
    with pytest.raises(RemoteError, match="Short and stout.") as caught:
        call("version")
    assert type(caught.value) is RemoteError


def test_a_slow_reply_meets_the_deadline(call, server):
    server.parts = [lambda handler: time.sleep(5)]
    start = time.monotonic()
    with pytest.raises(RemoteTimeoutError, match="MMAEMU_TIMEOUT"):
        call("version", timeout=0.5)
    assert time.monotonic() - start < 2.5


def trickle(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    for _ in range(50):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.1)


def test_a_trickling_reply_meets_the_deadline(call, server):
    server.parts = [trickle]
    start = time.monotonic()
    with pytest.raises(RemoteTimeoutError):
        call("version", timeout=0.5)
    assert time.monotonic() - start < 2.5


def test_retries_do_not_stretch_the_deadline(call, server):
    def slow_and_busy(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(0.4)
        BUSY(handler)

    server.parts = [slow_and_busy]
    start = time.monotonic()
    with pytest.raises((RemoteTimeoutError, ServiceBusyError)):
        call("version", timeout=1.0, max_retries=50)
    assert time.monotonic() - start < 2.5


def cut_short(handler: BaseHTTPRequestHandler) -> None:
    body = result(WORDS)
    handler.send_response(200)
    handler.send_header("Content-Type", wire.CONTENT_TYPE)
    handler.send_header("Content-Digest", digest(body))
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[:-1])
    handler.close_connection = True


def test_a_reply_that_breaks_off_is_a_bad_reply(call, server):
    server.parts = [cut_short]
    with pytest.raises(BadReplyError, match="broke off"):
        call("scaled_mm", *OPERANDS, out_dtype="bfloat16", max_retries=1)


def test_a_reply_that_breaks_off_once_is_tried_again(call, server):
    body = result(WORDS)
    server.parts = [cut_short, reply(200, body, wire.CONTENT_TYPE, Content_Digest=digest(body))]
    assert_bitwise_equal(call("scaled_mm", *OPERANDS, out_dtype="bfloat16"), Bits("bfloat16", WORDS))


DAMAGED = bytearray(result(WORDS))
DAMAGED[-1] ^= 1
SPOILED = {
    "changed bit": (bytes(DAMAGED), wire.CONTENT_TYPE, {"Content_Digest": digest(result(WORDS))}, "SHA-256"),
    "no digest": (result(WORDS), wire.CONTENT_TYPE, {}, "no sha-256"),
    "md5 only": (result(WORDS), wire.CONTENT_TYPE, {"Content_Digest": "md5=:AAAA:"}, "no sha-256"),
    "digest not base64": (result(WORDS), wire.CONTENT_TYPE, {"Content_Digest": "sha-256=:A:"}, "another SHA-256"),
    "short tensor": (result(WORDS)[:-1], wire.CONTENT_TYPE, {"Content_Digest": digest(result(WORDS)[:-1])}, "damaged"),
    "wrong shape": (result(WORDS.T), wire.CONTENT_TYPE, {"Content_Digest": digest(result(WORDS.T))}, r"\(16, 1\)"),
    "wrong dtype": (
        result(WORDS, "float16"),
        wire.CONTENT_TYPE,
        {"Content_Digest": digest(result(WORDS, "float16"))},
        "float16",
    ),
    "web page": (b"<html>hi</html>", "text/html", {"Content_Digest": digest(b"<html>hi</html>")}, "text/html"),
    "compressed": (
        result(WORDS),
        wire.CONTENT_TYPE,
        {"Content_Digest": digest(result(WORDS)), "Content_Encoding": "gzip"},
        "content coding gzip",
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_result_is_a_bad_reply(call, server, name):
    body, content_type, headers, sentence = SPOILED[name]
    server.parts = [reply(200, body, content_type, **headers)]
    with pytest.raises(BadReplyError, match=sentence):
        call("scaled_mm", *OPERANDS, out_dtype="bfloat16")


def test_a_digest_among_others_is_found(call, server):
    body = result(WORDS)
    server.parts = [reply(200, body, wire.CONTENT_TYPE, Content_Digest=f"md5=:AAAA:, {digest(body)}")]
    assert_bitwise_equal(call("scaled_mm", *OPERANDS, out_dtype="bfloat16"), Bits("bfloat16", WORDS))


@pytest.mark.parametrize("status", [200, 301, 404, 500])
def test_a_web_page_is_a_bad_reply_whatever_its_status(call, server, status):
    server.parts = [reply(status, b"<html><h1>Welcome</h1></html>", "text/html; charset=utf-8")]
    with pytest.raises(BadReplyError, match="text/html"):
        call("version")


def test_a_gateway_without_a_service_is_unreachable(call, server):
    server.parts = [reply(502, b"<html>Bad Gateway</html>", "text/html")]
    with pytest.raises(ServiceUnreachableError, match="status 502"):
        call("version", max_retries=1)


def test_json_that_is_not_json_is_a_bad_reply(call, server):
    server.parts = [reply(200, b'{"engine_version": ', "application/json")]
    with pytest.raises(BadReplyError, match="not JSON"):
        call("version")


def test_a_trace_of_another_version_is_a_bad_reply(call, server):
    body = b'{"schema": "mmaemu-trace/999"}'
    server.parts = [reply(200, body, "application/json", Content_Digest=digest(body))]
    with pytest.raises(BadReplyError, match="different versions"):
        call("explain", *OPERANDS, out_dtype="bfloat16")


def test_the_key_travels_as_a_bearer_token(call, server):
    server.parts = [FINE]
    call("version")
    assert server.asked[0][1]["authorization"] == "Bearer k-1"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_no_listener_is_unreachable(kind):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(ServiceUnreachableError) as caught:
        if kind is Client:
            Client(url, max_retries=1).version()
        else:
            asyncio.run(_await(AsyncClient(url, max_retries=1).version))
    assert url in str(caught.value)


async def _await(function):
    return await function()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A key and a certificate for 127.0.0.1 that no public authority signs, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl command")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", f"{path}.crt"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    with path.open("a") as both:
        both.write((path.parent / f"{path.name}.crt").read_text())
    return path


@pytest.fixture
def tls_server(certificate):
    running = FaultyServer(certificate)
    running.parts = [FINE]
    yield running
    running.close()


def test_a_certificate_in_the_bundle_is_trusted(tls_server, certificate, monkeypatch):
    monkeypatch.setenv("MMAEMU_CA_BUNDLE", f"{certificate}.crt")
    with Client(tls_server.url) as client:
        assert client.version() == {"engine_version": "1.2"}


def test_an_unknown_certificate_is_named_at_once_and_points_to_the_bundle(tls_server):
    with (
        Client(tls_server.url, max_retries=9) as client,
        pytest.raises(ServiceUnreachableError, match="MMAEMU_CA_BUNDLE"),
    ):
        start = time.monotonic()
        client.version()
    assert time.monotonic() - start < 2


def test_a_bundle_that_holds_no_certificate_is_refused(tls_server, tmp_path):
    bundle = tmp_path / "ca.pem"
    bundle.write_text("not a certificate")
    with Client(tls_server.url, ca_bundle=str(bundle)) as client, pytest.raises(InvalidInputError, match="ca_bundle"):
        client.version()


def test_one_client_serves_many_threads(server):
    server.parts = [FINE]
    answers: list[object] = []
    with Client(server.url) as client:
        threads = [threading.Thread(target=lambda: answers.append(client.version())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == [{"engine_version": "1.2"}] * 8


def test_a_closed_client_connects_anew(server):
    server.parts = [FINE]
    client = Client(server.url)
    client.version()
    client.close()
    assert client.version() == {"engine_version": "1.2"}
    client.close()


# The first loop ends with its connection open: that is what the second one must not use.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_async_client_serves_one_event_loop_after_another(server):
    server.parts = [FINE]
    client = AsyncClient(server.url)
    assert asyncio.run(_await(client.version)) == asyncio.run(_await(client.version)) == {"engine_version": "1.2"}
    del client
    gc.collect()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs os.fork")
def test_a_client_used_before_a_fork_works_after_it_on_its_own_connection(server):
    ports: list[int] = []

    def remember(handler: BaseHTTPRequestHandler) -> None:
        ports.append(handler.client_address[1])
        FINE(handler)

    server.parts = [remember]
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    with Client(server.url) as client:
        client.version()
        with client._lock:  # a lock held at the fork must not be held for ever in the child
            child = context.Process(target=lambda: queue.put(client.version()))
            child.start()
        child.join(20)
        assert child.exitcode == 0 and queue.get() == {"engine_version": "1.2"}
        client.version()
    assert ports[1] != ports[0] == ports[2]
