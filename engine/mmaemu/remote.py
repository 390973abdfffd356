# SPDX-License-Identifier: Apache-2.0
"""The same calls over HTTP: `mmaemu.remote.scaled_mm` asks the service at MMAEMU_URL. The code is `mmaemu_client`."""

from __future__ import annotations

from mmaemu_client import (
    AsyncClient,
    Client,
    accumulate,
    backends,
    explain,
    health,
    limits,
    mma,
    profile,
    profiles,
    scaled_mm,
    version,
)

__all__ = [
    "AsyncClient",
    "Client",
    "accumulate",
    "backends",
    "explain",
    "health",
    "limits",
    "mma",
    "profile",
    "profiles",
    "scaled_mm",
    "version",
]
