# SPDX-License-Identifier: Apache-2.0
"""What the conformance tests share: every backend and kernel that runs here, operands, agreement with the reference.

A backend that joins is one more entry of ENGINES; the tests' bodies stay as they are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.support import cuda_device
from tests.support.cuda_device import HostDevice
from tests.support.exact_operands import seeded

import mmaemu
from mmaemu import Bits
from mmaemu.backends import cuda
from mmaemu.backends.cuda.launch import Runner
from mmaemu.backends.native import library, sums
from mmaemu.testing import assert_bitwise_equal

HOPPER, ADA, NEWER = "h100-pcie-cublaslt12.8", "l40s", "h100-pcie-cublaslt12.9"
E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
SHORT = {E4M3: "e4m3", E5M2: "e5m2"}
PAIRS = [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3)]
SCHEMES = ("compute_type", "output_type", "inplace")
ONE = np.float32(1)
ODD = np.array([
    0x3F800000, 0x3EAAAAAB, 0xBFB504F3, 0x00000001, 0x7F7FFFFF, 0x0DA24260, 0x58635FA9, 0x00000000, 0x80000000,
    0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x3C000000, 0x43E00000,
], np.uint32)  # fmt: skip
"""Scales at the edges of float32; the first nine are finite."""
BIASES = np.array([0x3F81, 0xC2F7, 0, 0x8000, 1, 0x7F7F, 0x7F80, 0xFF80, 0xFFC1, 0xB9A0, 0x4380], np.uint16)


@dataclass(frozen=True)
class Engine:
    """A backend, and the kernel that it is to use for fp8."""

    backend: str
    kernel: str

    def __str__(self) -> str:
        return f"{self.backend}-{self.kernel}"

    def use(self, monkeypatch):
        """Until the test ends, fp8 goes to this engine's kernel."""
        monkeypatch.setattr(sums, "KERNEL", self.kernel)
        return self

    def agree(self, a, b, *scales, **options: Any) -> None:
        """This engine equals the reference, in accumulators and in outputs."""
        options = {"out_dtype": "float32", **options}
        bias = options.pop("bias", None)
        scale_a, scale_b = scales or (ONE, ONE)
        got = mmaemu.scaled_mm(a, b, scale_a, scale_b, bias, backend=self.backend, **options)
        assert_bitwise_equal(got, mmaemu.scaled_mm(a, b, scale_a, scale_b, bias, backend="reference", **options))
        options.pop("scale_result", None)
        self.agree_on_sums(a, b, scale_a=scale_a, scale_b=scale_b, **options)

    def agree_on_sums(self, a, b, **options: Any) -> None:
        got = mmaemu.accumulate(a, b, backend=self.backend, **options)
        assert_bitwise_equal(got, mmaemu.accumulate(a, b, backend="reference", **options))


@dataclass(frozen=True)
class CudaOnHost(Engine):
    """The CUDA backend with its kernels compiled for the CPU, threads of a block in the given order."""

    order: str = "shuffled"

    def use(self, monkeypatch):
        runner = Runner(HostDevice(self.order), self.kernel)
        for name, value in {
            "why_missing": lambda: None,
            "describe": lambda: str(self),
            "runner": lambda: runner,
        }.items():
            monkeypatch.setattr(cuda, name, value)
        return self


def engines() -> list[Engine]:
    """Those that run on this machine."""
    return [*compiled(), *on_host()]


def on_host() -> list[Engine]:
    """The CUDA kernels, without a GPU; none where they cannot be compiled, or where one build of another backend is
    what is asked for."""
    if cuda_device.compiler() is None or "MMAEMU_KERNELS" in os.environ:
        return []
    return [CudaOnHost("cuda", "v1"), CudaOnHost("cuda", "v4", "backward"), CudaOnHost("cuda", "v9")]


def compiled() -> list[Engine]:
    """None where the compiled kernels are missing."""
    found = library.load()
    names = [] if found is None else [name for name in library.KERNELS if library.has(name)]
    needed = os.environ.get("MMAEMU_NEEDS_KERNEL")
    assert needed is None or needed in names, f"this build or processor lacks the kernel {needed}"
    return [Engine("native", name) for name in names]


ENGINES = engines()


def finite(array, dtype):
    """The same words without NaN and Inf."""
    largest = 0x7E if dtype == E4M3 else 0x7B
    return np.where((array & 0x7F) > largest, (array & 0x80) | largest, array).astype(np.uint8)


def matrices(pair, m, n, k, seed, special=False):
    """Adversarial operands [m, k] and [k, n], in torch's layouts."""
    random = np.random.default_rng(seed)
    a = random.permutation(seeded(SHORT[pair[0]], (max(m, 6), k), seed))[:m]
    b = random.permutation(seeded(SHORT[pair[1]], (max(n, 6), k), seed + 1))[:n]
    if not special:
        a, b = finite(a, pair[0]), finite(b, pair[1])
    return Bits(pair[0], a), Bits(pair[1], b.T)
