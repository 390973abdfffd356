# SPDX-License-Identifier: Apache-2.0
"""Types, shapes and layouts of the scales: recognised by `_scaled_mm`, or named by a recipe."""

from __future__ import annotations

from mmaemu import recipes, scaling
from mmaemu.checks.finding import Finding, is_row_wise, kind_of, shown
from mmaemu.request import Request
from mmaemu.tensors import Operand

_E8M0 = "float8_e8m0fnu"


def scales_are_float(r: Request) -> Finding | None:
    """A pair of e8m0 may be block-wise scales; the next check looks at their sizes."""
    if kind_of(r) is not None or r.scale_a.dtype == r.scale_b.dtype == _E8M0:
        return None
    return recipe_scales_are_float(r)


def scales_fit_a_kind(r: Request) -> Finding | None:
    if kind_of(r) is not None:
        return None
    m, n = r.a.shape[0], r.b.shape[1]
    wanted = f"one number each (tensor-wise), or ({m}, 1) and (1, {n}) (row-wise)"
    if scaling.BLOCK_1x128_1x128 in r.profile.contract.scale_kinds:
        k_blocks = scaling.k_blocks(r)
        wanted += (
            f", or blocks: ({m}, {k_blocks}) of strides (1, {m}) or ({-(-m // 128)}, {k_blocks}), "
            f"and ({k_blocks}, {n}) or ({k_blocks}, {-(-n // 128)}) of strides (1, {k_blocks})"
        )
    if r.scale_a.dtype == _E8M0:
        wanted = "contiguous scales of {} and {} numbers (one for 32)".format(*scaling.microscale_counts(r))
    hint = ""
    if len(r.scale_a.shape) != 2 and r.scale_a.numel == m > 1:
        hint = "Row-wise scales are matrices: scale_a[:, None], scale_b[None, :]."
    return Finding("scale_a, scale_b", f"scale_a {shown(r.scale_a)}, scale_b {shown(r.scale_b)}", wanted, hint)


def row_scales_are_contiguous(r: Request) -> Finding | None:
    if not is_row_wise(r):
        return None
    for field in ("scale_a", "scale_b"):
        operand = r.operands[field]
        if not operand.contiguous:
            return Finding(field, f"strides {operand.strides}", "a contiguous tensor", "Call .contiguous() on it.")
    return None


def scale_result_is_a_float(r: Request) -> Finding | None:
    s = r.scale_result
    if s is None or (s.numel == 1 and s.dtype == "float32"):
        return None
    return Finding("scale_result", f"{s.dtype} of shape {s.shape}", "one float32 number")


def recipes_go_together(r: Request) -> Finding | None:
    if r.scaling in scaling.KINDS:
        return None
    return Finding("scale_recipe_a, scale_recipe_b", str(r.scaling), recipes.KNOWN_PAIRS)


def recipe_scales_are_float(r: Request) -> Finding | None:
    """Not for the scales that Blackwell alone has, which the model's checks refuse."""
    if kind_of(r) in scaling.MICROSCALED:
        return None
    for field in ("scale_a", "scale_b"):
        if r.operands[field].dtype != "float32":
            return Finding(field, r.operands[field].dtype, "float32")
    return None


def recipe_scales_fit(r: Request) -> Finding | None:
    if kind_of(r) in scaling.MICROSCALED:
        return None
    for field in ("scale_a", "scale_b"):
        found = _recipe_scale(r, field, r.operands[field])
        if found is not None:
            return found
    return None


def _recipe_scale(r: Request, field: str, scale: Operand) -> Finding | None:
    got = f"shape {scale.shape}, strides {scale.strides}"
    if r.scaling == scaling.TENSOR_WISE:
        return None if scale.numel == 1 else Finding(field, got, "one number")
    if r.scaling == scaling.ROW_WISE:
        m, n = r.a.shape[0], r.b.shape[1]
        if field == "scale_a":
            return None if scale.shape == (m, 1) else Finding(field, got, f"shape ({m}, 1)")
        fits = scale.numel == n and len(scale.shape) > 1 and scale.strides[1] == 1
        return None if fits else Finding(field, got, f"{n} numbers, such as shape (1, {n}), the second stride 1")
    shape, strides = recipes.shape_of(r, field)
    fits = scale.shape == shape and scale.strides[0] == 1
    fits = fits and (scale.strides[1] == strides[1] or (shape[1] == 1 and scale.strides[1] == 1))
    hint = "The outer dimension runs fastest: make the scale with its dimensions exchanged, and pass its .t()."
    return None if fits else Finding(field, got, f"shape {shape}, strides {strides}", hint)
