# SPDX-License-Identifier: Apache-2.0
"""What every backend offers: `accumulate` of a Plan, on the same arguments, with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mmaemu.model.formats import AnyBits
from mmaemu.plan import Plan

Progress = Callable[[int, int], None]
"""Called with (tiles done, tiles in all). An exception raised in it stops the work and reaches the caller."""


@dataclass(frozen=True)
class Scales:
    """float32 words that broadcast against [M, N]."""

    a: AnyBits
    b: AnyBits


class Backend(Protocol):
    """A module or object that runs plans."""

    def accumulate(
        self, a: AnyBits, b: AnyBits, scales: Scales, plan: Plan, *, threads: int | None, progress: Progress | None
    ) -> AnyBits:
        """[M, N] float32 words of a [M, K] times b [K, N], before the epilogue."""
        ...
