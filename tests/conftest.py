# SPDX-License-Identifier: Apache-2.0
"""Markers of the test tiers, and what each needs; a skip names the variable or device that it wants."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

MARKERS = {
    "gpu": "needs a CUDA device",
    "slow": "tier T1s: minutes instead of seconds",
    "truth": "needs MMAEMU_TRUTH_DIR, the folder of hardware recordings",
    "profile_device(name)": "runs only on the reference device of that profile",
}


def pytest_configure(config: pytest.Config) -> None:
    for marker, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{marker}: {meaning}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    truth = os.environ.get("MMAEMU_TRUTH_DIR")
    cuda = _has_cuda()
    for item in items:
        if "truth" in item.keywords and not truth:
            item.add_marker(pytest.mark.skip(reason="set MMAEMU_TRUTH_DIR to the folder of hardware recordings"))
        if "gpu" in item.keywords and not cuda:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
        if "profile_device" in item.keywords and not cuda:
            item.add_marker(pytest.mark.skip(reason="profile device unavailable"))


@pytest.fixture(scope="module", params=["reference", "native"])
def each_backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """The tests of a module, once on each CPU backend: `auto` is then that one."""
    from mmaemu.backends import registry
    from mmaemu.backends.native import library

    name: str = request.param
    if name == "native" and library.load() is None:
        pytest.skip(f"needs the compiled kernels: {library.why_missing()}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "PREFERRED", name)
        yield name


@pytest.fixture(scope="session")
def truth_dir() -> Path:
    """The folder of hardware recordings; tests that use it carry the marker `truth`."""
    return Path(os.environ["MMAEMU_TRUTH_DIR"])


def _has_cuda() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())
