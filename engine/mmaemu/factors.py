# SPDX-License-Identifier: Apache-2.0
"""Scales and bias of a request as the arithmetic reads them: float32 words that broadcast against the result."""

from __future__ import annotations

import numpy as np

from mmaemu import scaling
from mmaemu.model import formats, ieee
from mmaemu.model.epilogue import Factors
from mmaemu.model.formats import AnyBits
from mmaemu.request import Request

_ONE = np.full((1, 1), 0x3F800000, np.uint32)


def of(request: Request) -> Factors:
    """Scales [1, 1], [M, 1] and [1, N], or [M, K blocks] and [K blocks, N]; bias [1, N], widened exactly."""
    if 0 in (*request.a.shape, *request.b.shape):
        return Factors(_ONE, _ONE)  # the library returns before it looks at them, whatever their shapes
    scale_a, scale_b = request.scale_a.data, request.scale_b.data
    kind = scaling.of(request)
    if kind == scaling.TENSOR_WISE:
        scale_a, scale_b = scale_a.reshape(1, 1), scale_b.reshape(1, 1)
    elif kind in scaling.BLOCKS_OF_128:
        scale_a = _spread(scale_a, request.a.shape[0], axis=0)
        scale_b = _spread(scale_b, request.b.shape[1], axis=1)
    bias = scale_result = None
    if request.bias is not None:
        bias = ieee.widen(request.bias.data, formats.get(request.bias.dtype)).reshape(1, -1)
    if request.scale_result is not None:
        scale_result = request.scale_result.data.reshape(1, 1)
    return Factors(scale_a, scale_b, bias, scale_result if kind == scaling.TENSOR_WISE else None)


def _spread(scale: AnyBits, size: int, axis: int) -> AnyBits:
    """Scales of blocks of 128 repeated for each row or column; scales of single ones as they are."""
    if scale.shape[axis] == size:
        return scale
    return np.repeat(scale, scaling.BLOCK, axis=axis).take(range(size), axis=axis)
