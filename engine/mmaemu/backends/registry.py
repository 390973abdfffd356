# SPDX-License-Identifier: Apache-2.0
"""Which backends this machine has, and which one runs a call. Never falls back in silence."""

from __future__ import annotations

from dataclasses import dataclass

from mmaemu.backends import reference
from mmaemu.backends.interface import Backend
from mmaemu.errors import BackendUnavailableError, InvalidInputError
from mmaemu.plan import Plan

_PRESENT: dict[str, Backend] = {"reference": reference}
_ABSENT = {
    "native": "the compiled CPU kernels are not part of this release",
    "cuda": "the CUDA kernels are not part of this release",
}


@dataclass(frozen=True)
class BackendStatus:
    """Whether a backend can run here; `reason` says why not, or what it is."""

    name: str
    available: bool
    reason: str


def backends_status() -> dict[str, BackendStatus]:
    """Every backend that mmaemu knows, by name. Never raises."""
    present = BackendStatus("reference", True, "vectorised numpy integers; the oracle of all others")
    return {"reference": present} | {name: BackendStatus(name, False, why) for name, why in _ABSENT.items()}


def choose(name: str, plan: Plan | None = None) -> tuple[str, Backend]:
    """The backend for `name`; auto is the fastest that is available and runs `plan`. All give the same bits."""
    if name == "auto":
        name = "reference"
    if name in _PRESENT:
        return name, _PRESENT[name]
    if name in _ABSENT:
        raise BackendUnavailableError.because(
            "backend", got=name, wanted="an available backend", hint=f"{_ABSENT[name]}; backend='auto' runs here."
        )
    known = ", ".join(["auto", *_PRESENT, *_ABSENT])
    raise InvalidInputError.because("backend", got=repr(name)[:80], wanted=f"one of {known}")
