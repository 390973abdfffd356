# SPDX-License-Identifier: Apache-2.0
"""What one call may ask for, checked from its shapes before any work starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mmaemu.calls import Cost
from mmaemu.errors import LimitExceededError
from mmaemu_server.settings import Settings


class WorkLimitError(LimitExceededError):
    """The body is well within its limit, but the work that it asks for is not: 422 instead of 413."""

    status: ClassVar[int] = 422


@dataclass(frozen=True)
class WorkLimits:
    """The limits that a worker checks, apart from settings so that a worker need not load them."""

    macs: int
    k: int
    result_bytes: int
    json_result_bytes: int
    cells: int
    trace_terms: int


def work_limits(settings: Settings) -> WorkLimits:
    return WorkLimits(
        macs=settings.max_macs,
        k=settings.max_k,
        result_bytes=settings.max_result_bytes,
        json_result_bytes=settings.max_json_result_bytes,
        cells=settings.max_cells,
        trace_terms=settings.max_trace_terms,
    )


def check(cost: Cost, limits: WorkLimits, *, explain: bool, json_reply: bool) -> None:
    """Raise WorkLimitError for the first limit that `cost` is above."""
    _at_most("K", cost.k, limits.k)
    if explain:
        _at_most("cells", cost.cells, limits.cells, "Ask for the others in another call.")
        # Without cells it is K alone: the plan lists every chunk.
        _at_most("cells * K", cost.macs, limits.trace_terms, "Ask for fewer cells in one call.")
        return
    _at_most("M * N * K", cost.macs, limits.macs, "Cut the product along M or N: the bits do not change.")
    _at_most("result bytes", cost.result_bytes, limits.result_bytes, "Cut the product along M or N.")
    if json_reply:
        hint = "Ask for application/vnd.safetensors in the Accept header."
        _at_most("result bytes as JSON", cost.result_bytes, limits.json_result_bytes, hint)


def _at_most(field: str, got: int, limit: int, hint: str = "") -> None:
    if got > limit:
        raise WorkLimitError.because(field, got=got, wanted=f"at most {limit}", hint=hint)


def as_json(settings: Settings) -> dict[str, int | float]:
    """What GET /v1/limits shows."""
    shown = ("workers", "queue_length", "timeout_seconds", "body_timeout_seconds")
    names = [name for name in Settings.model_fields if name in shown or name.startswith("max_")]
    return {name: getattr(settings, name) for name in names}
