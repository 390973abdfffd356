# SPDX-License-Identifier: Apache-2.0
"""What every backend offers, on the same arguments, with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mmaemu.model.dot_product import Dot
from mmaemu.model.epilogue import Factors
from mmaemu.model.formats import AnyBits
from mmaemu.plan import Plan

Progress = Callable[[int, int], None]
"""Called with (tiles done, tiles in all). An exception raised in it stops the work and reaches the caller."""


class Backend(Protocol):
    """A module or object that runs plans of one part, on operands that already hold the plan's padding.

    `execute.py` cuts a plan in its parts and pads operands, so that no backend has to.
    """

    def accumulate(
        self, a: AnyBits, b: AnyBits, factors: Factors, plan: Plan, *, threads: int | None, progress: Progress | None
    ) -> AnyBits:
        """[M, N] float32 words of a [M, K] times b [K, N], before the epilogue."""
        ...

    def multiply(
        self, a: AnyBits, b: AnyBits, factors: Factors, plan: Plan, *, threads: int | None, progress: Progress | None
    ) -> AnyBits:
        """[M, N] output words of the same product, epilogue included."""
        ...

    def dot(
        self, a: AnyBits, b: AnyBits, c: AnyBits, how: Dot, *, threads: int | None, progress: Progress | None
    ) -> AnyBits:
        """[count] accumulator words of one instruction, chained over rows of [count, K] words."""
        ...
