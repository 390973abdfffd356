# SPDX-License-Identifier: Apache-2.0
"""A number about hardware together with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

Confidence = Literal["recorded", "reported", "source", "documented", "assumed", "override"]
"""How well a value is known, best first.

recorded: reproduces hardware words that we hold. reported: hardware words or counts published by others.
source: read in public code. documented: said by the vendor. assumed: the likeliest candidate, not settled.
override: set by the caller.
"""

CONFIDENCES: tuple[str, ...] = get_args(Confidence)


@dataclass(frozen=True)
class Fact:
    """One value of a profile; `candidates` lists what else the evidence allows, for assumed values."""

    value: Any
    confidence: Confidence
    source: str
    candidates: tuple[Any, ...] = ()
