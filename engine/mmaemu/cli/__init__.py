# SPDX-License-Identifier: Apache-2.0
"""The command line: `mmaemu serve | scaled-mm | explain | replay | profiles | doctor`."""

from __future__ import annotations

from mmaemu.cli.commands import main

__all__ = ["main"]
