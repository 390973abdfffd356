# SPDX-License-Identifier: Apache-2.0
"""The CUDA backend: the reference's bits on any NVIDIA GPU of compute capability 7.0 or newer, by CuPy.

The GPU need not be the one that is emulated: an older card answers for an H100.
"""

from __future__ import annotations

from functools import cache

from mmaemu.backends.cuda import cupy_device, selfcheck
from mmaemu.backends.cuda.launch import Runner
from mmaemu.backends.interface import Progress
from mmaemu.model.dot_product import Dot
from mmaemu.model.epilogue import Factors
from mmaemu.model.formats import AnyBits
from mmaemu.plan import Plan


def why_missing() -> str | None:
    """Why this machine cannot run it, and what to do; None where it can."""
    return cupy_device.why_missing() or _fault(cupy_device.current())


def describe() -> str:
    """The device that runs it."""
    device = cupy_device.current()
    return f"{device.name}, compute capability {device.capability / 10}; kernels agree with the reference"


@cache
def _fault(device: cupy_device.CupyDevice) -> str | None:
    try:
        return selfcheck.first_fault(device)
    except Exception as error:  # whatever a driver or compiler says, the status has to say it
        return f"{device.name}: {type(error).__name__}: {error}"


def runner() -> Runner:
    """The backend on CuPy's current device."""
    return Runner(cupy_device.current())


def accumulate(
    a: AnyBits, b: AnyBits, factors: Factors, plan: Plan, *, threads: int | None = None,
    progress: Progress | None = None,
) -> AnyBits:  # fmt: skip
    """As `reference.accumulate`."""
    return runner().accumulate(a, b, factors, plan, progress=progress)


def multiply(
    a: AnyBits, b: AnyBits, factors: Factors, plan: Plan, *, threads: int | None = None,
    progress: Progress | None = None,
) -> AnyBits:  # fmt: skip
    """As `reference.multiply`."""
    return runner().multiply(a, b, factors, plan, progress=progress)


def dot(
    a: AnyBits, b: AnyBits, c: AnyBits, how: Dot, *, threads: int | None = None, progress: Progress | None = None
) -> AnyBits:
    """As `reference.dot`."""
    return runner().dot(a, b, c, how, progress=progress)
