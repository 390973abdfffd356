# SPDX-License-Identifier: Apache-2.0
"""A tile's partial sums to accumulators, and accumulators to outputs, in the cache where the sums were made."""

from __future__ import annotations

import numpy as np

from mmaemu.backends import structures
from mmaemu.backends.native import library
from mmaemu.backends.native.library import address
from mmaemu.backends.structures import SCHEMES
from mmaemu.model.epilogue import Factors
from mmaemu.model.formats import AnyBits
from mmaemu.plan import Plan


def reduced(partials: AnyBits, own: Factors, plan: Plan) -> AnyBits:
    """[rows, columns] float32 words of [splits, rows, columns], which are overwritten."""
    if len(partials) > 1:
        scale_a, scale_b = (np.ascontiguousarray(words) for words in (own.scale_a, own.scale_b))
        library.found().mmaemu_reduce(
            address(partials), partials.strides[1] // partials.itemsize, *partials.shape, SCHEMES[plan.scheme],
            structures.partial_order(plan),
            address(scale_a), int(scale_a.shape[0] > 1), address(scale_b), int(scale_b.shape[1] > 1),
            structures.output_of(plan.fmt_out, plan.rule),
        )  # fmt: skip
    first: AnyBits = partials[0]
    return first


def finish(acc: AnyBits, own: Factors, plan: Plan, out: AnyBits) -> None:
    """The epilogue of accumulators, into their part of the result."""
    scale_a, scale_b = (np.ascontiguousarray(words) for words in (own.scale_a, own.scale_b))
    bias = None if own.bias is None else np.ascontiguousarray(own.bias)
    last = np.ascontiguousarray(own.scale_result) if structures.has_scale_result(plan, own) else None
    library.found().mmaemu_epilogue(
        address(acc), acc.strides[0] // acc.itemsize, *acc.shape, structures.epilogue_order(plan),
        address(scale_a), int(scale_a.shape[0] > 1), address(scale_b), int(scale_b.shape[1] > 1),
        structures.bias_mode(plan, own), address(bias),
        address(last), structures.output_of(plan.fmt_out, plan.rule), address(out), out.strides[0] // out.itemsize,
    )  # fmt: skip
