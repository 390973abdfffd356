# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of tensor cores, in integers: decode, alignment, accumulator, rounding, special, epilogue.

`dot` is one instruction, bit patterns in and out; `epilogue.apply` turns accumulators into outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmaemu.model import epilogue as epilogue
    from mmaemu.model.dot_product import dot as dot

__all__ = ["dot", "epilogue"]


def __getattr__(name: str) -> object:
    # Lazy, because profiles read mmaemu.model.formats and dot reads profiles.
    import importlib

    if name == "dot":
        return importlib.import_module("mmaemu.model.dot_product").dot
    if name == "epilogue":
        return importlib.import_module("mmaemu.model.epilogue")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
