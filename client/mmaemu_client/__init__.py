# SPDX-License-Identifier: Apache-2.0
"""The client of an mmaemu service; users see it as `mmaemu.remote`. Loads neither torch nor the engine's arithmetic."""

from __future__ import annotations

from mmaemu_client.client import AsyncClient, Client
from mmaemu_client.functions import (
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
