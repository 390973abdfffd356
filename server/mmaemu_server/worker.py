# SPDX-License-Identifier: Apache-2.0
"""A worker process: one job after the other from a pipe, until the pipe closes or its parent dies.

A message is two frames, a small JSON head and a body of bytes, so that tensors are never pickled.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from dataclasses import asdict
from multiprocessing.connection import Connection

from mmaemu_server.limits import WorkLimits

_PR_SET_PDEATHSIG = 1

READY = b"ready"
"""The first frame of a worker: its imports are done, and a call's time may start to count."""


def main(pipe: Connection, allowed: WorkLimits, threads: int, parent: int) -> None:
    """Entry point of the process."""
    _die_with(parent)
    # Ctrl-C reaches the whole group; when to stop is for the parent to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("MMAEMU_THREADS", str(threads))

    from mmaemu_server.work import Job, execute

    pipe.send_bytes(READY)
    while True:
        try:
            head, body = json.loads(pipe.recv_bytes()), pipe.recv_bytes()
            answer = execute(Job(**head), body, allowed)
            del body
            pipe.send_bytes(json.dumps({"status": answer.status, "headers": answer.headers}).encode())
            pipe.send_bytes(answer.body)
            del answer
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def job_head(job: object) -> bytes:
    return json.dumps(asdict(job)).encode()  # type: ignore[call-overload]


def _die_with(parent: int) -> None:
    """On Linux the kernel kills this process when its parent ends, even by kill -9 and in the middle of a product."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it had already died
