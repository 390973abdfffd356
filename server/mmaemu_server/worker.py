# SPDX-License-Identifier: Apache-2.0
"""A worker process: one job after the other from a pipe, until the pipe closes or its parent dies.

A job is two frames, a small JSON head and a body of bytes, so that tensors are never pickled. The worker sends any
number of progress frames, then the answer's two, or the one that says that it has stopped.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

from mmaemu_server.limits import WorkLimits

_PR_SET_PDEATHSIG = 1
_TELL_EVERY = 0.1

READY = b"ready"
"""The first frame of a worker: its imports are done, and a call's time may start to count."""


def main(pipe: Connection, allowed: WorkLimits, threads: int, parent: int, stop: Any) -> None:
    """Entry point of the process. `stop`: a shared integer, the number of the job that is to end."""
    _die_with(parent)
    # Ctrl-C reaches the whole group; when to stop is for the parent to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("MMAEMU_THREADS", str(threads))

    from mmaemu_server.work import Job, Stopped, execute

    pipe.send_bytes(READY)
    while True:
        try:
            head, body = json.loads(pipe.recv_bytes()), pipe.recv_bytes()
            number = head.pop("number")
            try:
                answer = execute(Job(**head), body, allowed, _progress(pipe, number, stop))
            except Stopped:
                pipe.send_bytes(b'{"stopped": true}')
                continue
            finally:
                del body
            pipe.send_bytes(json.dumps({"status": answer.status, "headers": answer.headers}).encode())
            pipe.send_bytes(answer.body)
            del answer
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def _progress(pipe: Connection, number: int, stop: Any) -> Callable[[int, int], None]:
    """Tells the parent how far a job is, now and then, and ends it between tiles where the parent says so."""
    from mmaemu_server.work import Stopped

    next_time = time.monotonic() + _TELL_EVERY

    def tell(done: int, total: int) -> None:
        nonlocal next_time
        if stop.value == number:
            raise Stopped
        if time.monotonic() >= next_time and done < total:
            pipe.send_bytes(json.dumps({"done": done, "total": total}).encode())
            next_time = time.monotonic() + _TELL_EVERY

    return tell


def job_head(job: Any, number: int) -> bytes:
    return json.dumps({**asdict(job), "number": number}).encode()


def _die_with(parent: int) -> None:
    """On Linux the kernel kills this process when its parent ends, even by kill -9 and in the middle of a product."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it had already died
