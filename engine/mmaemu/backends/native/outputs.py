# SPDX-License-Identifier: Apache-2.0
"""A tile's partial sums to accumulators, and accumulators to outputs, in the cache where the sums were made."""

from __future__ import annotations

import numpy as np

from mmaemu.backends.native import library
from mmaemu.backends.native.library import address
from mmaemu.model import formats
from mmaemu.model.epilogue import Factors
from mmaemu.model.formats import AnyBits
from mmaemu.plan import Plan

_ORDERS = {"combined": 0, "a_then_b": 1, "b_then_a": 2}
_ALREADY_SCALED, _UNSCALED = 3, -1
_NO_BIAS, _SEPARATE, _FUSED = 0, 1, 2
_SCHEMES = {"compute_type": 0, "output_type": 1, "inplace": 2}


def reduced(partials: AnyBits, own: Factors, plan: Plan) -> AnyBits:
    """[rows, columns] float32 words of [splits, rows, columns], which are overwritten."""
    if len(partials) > 1:
        scale_a, scale_b = (np.ascontiguousarray(words) for words in (own.scale_a, own.scale_b))
        library.found().mmaemu_reduce(
            address(partials), partials.strides[1] // partials.itemsize, *partials.shape, _SCHEMES[plan.scheme],
            _ORDERS[plan.rule.scale_order] if plan.scales_partials else _UNSCALED,
            address(scale_a), int(scale_a.shape[0] > 1), address(scale_b), int(scale_b.shape[1] > 1),
            library.output_of(plan.fmt_out, plan.rule),
        )  # fmt: skip
    first: AnyBits = partials[0]
    return first


def finish(acc: AnyBits, own: Factors, plan: Plan, out: AnyBits) -> None:
    """The epilogue of accumulators, into their part of the result."""
    rule, fmt = plan.rule, plan.fmt_out
    scale_a, scale_b = (np.ascontiguousarray(words) for words in (own.scale_a, own.scale_b))
    bias = None if own.bias is None else np.ascontiguousarray(own.bias)
    mode = _NO_BIAS
    if bias is not None or rule.adds_without_bias:
        mode = _FUSED if rule.bias_add == "fused" else _SEPARATE
    last = np.ascontiguousarray(own.scale_result) if own.scale_result is not None and fmt in formats.FP8 else None
    order = _ALREADY_SCALED if plan.scales_before_epilogue else _ORDERS[rule.scale_order]
    library.found().mmaemu_epilogue(
        address(acc), acc.strides[0] // acc.itemsize, *acc.shape, order,
        address(scale_a), int(scale_a.shape[0] > 1), address(scale_b), int(scale_b.shape[1] > 1), mode, address(bias),
        address(last), library.output_of(fmt, rule), address(out), out.strides[0] // out.itemsize,
    )  # fmt: skip
