# SPDX-License-Identifier: Apache-2.0
"""The kernels as code for one GPU: a fatbin that came with the package, else compiled by NVRTC and kept.

Both are made of the same sources by the same options. `nvrtc` is CuPy's binding (cupy_backends.cuda.libs.nvrtc) or
another module with its functions.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from mmaemu.errors import BackendUnavailableError

KERNELS = Path(__file__).with_name("kernels")
FATBINS = Path(os.environ.get("MMAEMU_FATBIN_DIR") or Path(__file__).with_name("bin"))
"""MMAEMU_FATBIN_DIR names another folder of fatbins, with its manifest.json, that tools/build_fatbin.py made."""
MANIFEST = "manifest.json"
OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")
"""Every rounding as it stands: no contraction, subnormals kept. nvcc knows the same options."""
STRICT = ("-Werror", "all-warnings")
OLDEST = 70
"""The lowest compute capability, ten times over: kernels use what such devices have."""
UNITS = tuple(sorted(path.stem for path in KERNELS.glob("*.cu")))
"""What is compiled by itself: v1, v4, v9 ..."""


def unit_of(kernel: str) -> str:
    """Where a kernel lives: mmaemu_v9_g32_fast in v9.cu."""
    return kernel.split("_")[1]


@cache
def source(unit: str) -> str:
    return (KERNELS / f"{unit}.cu").read_text()


@cache
def headers() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(KERNELS.glob("*.cuh"))}


@cache
def digest(unit: str) -> str:
    """Of everything that a unit's code depends on but the compiler and the device."""
    parts = [source(unit), *(f"{name}\n{text}" for name, text in headers().items()), *OPTIONS]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def code(unit: str, capability: int, nvrtc: Any) -> Path:
    """A file that a device of that compute capability (90 for 9.0) loads."""
    if capability < OLDEST:
        raise BackendUnavailableError.because(
            "backend", got=f"a device of compute capability {capability / 10}", wanted=f"{OLDEST / 10} or newer"
        )
    return from_fatbin(unit, capability) or from_nvrtc(unit, capability, nvrtc)


def from_fatbin(unit: str, capability: int) -> Path | None:
    """The package's own, if it was made of these very sources and has code for the device."""
    try:
        manifest = json.loads((FATBINS / MANIFEST).read_text())
        entry = manifest["units"][unit]
        path = FATBINS / str(entry["file"])
        usable = entry["source_sha256"] == digest(unit) and capability in entry["capabilities"]
        if not usable or hashlib.sha256(path.read_bytes()).hexdigest() != entry["sha256"]:
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return path


def from_nvrtc(unit: str, capability: int, nvrtc: Any) -> Path:
    """Compiled now, or earlier by the same compiler from the same sources. PTX where the compiler does not know the
    device yet, which the driver finishes."""
    version = ".".join(map(str, nvrtc.getVersion()))
    known = sorted(nvrtc.getSupportedArchs())
    exact = capability in known
    target = capability if exact else max((arch for arch in known if arch < capability), default=0)
    if target == 0:
        raise BackendUnavailableError.because(
            "backend", got=f"NVRTC {version}, which begins at compute capability {known[0] / 10}",
            wanted=f"one for {capability / 10}", hint="CUDA 12 knows 7.0: pip install 'mmaemu[cuda12]'.",
        )  # fmt: skip
    name = f"{unit}-{digest(unit)[:16]}-{'sm' if exact else 'compute'}_{target}-nvrtc{version}"
    path = cache_folder() / f"{name}.{'cubin' if exact else 'ptx'}"
    if not path.exists():
        data = compiled(unit, f"{'sm' if exact else 'compute'}_{target}", nvrtc)
        path.parent.mkdir(parents=True, exist_ok=True)
        own = path.with_suffix(f".{os.getpid()}.tmp")
        own.write_bytes(data)
        own.replace(path)
    return path


def compiled(unit: str, architecture: str, nvrtc: Any) -> bytes:
    """A cubin for sm_NN, PTX for compute_NN. Warnings are errors."""
    names = headers()
    program = nvrtc.createProgram(
        source(unit), f"{unit}.cu", [text.encode() for text in names.values()], [name.encode() for name in names]
    )
    try:
        nvrtc.compileProgram(program, (*OPTIONS, *STRICT, f"-arch={architecture}"))
        data = nvrtc.getCUBIN(program) if architecture.startswith("sm_") else nvrtc.getPTX(program)
        return bytes(data if isinstance(data, bytes) else data.encode())
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program)
        raise RuntimeError(f"NVRTC does not compile {unit}.cu for {architecture} ({error}):\n{log}") from None
    finally:
        nvrtc.destroyProgram(program)


def cache_folder() -> Path:
    """Where compiled code is kept: MMAEMU_CACHE_DIR, else the user's cache."""
    named = os.environ.get("MMAEMU_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(named) / "cuda" if named else Path(home) / "mmaemu/cuda"
