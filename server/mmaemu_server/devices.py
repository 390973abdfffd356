# SPDX-License-Identifier: Apache-2.0
"""The worker processes and the calls that wait for them. A worker that dies or overruns is replaced."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue

from mmaemu_server import problems, worker
from mmaemu_server.limits import WorkLimits
from mmaemu_server.problems import ProblemError
from mmaemu_server.work import Answer, Job

# A forked child would inherit the event loop's descriptors and, later, a CUDA context; a spawned one starts clean.
_SPAWN = multiprocessing.get_context("spawn")

_LONGEST_END = 5.0
_LONGEST_START = 120.0


class Worker:
    """One process. Used by one thread at a time, save for `kill`."""

    def __init__(self, allowed: WorkLimits, threads: int) -> None:
        self._allowed = allowed
        self._threads = threads
        self._lock = threading.RLock()
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._ready = False

    def start(self) -> None:
        """Start the process where none runs. It dies with the thread that calls this, which so has to live on."""
        with self._lock:
            if self._process is not None:
                if not wait([self._process.sentinel], timeout=0):
                    return
                self.stop()
            ours, theirs = _SPAWN.Pipe()
            arguments = (theirs, self._allowed, self._threads, os.getpid())
            process = _SPAWN.Process(target=worker.main, args=arguments, name="mmaemu-worker", daemon=True)
            process.start()
            theirs.close()
            self._process, self._pipe, self._ready = process, ours, False

    def answer(self, job: Job, body: bytes | bytearray, seconds: float) -> Answer:
        """A started worker's answer. ProblemError where it dies (503) or does not finish in time (504)."""
        assert self._process is not None and self._pipe is not None
        process, pipe = self._process, self._pipe
        try:
            if not self._ready:
                # Imports take a second or more on a busy machine; they are no part of the call's time.
                if pipe not in wait([pipe, process.sentinel], timeout=_LONGEST_START):
                    raise EOFError
                self._ready = pipe.recv_bytes() == worker.READY
            pipe.send_bytes(worker.job_head(job))
            pipe.send_bytes(body)
            ready = wait([pipe, process.sentinel], timeout=seconds)
            if not ready:
                self.stop()
                raise ProblemError(problems.timed_out(seconds))
            if pipe not in ready:
                raise EOFError
            head = json.loads(pipe.recv_bytes())
            return Answer(head["status"], head["headers"], pipe.recv_bytes())
        except (EOFError, OSError):
            self.stop()
            raise ProblemError(problems.worker_died()) from None

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

    def taken_by(self, worker: Worker) -> bool:
        with self._lock:
            self._worker = None if self._abandoned else worker
            return not self._abandoned

    def finished(self) -> None:
        with self._lock:
            self._worker = None

    def abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            if self._worker is not None:
                self._worker.kill()


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
            # Only now: whoever kills the worker of this call has to find a process.
            if self._closed or not ticket.taken_by(each):
                raise ProblemError(problems.worker_died())  # nobody waits for the answer
            return each.answer(job, body, self._seconds)
        finally:
            ticket.finished()
            self._free.put(each)
