# SPDX-License-Identifier: Apache-2.0
"""The worker processes and the calls that wait for them. A worker that dies or overruns is replaced."""

from __future__ import annotations

import asyncio
import itertools
import json
import multiprocessing
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from typing import Any

from mmaemu_server import problems, worker
from mmaemu_server.limits import WorkLimits
from mmaemu_server.problems import ProblemError
from mmaemu_server.work import Answer, Job

# A forked child would inherit the event loop's descriptors and, later, a CUDA context; a spawned one starts clean.
_SPAWN = multiprocessing.get_context("spawn")

_LONGEST_END = 5.0
_LONGEST_START = 120.0
_GRACE = 5.0
"""Seconds that a worker has to end a call between two tiles, which take tenths of a second on compiled kernels, and one
or two on the reference; then its process is killed, and the next call waits for another one's imports."""


@dataclass
class Now:
    """The call that a worker is on."""

    job: Job
    number: int
    began: float = field(default_factory=time.monotonic)
    computes: bool = False
    share: float | None = None


class Worker:
    """One process. Used by one thread at a time, save for `ask_to_stop`, `kill` and `status`."""

    def __init__(self, allowed: WorkLimits, threads: int) -> None:
        self._allowed = allowed
        self._threads = threads
        self._lock = threading.RLock()
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._ready = False
        self._numbers = itertools.count(1)
        self._now: Now | None = None
        # Numbers are never used again, so that a word that comes too late stops nothing.
        self._stop: Any = _SPAWN.RawValue("q", 0)

    def start(self) -> None:
        """Start the process where none runs. It dies with the thread that calls this, which so has to live on."""
        with self._lock:
            if self._process is not None:
                if not wait([self._process.sentinel], timeout=0):
                    return
                self.stop()
            ours, theirs = _SPAWN.Pipe()
            arguments = (theirs, self._allowed, self._threads, os.getpid(), self._stop)
            process = _SPAWN.Process(target=worker.main, args=arguments, name="mmaemu-worker", daemon=True)
            process.start()
            theirs.close()
            self._process, self._pipe, self._ready = process, ours, False

    def begin(self, job: Job) -> None:
        """From here to `end` the worker is on this call, and can be asked to stop it."""
        self._now = Now(job, next(self._numbers))

    def end(self) -> None:
        self._now = None

    def answer(self, body: bytes | bytearray, seconds: float) -> Answer:
        """A started worker's answer. ProblemError where it dies or is told to stop (503), or takes too long (504)."""
        assert self._process is not None and self._pipe is not None and self._now is not None
        process, pipe, now = self._process, self._pipe, self._now
        try:
            if not self._ready:
                # Imports take a second or more on a busy machine; they are no part of the call's time.
                if pipe not in wait([pipe, process.sentinel], timeout=_LONGEST_START):
                    raise EOFError
                self._ready = pipe.recv_bytes() == worker.READY
            if self._stop.value == now.number:
                raise ProblemError(problems.worker_died())  # asked to stop before it began
            now.began, now.computes = time.monotonic(), True
            pipe.send_bytes(worker.job_head(now.job, now.number))
            pipe.send_bytes(body)
            found = self._result(now.began + seconds)
            if found is None:
                self.ask_to_stop()
                if self._result(time.monotonic() + _GRACE) is None:
                    self.stop()
                raise ProblemError(problems.timed_out(seconds))
            if isinstance(found, Answer):
                return found
            raise ProblemError(problems.worker_died())  # nobody waits for it
        except (EOFError, OSError):
            self.stop()
            raise ProblemError(problems.worker_died()) from None

    def _result(self, deadline: float) -> Answer | str | None:
        """The answer, the word that the worker has stopped, or None where the deadline comes first."""
        process, pipe, now = self._process, self._pipe, self._now
        assert process is not None and pipe is not None and now is not None
        while ready := wait([pipe, process.sentinel], timeout=max(0.0, deadline - time.monotonic())):
            if pipe not in ready:
                raise EOFError
            head = json.loads(pipe.recv_bytes())
            if "status" in head:
                return Answer(head["status"], head["headers"], pipe.recv_bytes())
            if "stopped" in head:
                return "stopped"
            now.share = head["done"] / head["total"]
        return None

    def ask_to_stop(self) -> None:
        """The call of this moment ends between two tiles, and the process lives on. Safe from any thread."""
        now = self._now
        if now is not None:
            self._stop.value = now.number

    def status(self) -> dict[str, Any]:
        """What it does at this moment, for GET /v1/work."""
        now = self._now
        if now is None:
            return {"state": "idle" if self._process is not None else "stopped"}
        seconds = round(time.monotonic() - now.began, 3)
        return {
            "state": "busy" if now.computes else "starting",
            "op": now.job.op,
            "request_id": now.job.request_id,
            "seconds": seconds,
            "share_done": None if now.share is None else round(now.share, 4),
        }

    def kill_if_computing(self) -> None:
        """`kill`, but for a process that is still at its imports: it has not begun, and will not."""
        now = self._now
        if now is not None and now.computes:
            self.kill()

    def kill(self) -> None:
        """End the process at once; the thread that waits for its answer sees it die. Safe from any thread."""
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def stop(self) -> None:
        """End the process and forget it; the next call starts another."""
        with self._lock:
            if self._process is not None and self._pipe is not None:
                self._process.kill()
                self._process.join(_LONGEST_END)
                self._pipe.close()
            self._process = self._pipe = None


class _Ticket:
    """One call on its way: lets the waiting side stop the worker only while the worker is on this call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._abandoned = False
        self._timer: threading.Timer | None = None

    def taken_by(self, worker: Worker) -> bool:
        with self._lock:
            self._worker = None if self._abandoned else worker
            return not self._abandoned

    def finished(self) -> None:
        with self._lock:
            self._worker = None
            if self._timer is not None:
                self._timer.cancel()

    def abandon(self) -> None:
        """The worker stops between two tiles; where that takes too long, its process is killed."""
        with self._lock:
            self._abandoned = True
            if self._worker is not None:
                self._worker.ask_to_stop()
                self._timer = threading.Timer(_GRACE, self._kill)
                self._timer.daemon = True
                self._timer.start()

    def _kill(self) -> None:
        with self._lock:
            if self._worker is not None:
                self._worker.kill_if_computing()


class Pool:
    """All workers. Threads carry the calls, one a worker, so a waiting call costs the event loop nothing."""

    def __init__(self, workers: int, allowed: WorkLimits, seconds: float) -> None:
        threads = max(1, len(os.sched_getaffinity(0)) // workers) if hasattr(os, "sched_getaffinity") else 1
        self._seconds = seconds
        self._workers = [Worker(allowed, threads) for _ in range(workers)]
        self._free: SimpleQueue[Worker] = SimpleQueue()
        for each in self._workers:
            self._free.put(each)
        # Its threads live until `close`, and the workers that they start with them.
        self._closed = False
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="mmaemu-device")

    def start(self) -> None:
        """Start every worker in the background, so that the first call does not wait for imports."""
        for _ in self._workers:
            self._threads.submit(self._warm_up)

    def status(self) -> list[dict[str, Any]]:
        """What each worker does at this moment. Waits for nothing."""
        return [each.status() for each in self._workers]

    async def run(self, job: Job, body: bytes | bytearray) -> Answer:
        """The answer of the next free worker. Cancelling this stops the work, also in mid-product."""
        ticket = _Ticket()
        future = self._threads.submit(self._carry, ticket, job, body)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            ticket.abandon()
            raise

    def close(self) -> None:
        """Stop all workers; calls that still run see theirs die."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for each in self._workers:
            each.kill()
        self._threads.shutdown(wait=True)
        for each in self._workers:
            each.stop()

    def _warm_up(self) -> None:
        each = self._free.get()
        try:
            each.start()
        finally:
            self._free.put(each)

    def _carry(self, ticket: _Ticket, job: Job, body: bytes | bytearray) -> Answer:
        each = self._free.get()
        try:
            each.start()
            each.begin(job)
            # Only now: whoever stops the worker of this call has to find it at work.
            if self._closed or not ticket.taken_by(each):
                raise ProblemError(problems.worker_died())  # nobody waits for the answer
            return each.answer(body, self._seconds)
        finally:
            ticket.finished()
            each.end()
            self._free.put(each)
