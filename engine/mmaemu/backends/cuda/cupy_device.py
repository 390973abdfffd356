# SPDX-License-Identifier: Apache-2.0
"""A GPU by CuPy. Work goes to CuPy's current stream of the device."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from mmaemu.backends.cuda import compiler
from mmaemu.backends.cuda.device import Array
from mmaemu.model.formats import AnyBits

_INSTALL = "pip install 'mmaemu[cuda12]' or 'mmaemu[cuda13]', whichever CUDA version nvidia-smi shows"


def why_missing() -> str | None:
    """What keeps this machine from running kernels, and what to do; None where nothing does."""
    try:
        import cupy
    except ImportError as error:
        return f"CuPy is not installed ({error}): {_INSTALL}"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no CUDA device can be used: {str(error).rstrip('.')}; see what nvidia-smi says"
    if count == 0:
        return "no CUDA device is visible (CUDA_VISIBLE_DEVICES?)"
    capability = int(cupy.cuda.Device().compute_capability)
    if capability < compiler.OLDEST:
        return f"the device has compute capability {capability / 10}; the kernels need {compiler.OLDEST / 10} or newer"
    return None


class CupyDevice:
    """`device.Device` by CuPy."""

    def __init__(self, index: int) -> None:
        import cupy
        from cupy_backends.cuda.libs import nvrtc

        self._cupy: Any = cupy
        self._nvrtc = nvrtc
        self._device = cupy.cuda.Device(index)
        self.index = index
        self.capability = int(self._device.compute_capability)
        with self._device:
            model = cupy.cuda.runtime.getDeviceProperties(index)["name"].decode()
        self.name = f"{model} (cuda:{index})"
        self._modules: dict[str, Any] = {}
        self._loading = threading.Lock()

    def holds(self, words: Any) -> bool:
        return isinstance(words, self._cupy.ndarray) and words.device.id == self.index

    def put(self, words: AnyBits) -> Array:
        with self._device:
            return self._cupy.asarray(words)

    def get(self, words: Array) -> AnyBits:
        with self._device:
            found: AnyBits = self._cupy.asnumpy(words)
            return found

    def empty(self, shape: Sequence[int], dtype: DTypeLike) -> Array:
        with self._device:
            return self._cupy.empty(tuple(shape), dtype)

    def zeros(self, shape: Sequence[int], dtype: DTypeLike) -> Array:
        with self._device:
            return self._cupy.zeros(tuple(shape), dtype)

    def address(self, words: Array) -> int:
        return int(words.data.ptr)

    def has(self, kernel: str) -> bool:
        return kernel in compiler.UNITS

    def launch(self, kernel: str, grid: tuple[int, int], threads: int, arguments: ctypes.Structure) -> None:
        size = ctypes.sizeof(arguments)
        # CuPy passes a structure by value as an array of one numpy structure.
        packed = np.frombuffer(bytes(arguments), np.dtype({"names": ["bytes"], "formats": [(np.uint8, (size,))]}))
        with self._device:
            self._module(compiler.unit_of(kernel)).get_function(kernel)(grid, (threads,), (packed,))

    def wait(self) -> None:
        with self._device:
            self._cupy.cuda.get_current_stream().synchronize()

    def _module(self, unit: str) -> Any:
        with self._loading:
            if unit not in self._modules:
                path = compiler.code(unit, self.capability, self._nvrtc)
                self._modules[unit] = self._cupy.RawModule(path=str(path))
            return self._modules[unit]


@cache
def device(index: int) -> CupyDevice:
    return CupyDevice(index)


def current() -> CupyDevice:
    """CuPy's current device."""
    import cupy

    return device(int(cupy.cuda.Device().id))
