# SPDX-License-Identifier: Apache-2.0
"""The recipes of torch.nn.functional.scaled_mm: their names, which two go together, and the shapes of their scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mmaemu import scaling
from mmaemu.errors import InvalidInputError
from mmaemu.request import Request
from mmaemu.tensors import Operand

NAMES = ("TensorWise", "RowWise", "BlockWise1x16", "BlockWise1x32", "BlockWise1x128", "BlockWise128x128")
"""torch's ScalingType, in the order of its numbers."""

_PAIRS = {
    ("TensorWise", "TensorWise"): scaling.TENSOR_WISE,
    ("RowWise", "RowWise"): scaling.ROW_WISE,
    ("BlockWise1x128", "BlockWise128x128"): scaling.BLOCK_1x128_128x128,
    ("BlockWise128x128", "BlockWise1x128"): scaling.BLOCK_128x128_1x128,
    ("BlockWise1x128", "BlockWise1x128"): scaling.BLOCK_1x128_1x128,
    ("BlockWise1x32", "BlockWise1x32"): scaling.BLOCK_1x32,
    ("BlockWise1x16", "BlockWise1x16"): scaling.BLOCK_1x16,
}
_TWO_LEVELS = ("BlockWise1x16", "TensorWise")
"""NVFP4 may have a second scale for the whole tensor."""

KNOWN_PAIRS = "one scale an operand, and " + "; ".join(f"{a} with {b}" for a, b in _PAIRS)


def read(recipe: Any, field: str) -> tuple[str, ...]:
    """The recipe's name, of an enum member, a number or a name; or the names of a list of them."""
    return tuple(_name(item, field) for item in (recipe if isinstance(recipe, list | tuple) else [recipe]))


def _name(recipe: Any, field: str) -> str:
    name = recipe if isinstance(recipe, str) else getattr(recipe, "name", None)
    if isinstance(recipe, int) and not isinstance(recipe, bool) and 0 <= recipe < len(NAMES):
        name = NAMES[recipe]
    if name not in NAMES:
        raise InvalidInputError.because(field, got=repr(recipe)[:80], wanted=f"one of {', '.join(NAMES)}")
    return str(name)


def all_of(scale: Any, field: str) -> list[Any]:
    """The scales of one operand, which torch takes as a list or alone."""
    scales = list(scale) if isinstance(scale, list | tuple) else [scale]
    if not scales:
        raise InvalidInputError.because(field, got="no scale", wanted="one")
    return scales


def kind_of(recipe_a: tuple[str, ...], recipe_b: tuple[str, ...], scales_a: int = 1, scales_b: int = 1) -> str:
    """The scaling that two recipes make, for so many scales each; words for what came, where torch has no such kernel.

    Validation refuses the latter in its turn: torch looks at sizes and types first.
    """
    if recipe_a == recipe_b == _TWO_LEVELS and scales_a == scales_b == 2:
        return scaling.BLOCK_1x16
    if len(recipe_a) == len(recipe_b) == scales_a == scales_b == 1 and (recipe_a[0], recipe_b[0]) in _PAIRS:
        return _PAIRS[recipe_a[0], recipe_b[0]]
    return f"{_told(recipe_a, scales_a)} with {_told(recipe_b, scales_b)}"


def _told(recipe: tuple[str, ...], scales: int) -> str:
    names = " + ".join(recipe) or "no recipe"
    return names if len(recipe) == scales == 1 else f"{names} for {scales} scale{'s' * (scales != 1)}"


def contraction(dims: Sequence[int]) -> tuple[int, ...]:
    """The dimensions as given, however many. InvalidInputError for two that no matrix has."""
    named = tuple(dims)
    known = all(isinstance(dim, int) and not isinstance(dim, bool) and -2 <= dim < 2 for dim in named)
    if len(named) == 2 and not known:
        raise InvalidInputError.because("contraction_dim", got=repr(named)[:80], wanted="two dimensions of matrices")
    return named


def shape_of(call: Request, field: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Shape and strides that torch wants of a block-wise scale."""
    outer = call.a.shape[0] if field == "scale_a" else call.b.shape[1]
    square = scaling.BLOCK_128x128_1x128 if field == "scale_a" else scaling.BLOCK_1x128_128x128
    blocks = scaling.k_blocks(call)
    if call.scaling == square:
        rows = -(-blocks // 4) * 4
        return (rows, -(-outer // scaling.BLOCK)), (1, rows)
    return (outer, blocks), (1, outer)


def plain_scales(call: Request) -> tuple[Operand, Operand]:
    """Tensor-wise scales as they are, row-wise ones as (M, 1) and (1, N)."""
    if call.scaling == scaling.TENSOR_WISE:
        return call.scale_a, call.scale_b
    return _reshaped(call.scale_a, (call.a.shape[0], 1)), _reshaped(call.scale_b, (1, call.b.shape[1]))


def block_scales(call: Request) -> tuple[Operand, Operand]:
    """Block-wise scales as (rows or blocks of a, K blocks) and (K blocks, columns or blocks of b)."""
    blocks = scaling.k_blocks(call)
    square_a = call.scaling == scaling.BLOCK_128x128_1x128
    square_b = call.scaling == scaling.BLOCK_1x128_128x128
    scale_a = _cut(call.scale_a, blocks) if square_a else call.scale_a
    scale_b = _cut(call.scale_b, blocks) if square_b else _turned(call.scale_b)
    return _turned(scale_a) if square_a else scale_a, scale_b


def _cut(scale: Operand, blocks: int) -> Operand:
    """Without the rows that round K's blocks up to four."""
    shape = (blocks, *scale.shape[1:])
    return replace(scale, shape=shape, bits=None if scale.bits is None else scale.bits[:blocks])


def _turned(scale: Operand) -> Operand:
    bits = None if scale.bits is None else scale.bits.T
    return replace(scale, shape=scale.shape[::-1], strides=scale.strides[::-1], bits=bits)


def _reshaped(scale: Operand, shape: tuple[int, int]) -> Operand:
    bits = None if scale.bits is None else scale.bits.reshape(shape)
    return replace(scale, shape=shape, strides=(1, 1) if shape[1] == 1 else (shape[1], 1), bits=bits)
