# SPDX-License-Identifier: Apache-2.0
"""The sum of each split of K of a tile, by the kernel that its instruction's rule allows."""

from __future__ import annotations

import numpy as np

from mmaemu.backends import fp8_rule
from mmaemu.backends.native import library
from mmaemu.backends.native.library import KERNELS, address
from mmaemu.backends.structures import FORMATS
from mmaemu.backends.tiles import Tile
from mmaemu.model.epilogue import Factors
from mmaemu.model.formats import AnyBits, Format
from mmaemu.plan import Plan, Split
from mmaemu.profiles.instruction import StepRule

KERNEL: str | None = None
"""A kernel to use in place of the fastest, for tests and benchmarks."""

_GAP = 16


def kernel_of(rule: StepRule, fmt_a: Format, fmt_b: Format) -> str:
    """The name of the fastest kernel that runs this rule on these formats."""
    return (KERNEL or library.fastest()) if fp8_rule.applies(rule, fmt_a, fmt_b) else "general"


def partials(kernel: str, a: AnyBits, b: AnyBits, own: Factors, plan: Plan, tile: Tile) -> AnyBits:
    """[splits, rows, columns] float32 words of a tile. a, b: all words, of any strides; `own`: the tile's factors."""
    (top, bottom), (left, right) = tile
    width = right - left
    # Rows a power of two apart would push each other out of the cache.
    found = np.empty((len(plan.splits), bottom - top, width + _GAP), np.uint32)[:, :, :width]
    for split, target in zip(plan.splits, found, strict=True):
        _sum(KERNELS[kernel], a[top:bottom], b[:, left:right], own, split, plan, target)
    return found


def _sum(kernel: int, a: AnyBits, b: AnyBits, own: Factors, split: Split, plan: Plan, total: AnyBits) -> None:
    scale_a = scale_b = None
    if plan.scales_chunks:
        scale_a, scale_b = (np.ascontiguousarray(words) for words in (own.scale_a, own.scale_b))
    library.found().mmaemu_sum(
        kernel, address(a), *a.strides, FORMATS[plan.fmt_a], address(b), *b.T.strides, FORMATS[plan.fmt_b],
        *total.shape,
        library.rule_of(plan.instruction.rule), len(split.chunks), address(split.ends),
        address(scale_a), 0 if scale_a is None else scale_a.shape[1],
        address(scale_b), 0 if scale_b is None else scale_b.shape[1], int(plan.rule.scale_order == "b_then_a"),
        address(total), total.strides[0] // total.itemsize,
    )  # fmt: skip
