# SPDX-License-Identifier: Apache-2.0
"""Which backends this machine has, and which one runs a call. Never falls back in silence."""

from __future__ import annotations

from dataclasses import dataclass

from mmaemu.backends import cuda, native, reference
from mmaemu.backends.interface import Backend
from mmaemu.backends.native import library
from mmaemu.errors import BackendUnavailableError, InvalidInputError

_BACKENDS: dict[str, Backend] = {"reference": reference, "native": native, "cuda": cuda}
PREFERRED = "native"
"""What auto means where it is available; tests set it to hold each backend against the oracle."""
_KERNELS = {"avx512": "AVX-512", "avx2": "AVX2 and FMA", "plain": "plain C++, for this processor lacks AVX2 and FMA"}


@dataclass(frozen=True)
class BackendStatus:
    """Whether a backend can run here; `reason` says why not, or what it is."""

    name: str
    available: bool
    reason: str


@dataclass(frozen=True)
class Choice:
    """The backend of a call, and why it is not the one that runs most calls, where it is not."""

    name: str
    backend: Backend
    note: str = ""


def backends_status() -> dict[str, BackendStatus]:
    """Every backend that mmaemu knows, by name. Never raises."""
    return {
        "reference": BackendStatus("reference", True, "vectorised numpy integers; the oracle of all others"),
        "native": _native_status(),
        "cuda": _cuda_status(),
    }


def _native_status() -> BackendStatus:
    if library.load() is None:
        return BackendStatus("native", False, library.why_missing())
    return BackendStatus("native", True, f"compiled kernels; fp8 by {_KERNELS[library.fastest()]}")


def _cuda_status() -> BackendStatus:
    missing = cuda.why_missing()
    return BackendStatus("cuda", missing is None, missing or cuda.describe())


def choose(name: str) -> Choice:
    """The backend for `name`; auto is native where it is available, else the reference.

    All give the same bits. BackendUnavailableError where the named one is missing.
    """
    if name == "auto" and (PREFERRED == "reference" or library.load() is not None):
        return Choice(PREFERRED, _BACKENDS[PREFERRED])
    status = backends_status()
    if name == "auto":
        return Choice("reference", reference, f"native: {status['native'].reason}")
    if name not in status:
        known = ", ".join(["auto", *status])
        raise InvalidInputError.because("backend", got=repr(name)[:80], wanted=f"one of {known}")
    if not status[name].available:
        hint = f"{status[name].reason}. backend='auto' runs here."
        raise BackendUnavailableError.because("backend", got=name, wanted="a backend that runs here", hint=hint)
    return Choice(name, _BACKENDS[name])
