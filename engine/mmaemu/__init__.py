# SPDX-License-Identifier: Apache-2.0
"""What bits would this NVIDIA GPU have returned? Tensor-core matrix products, emulated bit for bit.

    import mmaemu
    out = mmaemu.scaled_mm(a, b, scale_a, scale_b, out_dtype="bfloat16", profile="h100-pcie-cublaslt12.8")

Public names load on first use; `import mmaemu` itself imports the errors only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from mmaemu.errors import (
    BackendUnavailableError,
    InvalidInputError,
    MmaemuError,
    ReferenceRejectsError,
    ReferenceRejectsValueError,
    RemoteError,
    UnsupportedFeatureError,
)

if TYPE_CHECKING:
    from mmaemu import functional as functional
    from mmaemu import model as model
    from mmaemu import profiles as profiles
    from mmaemu import remote as remote
    from mmaemu import testing as testing
    from mmaemu.api import accumulate as accumulate
    from mmaemu.api import mma as mma
    from mmaemu.api import scaled_mm as scaled_mm
    from mmaemu.backends.registry import backends_status as backends_status
    from mmaemu.bits import Bits as Bits
    from mmaemu.bits import Spec as Spec
    from mmaemu.emulation import emulate as emulate
    from mmaemu.profiles import Profile as Profile
    from mmaemu.trace import Trace as Trace
    from mmaemu.trace import explain as explain

__version__ = "0.1.0"

_HOMES = {
    "Bits": "mmaemu.bits",
    "Profile": "mmaemu.profiles",
    "Spec": "mmaemu.bits",
    "Trace": "mmaemu.trace",
    "accumulate": "mmaemu.api",
    "backends_status": "mmaemu.backends.registry",
    "emulate": "mmaemu.emulation",
    "explain": "mmaemu.trace",
    "mma": "mmaemu.api",
    "scaled_mm": "mmaemu.api",
}
_MODULES = ("functional", "model", "profiles", "remote", "testing")

__all__ = [
    "BackendUnavailableError",
    "Bits",
    "InvalidInputError",
    "MmaemuError",
    "Profile",
    "ReferenceRejectsError",
    "ReferenceRejectsValueError",
    "RemoteError",
    "Spec",
    "Trace",
    "UnsupportedFeatureError",
    "__version__",
    "accumulate",
    "backends_status",
    "emulate",
    "explain",
    "functional",
    "mma",
    "model",
    "profiles",
    "remote",
    "scaled_mm",
    "testing",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value: object = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"mmaemu.{name}")
    else:
        raise AttributeError(f"module 'mmaemu' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
