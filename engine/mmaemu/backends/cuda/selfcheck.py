# SPDX-License-Identifier: Apache-2.0
"""A device's kernels against the reference, before the first call is trusted to them."""

from __future__ import annotations

import numpy as np

from mmaemu import profiles
from mmaemu.backends import reference
from mmaemu.backends.cuda.device import Device
from mmaemu.backends.cuda.launch import KERNELS, Runner
from mmaemu.model import formats
from mmaemu.model.epilogue import Factors
from mmaemu.model.formats import AnyBits
from mmaemu.plan import Part, Plan, Split

_M, _N, _K, _CHUNK = 70, 80, 336, 128
_SCALING = "tensor_wise"
_PROFILES = ("h200", "l40s")
_ONE = np.full((1, 1), 0x3F800000, np.uint32)


def first_fault(device: Device) -> str | None:
    """What a kernel of this device computes otherwise than the reference; None where all agree.

    Words of both fp8 formats, of every exponent, NaN and infinities too, fast and slow, by both rules: a compiler or
    device that rounds otherwise, flushes subnormals or reads structures otherwise shows here.
    """
    random = np.random.default_rng(8)
    a, b = (random.integers(0, 256, (lines, _K)).astype(np.uint8) for lines in (_M, _N))
    a[2:], b[3:] = _finite(a[2:], formats.E4M3.max_finite), _finite(b[3:], formats.E5M2.max_finite)
    factors = Factors(_ONE, _ONE)
    for name in _PROFILES:
        for chunk in (_K, _CHUNK):
            layout = _plan(name, chunk)
            want = reference.multiply(a, b.T, factors, layout, threads=1)
            for kernel in filter(device.has, KERNELS):
                got = Runner(device, kernel).multiply(a, b.T, factors, layout)
                wrong = int(np.count_nonzero(got != want))
                if wrong:
                    return (
                        f"{kernel} on {device.name}: {wrong} of {want.size} outputs differ from the reference ({name})"
                    )
    return None


def _plan(name: str, chunk: int) -> Plan:
    profile = profiles.get(name)
    instruction = profile.instruction_of(profile.gemm, "e4m3", "e5m2")
    chunks = tuple((start, min(_K, start + chunk)) for start in range(0, _K, chunk))
    part = Part((0, _M), (0, _N), (Split(0, _K, chunks),))
    return Plan(
        _M, _N, _K, formats.E4M3, formats.E5M2, formats.BF16, _SCALING, instruction, profile.gemm, (part,),
        "compute_type", (),
    )  # fmt: skip


def _finite(words: AnyBits, largest: int) -> AnyBits:
    """The same words with zeros for NaN and infinities."""
    return np.where((words & 0x7F) > largest, words & 0x80, words).astype(np.uint8)
