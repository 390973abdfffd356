# SPDX-License-Identifier: Apache-2.0
"""Sizes, types and layouts of the two matrices, and of `out`."""

from __future__ import annotations

from mmaemu import scaling
from mmaemu.checks.finding import E4M3, E5M2, FP8_TYPES, Finding, has_own_kernel, kind_of
from mmaemu.request import Request
from mmaemu.tensors import Operand


def a_is_matrix(r: Request) -> Finding | None:
    return _matrix(r.a, "a")


def b_is_matrix(r: Request) -> Finding | None:
    return _matrix(r.b, "b")


def _matrix(operand: Operand, field: str) -> Finding | None:
    if len(operand.shape) == 2:
        return None
    return Finding(field, f"{len(operand.shape)} dimensions, shape {operand.shape}", "a matrix")


def inner_sizes_agree(r: Request) -> Finding | None:
    if r.a.shape[1] == r.b.shape[0]:
        return None
    return Finding("b", f"shape {r.b.shape}", f"K = {r.a.shape[1]} rows, as a has columns")


def k_is_multiple_of_16(r: Request) -> Finding | None:
    if r.a.shape[1] % 16 == 0:
        return None
    return Finding("a", f"shape {r.a.shape}", "K divisible by 16", "Pad K with zeros: they change no bit.")


def n_is_multiple_of_16(r: Request) -> Finding | None:
    if r.b.shape[1] % 16 == 0:
        return None
    return Finding("b", f"shape {r.b.shape}", "N divisible by 16", "Pad b with columns, and cut them off the result.")


def a_is_fp8(r: Request) -> Finding | None:
    return _fp8(r, r.a, "a")


def b_is_fp8(r: Request) -> Finding | None:
    return _fp8(r, r.b, "b")


def _fp8(r: Request, operand: Operand, field: str) -> Finding | None:
    """Two 4-bit numbers a byte go with the scales that newer versions of torch know for them."""
    if operand.dtype in FP8_TYPES or (operand.dtype == scaling.FP4 and kind_of(r) in scaling.MICROSCALED):
        return None
    return Finding(field, operand.dtype, f"{E4M3} or {E5M2}")


def not_both_e5m2(r: Request) -> Finding | None:
    if r.a.dtype == r.b.dtype == E5M2:
        return Finding("a, b", f"{E5M2} twice", f"at least one {E4M3}")
    return None


def row_wise_takes_b(r: Request) -> Finding | None:
    types = r.profile.contract.row_wise_b_types
    if not has_own_kernel(r) or r.b.dtype in types:
        return None
    return Finding("b", r.b.dtype, f"{' or '.join(types)} with row-wise scales")


def a_is_row_major(r: Request) -> Finding | None:
    if _is_row_major(r.a, copies=not has_own_kernel(r)):
        return None
    return Finding("a", f"strides {r.a.strides}", "a row-major matrix", "Call .contiguous() on it.")


def b_is_column_major(r: Request) -> Finding | None:
    if has_own_kernel(r):
        (rows, columns), (row_stride, column_stride) = r.b.shape, r.b.strides
        fits = (row_stride == 1 or rows == 1) and (column_stride >= rows or columns == 1)
    else:
        fits = not _is_row_major(r.b, copies=True)
    if fits:
        return None
    return Finding("b", f"strides {r.b.strides}", "a column-major matrix", "Pass b.t().contiguous().t().")


def out_is_row_major(r: Request) -> Finding | None:
    """torch resizes an out of another shape, which makes it contiguous."""
    if r.out is None or r.out.shape != (r.a.shape[0], r.b.shape[1]) or _is_row_major(r.out, copies=False):
        return None
    return Finding("out", f"strides {r.out.strides}", "a row-major matrix", "Write to a contiguous tensor, then copy.")


def _is_row_major(operand: Operand, copies: bool) -> bool:
    """As torch prepares a matrix for cuBLAS; `copies`: a tensor with neither unit stride is made row-major first."""
    if operand.contiguous:
        return True
    (rows, columns), (row_stride, column_stride) = operand.shape, operand.strides
    if column_stride == 1 and row_stride >= max(1, columns):
        return True
    return copies and not (row_stride == 1 and column_stride >= max(1, rows))
