# SPDX-License-Identifier: Apache-2.0
"""Run the service until it is told to stop."""

from __future__ import annotations

import contextlib
import ipaddress
import signal
import socket
import threading

import uvicorn

import mmaemu
from mmaemu_server import logs
from mmaemu_server.app import create_app
from mmaemu_server.settings import Settings


def serve(settings: Settings) -> None:
    """Listen, and return after a clean shutdown: SIGTERM or Ctrl-C, then up to `shutdown_seconds` for running calls."""
    logs.set_up()
    if not _is_loopback(settings.host):
        logs.log.warning(
            {"event": "open", "host": settings.host, "detail": "the service has no keys: whoever reaches it may use it"}
        )
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        headers=[("Server", f"mmaemu/{mmaemu.__version__}")],
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )
    if threading.current_thread() is threading.main_thread():
        # uvicorn shuts down and then raises the signal once more; by then there is nothing left to stop.
        signal.signal(signal.SIGTERM, lambda *_: None)
    with contextlib.suppress(KeyboardInterrupt):
        _Server(config).run()


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for server in self.servers if self.started else ():
            for listening in server.sockets:
                host, port = listening.getsockname()[:2]
                shown = f"[{host}]" if ":" in host else host
                logs.log.info({"event": "listening", "url": f"http://{shown}:{port}/"})


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
