# SPDX-License-Identifier: Apache-2.0
"""Sizes, types and layouts of the two matrices, and of `out`."""

from __future__ import annotations

from collections.abc import Iterator

from mmaemu import scaling
from mmaemu.checks.finding import (
    E4M3,
    E5M2,
    FP8_TYPES,
    Finding,
    fits_in_place,
    has_own_kernel,
    is_row_wise,
    kind_of,
    lies_in_rows,
)
from mmaemu.model import formats
from mmaemu.request import Request
from mmaemu.tensors import Operand

_ALIGNMENT = 16
_BYTES = {fmt.torch_name: fmt.itemsize for fmt in formats.ALL}


def a_is_matrix(r: Request) -> Finding | None:
    return _matrix(r.a, "a")


def b_is_matrix(r: Request) -> Finding | None:
    return _matrix(r.b, "b")


def _matrix(operand: Operand, field: str) -> Finding | None:
    if len(operand.shape) == 2:
        return None
    return Finding(field, f"{len(operand.shape)} dimensions, shape {operand.shape}", "a matrix")


def contraction_has_two_numbers(r: Request) -> Finding | None:
    if len(r.contraction_dim) in (0, 2):
        return None
    return Finding("contraction_dim", f"{len(r.contraction_dim)} numbers", "none or two")


def inner_sizes_agree(r: Request) -> Finding | None:
    """Along the dimensions that the caller names, else a's columns and b's rows."""
    of_a, of_b = r.contraction_dim or (1, 0)
    if r.a.shape[of_a] == r.b.shape[of_b]:
        return None
    if (of_a % 2, of_b % 2) == (1, 0):
        return Finding("b", f"shape {r.b.shape}", f"K = {r.a.shape[1]} rows, as a has columns")
    got = f"shapes {r.a.shape} and {r.b.shape} along {r.contraction_dim}"
    return Finding("contraction_dim", got, "two dimensions of one size")


def k_is_multiple_of_16(r: Request) -> Finding | None:
    numbers = 2 if r.scaling is not None and r.a.dtype == scaling.FP4 else 1  # recipes count them, not bytes
    if numbers * r.a.shape[1] % 16 == 0:
        return None
    return Finding("a", f"shape {r.a.shape}", "K divisible by 16", "Pad K with zeros: they change no bit.")


def n_is_multiple_of_16(r: Request) -> Finding | None:
    if r.b.shape[1] % 16 == 0:
        return None
    return Finding("b", f"shape {r.b.shape}", "N divisible by 16", "Pad b with columns, and cut them off the result.")


def scaled_types_are_fp8(r: Request) -> Finding | None:
    """Two 4-bit operands are left to the scales, unless these belong to 8-bit ones."""
    if r.a.dtype == r.b.dtype == scaling.FP4 and r.scale_a.dtype != "float32":
        return None
    return a_is_fp8(r) or b_is_fp8(r)


def a_is_fp8(r: Request) -> Finding | None:
    return _fp8(r, r.a, "a")


def b_is_fp8(r: Request) -> Finding | None:
    return _fp8(r, r.b, "b")


def _fp8(r: Request, operand: Operand, field: str) -> Finding | None:
    """Two 4-bit numbers a byte go with the scales that newer versions of torch know for them. Where the caller names
    recipes, these are compared with the types later."""
    if operand.dtype in FP8_TYPES:
        return None
    recognised = r.scaling is not None or kind_of(r) in scaling.MICROSCALED
    if operand.dtype == scaling.FP4 and scaling.knows_fp4(r.profile) and recognised:
        return None
    hint = "torch's fnuz types are AMD's." if operand.dtype.endswith("fnuz") else ""
    return Finding(field, operand.dtype, f"{E4M3} or {E5M2}", hint)


def not_both_e5m2(r: Request) -> Finding | None:
    if r.a.dtype == r.b.dtype == E5M2:
        return Finding("a, b", f"{E5M2} twice", f"at least one {E4M3}")
    return None


def no_fast_fp4(r: Request) -> Finding | None:
    if not r.use_fast_accum or scaling.FP4 not in (r.a.dtype, r.b.dtype):
        return None
    return Finding("use_fast_accum", f"True with {scaling.FP4}", "False: fast accumulation is for 8-bit operands")


def recipes_take_operands(r: Request) -> Finding | None:
    """torch knows recipes of 128-wide blocks for e4m3 alone, though it recognises their scales beside e5m2 too."""
    if r.scaling in scaling.MICROSCALED:
        return None
    types = (E4M3,) if r.scaling in scaling.BLOCKS_OF_128 else FP8_TYPES
    for field in ("a", "b"):
        if r.operands[field].dtype not in types:
            return Finding(field, r.operands[field].dtype, f"{' or '.join(types)} with these recipes")
    return None


def row_wise_takes_b(r: Request) -> Finding | None:
    types = r.profile.contract.row_wise_b_types
    if not is_row_wise(r) or r.b.dtype in types:
        return None
    return Finding("b", r.b.dtype, f"{' or '.join(types)} with row-wise scales")


def a_is_row_major(r: Request) -> Finding | None:
    if has_own_kernel(r):
        fits = r.a.strides[1] == 1 and r.a.strides[0] >= r.a.shape[1]
    else:
        fits = _is_row_major(r.a)
    return None if fits else Finding("a", f"strides {r.a.strides}", "a row-major matrix", _row_hint(r.a))


def b_is_column_major(r: Request) -> Finding | None:
    if has_own_kernel(r):
        fits = r.b.strides[0] == 1 and r.b.strides[1] >= r.b.shape[0]
    else:
        fits = not _is_row_major(r.b)
    if fits:
        return None
    return Finding("b", f"strides {r.b.strides}", "a column-major matrix", "Pass b.t().contiguous().t().")


def own_kernel_writes_rows(r: Request) -> Finding | None:
    if not has_own_kernel(r) or not fits_in_place(r) or r.out is None:
        return None
    if r.out.strides[1] == 1 and r.out.strides[0] >= r.out.shape[1]:
        return None
    return Finding("out", f"strides {r.out.strides}", "a row-major matrix", "Write to a contiguous tensor, then copy.")


def single_rows_have_whole_strides(r: Request) -> Finding | None:
    """A single row is contiguous whatever its stride says; torch hands that stride on as the distance between rows."""
    for field, operand, least in _rows(r):
        stride = operand.strides[0]
        if operand.shape[0] == 1 and operand.contiguous and stride < least:
            got = f"one row of {least} numbers with a stride of {stride}"
            return Finding(field, got, f"a stride of {least} or more", _row_hint(operand))
    return None


def distances_are_aligned(r: Request) -> Finding | None:
    for field, operand, stride in _steps(r):
        distance = stride * _BYTES.get(operand.dtype, 1)
        if distance % _ALIGNMENT:
            unit = "columns" if field == "b" else "rows"
            wanted = f"{unit} that begin {_ALIGNMENT} bytes apart, or a multiple of that"
            return Finding(field, f"{unit} {distance} bytes apart", wanted, _copy_hint(field))
    return None


def addresses_are_aligned(r: Request) -> Finding | None:
    for field, operand, _ in _steps(r):
        begin = operand.offset * _BYTES.get(operand.dtype, 1)
        if begin % _ALIGNMENT:
            got = f"a view that begins {begin} bytes into its memory"
            return Finding(field, got, f"a multiple of {_ALIGNMENT} bytes", _copy_hint(field))
    return None


def _copy_hint(field: str) -> str:
    return "Write to a tensor of its own, then copy." if field == "out" else "Pass a copy: x.clone()."


def _row_hint(operand: Operand) -> str:
    """`contiguous` leaves a single row as it is."""
    return "Pass it as x.reshape(-1)[None]." if operand.shape[0] == 1 else "Call .contiguous() on it."


def _rows(r: Request) -> Iterator[tuple[str, Operand, int]]:
    yield "a", r.a, r.a.shape[1]
    if r.out is not None and fits_in_place(r):
        yield "out", r.out, r.out.shape[1]


def _steps(r: Request) -> Iterator[tuple[str, Operand, int]]:
    """What the library reads and writes where the caller has it, and the stride between its rows or columns."""
    if lies_in_rows(r.a):  # else torch copies it first
        yield "a", r.a, r.a.strides[0]
    yield "b", r.b, r.b.strides[1]
    if r.out is not None and fits_in_place(r) and lies_in_rows(r.out):
        yield "out", r.out, r.out.strides[0]


def _is_row_major(operand: Operand) -> bool:
    """As torch prepares a matrix for cuBLAS: a tensor with neither unit stride is made row-major first."""
    rows, _ = operand.shape
    row_stride, column_stride = operand.strides
    return operand.contiguous or not (row_stride == 1 and column_stride >= max(1, rows))
