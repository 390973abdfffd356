# SPDX-License-Identifier: Apache-2.0
"""The recipes of torch.nn.functional.scaled_mm: their names, which two go together, and the shapes of their scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mmaemu import scaling
from mmaemu.errors import InvalidInputError, ReferenceRejectsValueError, UnsupportedFeatureError
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
}
_MICROSCALED = {("BlockWise1x32", "BlockWise1x32"): "MXFP8 or MXFP4", ("BlockWise1x16", "BlockWise1x16"): "NVFP4"}


def read(recipe: Any, field: str) -> str:
    """The recipe's name, of an enum member, a number or a name; the first of two for NVFP4's two levels."""
    if isinstance(recipe, list | tuple):
        if len(recipe) not in (1, 2):
            raise InvalidInputError.because(field, got=f"{len(recipe)} recipes", wanted="one")
        recipe = recipe[0]
    name = recipe if isinstance(recipe, str) else getattr(recipe, "name", None)
    if isinstance(recipe, int) and not isinstance(recipe, bool) and 0 <= recipe < len(NAMES):
        name = NAMES[recipe]
    if name not in NAMES:
        raise InvalidInputError.because(field, got=repr(recipe)[:80], wanted=f"one of {', '.join(NAMES)}")
    return str(name)


def kind_of(recipe_a: str, recipe_b: str) -> str:
    """The scaling that two recipes make. ReferenceRejectsValueError where torch has no kernel for them."""
    pair = (recipe_a, recipe_b)
    if pair in _MICROSCALED:
        raise UnsupportedFeatureError.because(
            "scale_recipe_a, scale_recipe_b",
            got=f"{recipe_a} ({_MICROSCALED[pair]})",
            wanted="tensor-wise, row-wise or 128-wide block scales",
            hint="Only Blackwell has instructions for these scales, and mmaemu has not modelled them.",
        )
    if pair not in _PAIRS:
        known = "; ".join(f"{a} and {b}" for a, b in _PAIRS)
        raise ReferenceRejectsValueError.because(
            "scale_recipe_a, scale_recipe_b", got=f"{recipe_a} and {recipe_b}", wanted=known
        )
    return _PAIRS[pair]


def only(scale: Any, field: str) -> Any:
    """The scale of a list of one, as torch takes it."""
    if isinstance(scale, list | tuple):
        if len(scale) != 1:
            raise InvalidInputError.because(field, got=f"{len(scale)} scales", wanted="one")
        return scale[0]
    return scale


def check_contraction(dims: Sequence[int]) -> None:
    """() and (1, 0) mean a's columns and b's rows."""
    if len(dims) not in (0, 2):
        raise ReferenceRejectsValueError.because("contraction_dim", got=f"{len(dims)} numbers", wanted="none or two")
    if len(dims) == 2 and tuple(dims) not in ((1, 0), (-1, 0), (1, -2), (-1, -2)):
        raise UnsupportedFeatureError.because("contraction_dim", got=repr(tuple(dims))[:80], wanted="() or (1, 0)")


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
    if call.scaling == scaling.TENSOR_WISE or 0 in (*call.a.shape, *call.b.shape):
        return call.scale_a, call.scale_b
    return _reshaped(call.scale_a, (call.a.shape[0], 1)), _reshaped(call.scale_b, (1, call.b.shape[1]))


def block_scales(call: Request) -> tuple[Operand, Operand]:
    """Block-wise scales as (rows or blocks of a, K blocks) and (K blocks, columns or blocks of b)."""
    if 0 in (*call.a.shape, *call.b.shape):
        return call.scale_a, call.scale_b
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
