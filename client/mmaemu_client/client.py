# SPDX-License-Identifier: Apache-2.0
"""Client and AsyncClient. They share every method; only how a request is sent and a wait is waited differs."""

from __future__ import annotations

import atexit
import functools
import os
import ssl
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

import anyio
import anyio.lowlevel
import httpx

from mmaemu.errors import InvalidInputError
from mmaemu_client import operations
from mmaemu_client.exchange import Answer, Exchange, Failure, Send, Wait, attempts
from mmaemu_client.settings import Settings, resolve

P = ParamSpec("P")
T = TypeVar("T")


CONNECT_TIMEOUT = 10.0
"""A host that drops packets is unreachable long before the deadline of a call."""


class Operation(Generic[P, T]):
    """A function that builds an Exchange, as a method: of Client it returns the result, of AsyncClient an awaitable."""

    def __init__(self, build: Callable[P, Exchange[T]]) -> None:
        self.build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Client, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, instance: AsyncClient, owner: type) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, instance: Client | AsyncClient | None, owner: type) -> Any:
        if instance is None:
            return self

        @functools.wraps(self.build)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return instance._run(lambda: self.build(*args, **kwargs))

        return method


class _Operations:
    """The methods of both clients, and their settings."""

    scaled_mm = Operation(operations.scaled_mm)
    accumulate = Operation(operations.accumulate)
    explain = Operation(operations.explain)
    mma = Operation(operations.mma)
    send = Operation(operations.send)
    profiles = Operation(operations.profiles)
    profile = Operation(operations.profile)
    backends = Operation(operations.backends)
    version = Operation(operations.version)
    limits = Operation(operations.limits)
    health = Operation(operations.health)

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.settings.url!r})"

    def _request(self, exchange: Exchange[Any], timeout: float) -> dict[str, Any]:
        # identity: the digest is over the bytes as they travel, and results hardly compress.
        headers = {"user-agent": "mmaemu-client", "accept-encoding": "identity", **exchange.headers}
        if self.settings.api_key is not None:
            headers["authorization"] = f"Bearer {self.settings.api_key}"
        return {
            "method": exchange.method,
            "url": self.settings.url + exchange.path,
            "headers": headers,
            "content": exchange.content,
            "timeout": httpx.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT)),
        }

    def _tls(self) -> ssl.SSLContext | bool:
        bundle = self.settings.ca_bundle
        if bundle is None:
            return True
        try:
            return ssl.create_default_context(cafile=bundle)
        except (OSError, ssl.SSLError):
            wanted = "a readable file of PEM certificates"
            raise InvalidInputError.because("ca_bundle", got="a file that does not load", wanted=wanted) from None


class Client(_Operations):
    """A service as an object with the local calls as methods. Threads may share one; so may a process and its forks.

    url and the keywords default to MMAEMU_URL, MMAEMU_API_KEY, MMAEMU_TIMEOUT, MMAEMU_MAX_RETRIES, MMAEMU_CA_BUNDLE.
    Connections open on first use and are kept; `close`, or leaving a `with` block, lets go of them.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float | None = None,
        max_retries: int | None = None,
        ca_bundle: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(resolve(url, api_key=api_key, timeout=timeout, max_retries=max_retries, ca_bundle=ca_bundle))
        self._transport = transport
        self._http: httpx.Client | None = None
        self._lock = threading.Lock()
        self._inherited: list[httpx.Client] = []
        _clients.add(self)

    def close(self) -> None:
        with self._lock:
            http, self._http = self._http, None
        if http is not None:
            http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, build: Callable[[], Exchange[T]]) -> T:
        exchange = build()
        conversation = attempts(exchange, self.settings)
        step = next(conversation)
        try:
            while True:
                if isinstance(step, Wait):
                    time.sleep(step.seconds)
                    step = conversation.send(None)
                else:
                    step = conversation.send(self._send(exchange, step))
        except StopIteration as end:
            result: T = end.value
            return result

    def _send(self, exchange: Exchange[Any], step: Send) -> Answer | Failure:
        end = time.monotonic() + step.timeout
        begun = False
        try:
            with self._connections().stream(**self._request(exchange, step.timeout)) as reply:
                begun = True
                chunks = []
                for chunk in reply.iter_raw():
                    # httpx's timeout is for each read; a reply that trickles would outlive the deadline.
                    if time.monotonic() > end:
                        raise httpx.ReadTimeout("the deadline passed")
                    chunks.append(chunk)
                return Answer(reply.status_code, reply.headers, bytearray().join(chunks))
        except httpx.TransportError as error:
            return _failure(error, begun)

    def _connections(self) -> httpx.Client:
        with self._lock:
            if self._http is None:
                self._http = httpx.Client(verify=self._tls(), transport=self._transport)
            return self._http

    def _after_fork(self) -> None:
        # The lock may be held by a thread that the child does not have. The parent's connections are kept, unused:
        # closing them here could speak on sockets that the parent still uses.
        self._lock = threading.Lock()
        if self._http is not None:
            self._inherited.append(self._http)
            self._http = None


class AsyncClient(_Operations):
    """Client for async code: the same methods, awaited, from any event loop."""

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float | None = None,
        max_retries: int | None = None,
        ca_bundle: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(resolve(url, api_key=api_key, timeout=timeout, max_retries=max_retries, ca_bundle=ca_bundle))
        self._transport = transport
        self._http: httpx.AsyncClient | None = None
        self._home: object = None

    async def aclose(self) -> None:
        http, self._http = self._http, None
        if http is not None and self._home == _here():
            await http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _run(self, build: Callable[[], Exchange[T]]) -> T:
        exchange = build()
        conversation = attempts(exchange, self.settings)
        step = next(conversation)
        try:
            while True:
                if isinstance(step, Wait):
                    await anyio.sleep(step.seconds)
                    step = conversation.send(None)
                else:
                    step = conversation.send(await self._send(exchange, step))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _send(self, exchange: Exchange[Any], step: Send) -> Answer | Failure:
        begun = False
        try:
            with anyio.fail_after(step.timeout):
                async with self._connections().stream(**self._request(exchange, step.timeout)) as reply:
                    begun = True
                    body = bytearray().join([chunk async for chunk in reply.aiter_raw()])
                    return Answer(reply.status_code, reply.headers, body)
        except TimeoutError as error:
            return Failure(error, begun, timed_out=True)
        except httpx.TransportError as error:
            return _failure(error, begun)

    def _connections(self) -> httpx.AsyncClient:
        # Connections belong to the event loop, and the process, that opened them.
        if self._http is None or self._home != _here():
            self._http = httpx.AsyncClient(verify=self._tls(), transport=self._transport)
            self._home = _here()
        return self._http


def _failure(error: httpx.TransportError, begun: bool) -> Failure:
    timed_out = isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout)
    return Failure(error, begun, timed_out)


def _here() -> tuple[int, object]:
    return os.getpid(), anyio.lowlevel.current_token()


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for client in list(_clients):
        client._after_fork()


@atexit.register
def _close_all() -> None:
    for client in list(_clients):
        client.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
