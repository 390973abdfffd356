# SPDX-License-Identifier: Apache-2.0
"""A result cut in tiles, and the tiles handed to threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from mmaemu.backends.interface import Progress
from mmaemu.errors import InvalidInputError
from mmaemu.plan import Range

Tile = tuple[Range, Range]
"""The rows and the columns of a rectangle of the result."""

_Piece = TypeVar("_Piece")


def thread_count(threads: int | None) -> int:
    """`threads`, else MMAEMU_THREADS, else the processors that this process may use."""
    if threads is None and (text := os.environ.get("MMAEMU_THREADS")):
        threads = int(text) if text.isascii() and text.isdigit() else 0
        if threads == 0:
            raise InvalidInputError.because(
                "MMAEMU_THREADS", got=repr(text)[:80], wanted="a number of threads, 1 or more"
            )
    return max(_processors() if threads is None else threads, 1)


@cache
def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cover(m: int, n: int, height: int, width: int) -> list[Tile]:
    """Tiles of at most height x width that cover an m x n result, column by column."""
    return [
        ((row, min(m, row + height)), (column, min(n, column + width)))
        for column in range(0, n, width)
        for row in range(0, m, height)
    ]


def in_threads(
    run: Callable[[_Piece], None], pieces: Sequence[_Piece], threads: int, progress: Progress | None
) -> None:
    """`run` for every piece. An exception, of a piece or of `progress`, keeps further pieces from being begun."""
    if len(pieces) <= 1 or threads == 1:
        for done, piece in enumerate(pieces, 1):
            run(piece)
            if progress is not None:
                progress(done, len(pieces))
        return
    with ThreadPoolExecutor(min(threads, len(pieces))) as pool:
        futures = [pool.submit(run, piece) for piece in pieces]
        try:
            for done, future in enumerate(futures, 1):
                future.result()
                if progress is not None:
                    progress(done, len(pieces))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
