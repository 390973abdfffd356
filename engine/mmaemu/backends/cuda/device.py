# SPDX-License-Identifier: Apache-2.0
"""What the CUDA backend asks of a device: memory, copies, launches. CuPy is one; tests have one on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from mmaemu.model.formats import AnyBits

Array = Any
"""An array in the device's memory, with numpy's shape, dtype, strides (bytes) and slicing."""


class Device(Protocol):
    """One GPU. Launches and copies are in order; only `get` and `wait` wait for them."""

    name: str
    """What people call it, such as "NVIDIA H200 (cuda:0)"."""

    def holds(self, words: Any) -> bool:
        """Whether an array lies in this device's memory."""
        ...

    def put(self, words: AnyBits) -> Array:
        """A copy of a contiguous array on the device."""
        ...

    def get(self, words: Array) -> AnyBits:
        """A copy of an array on the host."""
        ...

    def empty(self, shape: Sequence[int], dtype: DTypeLike) -> Array: ...

    def zeros(self, shape: Sequence[int], dtype: DTypeLike) -> Array: ...

    def address(self, words: Array) -> int:
        """Where an array's first word lies."""
        ...

    def has(self, kernel: str) -> bool:
        """Whether kernels of this name (v1, v4, v9) run here."""
        ...

    def launch(self, kernel: str, grid: tuple[int, int], threads: int, arguments: ctypes.Structure) -> None: ...

    def wait(self) -> None:
        """Until everything launched so far is done."""
        ...


class Tables:
    """Small arrays that go to the device in one copy."""

    _ALIGNED = 16

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, array: np.ndarray[Any, Any]) -> int:
        """Where it will begin."""
        data = np.ascontiguousarray(array).tobytes()
        data += bytes(-len(data) % self._ALIGNED)
        start, self._size = self._size, self._size + len(data)
        self._parts.append(data)
        return start

    def put(self, device: Device) -> Array:
        return device.put(np.frombuffer(b"".join(self._parts), np.uint8))
