# SPDX-License-Identifier: Apache-2.0
"""The CUDA kernels' own sources, compiled for the CPU: a device for the CUDA backend where there is no GPU.

Plans, launches and arithmetic are those of a GPU. Threads of a block run one after another between barriers, in an
order that tests choose.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SHIM = ROOT / "tests/support/cuda_host"
KERNELS = ROOT / "engine/mmaemu/backends/cuda/kernels"
FLAGS = ["-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-frounding-math", "-ffp-contract=off"]
ORDERS = {"forward": 0, "backward": 1, "shuffled": 2}


def compiler() -> str | None:
    """The C++ compiler, where this machine can run the device: the shim rounds by x86-64's instructions."""
    if os.uname().machine != "x86_64" or "fma" not in Path("/proc/cpuinfo").read_text():
        return None
    return shutil.which(os.environ.get("CXX", "g++"))


@cache
def library() -> ctypes.CDLL:
    """The kernels, compiled when their sources have changed."""
    sources = [*sorted(SHIM.iterdir()), *sorted(KERNELS.iterdir())]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources) + " ".join(FLAGS).encode()).hexdigest()
    target = ROOT / f"build/cuda-host-{digest[:16]}.so"
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        own = target.with_suffix(f".{os.getpid()}.tmp")
        subprocess.run(
            [str(compiler()), *FLAGS, f"-I{SHIM}", f"-I{KERNELS}", *map(str, SHIM.glob("*.cpp")), "-o", str(own)],
            check=True,
        )
        own.replace(target)
    found = ctypes.CDLL(str(target))
    found.host_launch.restype = ctypes.c_char_p
    for name, count in (("fma_rz", 3), ("fma_rn", 3), ("add_rz", 2)):
        function = getattr(found, f"host_{name}")
        function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float] * count
    found.host_layout.restype = ctypes.c_ulong
    return found


class HostDevice:
    """`mmaemu.backends.cuda.device.Device` on the CPU."""

    def __init__(self, order: str = "forward", kernels: tuple[str, ...] = ("v9", "v4", "v1")) -> None:
        self.name = f"kernels on the CPU, threads {order}"
        self.order = ORDERS[order]
        self.kernels = kernels
        self.launched: list[str] = []

    def holds(self, words) -> bool:
        return isinstance(words, OnHostDevice)

    def put(self, words):
        assert words.flags.c_contiguous
        return words.copy().view(OnHostDevice)

    def get(self, words):
        return np.array(words)

    def empty(self, shape, dtype):
        # As memory is that nobody has written: an output that no thread computes must not pass for one.
        found = np.empty(tuple(shape), dtype).view(OnHostDevice)
        found.view(np.uint8)[...] = 0xA5
        return found

    def zeros(self, shape, dtype):
        return np.zeros(tuple(shape), dtype).view(OnHostDevice)

    def address(self, words) -> int:
        assert isinstance(words, OnHostDevice), "a kernel cannot read the host's memory"
        return words.ctypes.data

    def has(self, kernel: str) -> bool:
        return kernel in self.kernels

    def launch(self, kernel, grid, threads, arguments) -> None:
        self.launched.append(kernel)
        problem = library().host_launch(
            kernel.encode(),
            *map(ctypes.c_uint, (*grid, threads)),
            ctypes.byref(arguments),
            self.order,
            len(self.launched),
        )
        assert problem is None, f"{kernel}: {problem.decode()}"

    def wait(self) -> None:
        pass


class OnHostDevice(np.ndarray):
    """An array in the device's memory."""
