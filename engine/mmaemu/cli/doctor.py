# SPDX-License-Identifier: Apache-2.0
"""`mmaemu doctor`: what this machine has, what is missing and how to get it, and whether the arithmetic is sound."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
from typing import TYPE_CHECKING

import numpy as np

import mmaemu
from mmaemu.cli.common import add_command, add_url, mmaemu_environment, table
from mmaemu.errors import MmaemuError

if TYPE_CHECKING:
    from mmaemu.cli.common import Commands

_PACKAGES = {
    "numpy": "the reference backend",
    "httpx": "the client",
    "torch": "torch tensors in and out: pip install 'mmaemu[torch]'",
    "ml_dtypes": "fp8 and bfloat16 numpy arrays: pip install ml_dtypes",
    "fastapi": "the service: pip install 'mmaemu[server]'",
    "uvicorn": "the service: pip install 'mmaemu[server]'",
}


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "doctor",
        run,
        help="show what this machine has, what is missing, and check the arithmetic",
        description="Show versions, backends and settings, check the arithmetic on published hardware words, and ask\n"
        "the service for its health when --url or MMAEMU_URL names one. Exit code 1 when something is wrong.",
    )
    add_url(parser)


def run(arguments: argparse.Namespace) -> int:
    print(f"mmaemu {mmaemu.__version__}, Python {platform.python_version()}, {platform.platform()}\n")
    rows = [[name, _version(name) or "missing", use] for name, use in _PACKAGES.items()]
    print(table(["package", "version", "for"], rows))
    print()
    status = mmaemu.backends_status().values()
    print(table(["backend", "here", "why"], [[s.name, "yes" if s.available else "no", s.reason] for s in status]))
    environment = mmaemu_environment()
    print("\nsettings: " + (", ".join(f"{name}={value}" for name, value in environment.items()) or "none set"))

    problems = [
        problem for problem in (_arithmetic(), _service(arguments.url or environment.get("MMAEMU_URL"))) if problem
    ]
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print("\n" + (f"{len(problems)} problem(s)" if problems else "all is well"))
    return 1 if problems else 0


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _arithmetic() -> str:
    """Two words that were published for real hardware (RTX 4090, H100 wgmma): max + products, and -0 kept out."""
    one = np.full((2, 32), 0x38, np.uint8)
    one[1] = 0
    c = np.array([0x7F7FFFFF, 0x80000000], np.uint32)
    for preset in ("ada", "hopper-wgmma"):
        for backend in ("reference", "native"):
            if not mmaemu.backends_status()[backend].available:
                continue
            d = mmaemu.mma(one, one, c, "e4m3", "e4m3", preset=preset, backend=backend)
            words = [f"{int(word):08X}" for word in d]
            if words != ["7F7FFC00", "00000000"]:
                return f"{preset} on {backend} gives {words} where hardware gave 7F7FFC00, 00000000"
    print("arithmetic: agrees with published words of RTX 4090 and H100")
    return ""


def _service(url: str | None) -> str:
    if url is None:
        return ""
    from mmaemu import remote

    try:
        with remote.Client(url) as client:
            print(f"service: {url}, {client.version()}")
    except MmaemuError as error:
        return f"service {url}: {error}"
    return ""
