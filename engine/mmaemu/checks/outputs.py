# SPDX-License-Identifier: Apache-2.0
"""Bias, output type and scale_result: what goes with what."""

from __future__ import annotations

from mmaemu import scaling
from mmaemu.checks.finding import E4M3, E5M2, FP8_TYPES, OUT_TYPES, Finding, has_own_kernel, is_row_wise, kind_of
from mmaemu.profiles import Profile
from mmaemu.request import Request


def bias_has_n_numbers(r: Request) -> Finding | None:
    if r.bias is None or r.bias.numel == r.b.shape[1]:
        return None
    return Finding("bias", f"{r.bias.numel} numbers", f"N = {r.b.shape[1]}")


def out_has_out_dtype(r: Request) -> Finding | None:
    if r.out is None or r.out.dtype == r.out_dtype:
        return None
    return Finding("out_dtype", f"{r.out_dtype} with an out of {r.out.dtype}", "out's type, or none")


def no_bias_for_float32(r: Request) -> Finding | None:
    if r.bias is None or r.out_dtype != "float32":
        return None
    return Finding("bias", f"a bias with out_dtype {r.out_dtype}", "no bias, or a 16-bit or fp8 output")


def bias_is_16_bit(r: Request) -> Finding | None:
    if r.bias is None or r.bias.dtype in ("float16", "bfloat16"):
        return None
    return Finding("bias", r.bias.dtype, "float16 or bfloat16")


def bias_type_is_the_outputs(r: Request) -> Finding | None:
    if r.bias is None or r.out_dtype not in ("bfloat16", "float16") or r.bias.dtype == r.out_dtype:
        return None
    return Finding("bias", r.bias.dtype, f"{r.out_dtype} for out_dtype {r.out_dtype}", f"Pass bias.to({r.out_dtype}).")


def row_wise_output_exists(r: Request) -> Finding | None:
    outputs = r.profile.contract.row_wise_outputs
    if not is_row_wise(r) or r.out_dtype in outputs:
        return None
    return Finding("out_dtype", r.out_dtype, f"{' or '.join(outputs)} with row-wise scales")


def own_kernel_takes_bias(r: Request) -> Finding | None:
    if r.bias is None or not has_own_kernel(r):
        return None
    if len(r.bias.shape) == 1 and r.bias.strides[0] == 1:
        return None
    got = f"shape {r.bias.shape}, strides {r.bias.strides}"
    return Finding("bias", got, "a contiguous vector with row-wise scales", "Pass bias.reshape(-1).contiguous().")


def output_type_exists(r: Request) -> Finding | None:
    if r.out_dtype in OUT_TYPES:
        return None
    return Finding("out_dtype", r.out_dtype, f"one of {', '.join(OUT_TYPES)}")


def e5m2_needs_e5m2(r: Request) -> Finding | None:
    if r.out_dtype != E5M2 or E5M2 in (r.a.dtype, r.b.dtype):
        return None
    return Finding("out_dtype", E5M2, f"another type: cuBLASLt has no {E4M3} x {E4M3} to {E5M2}")


def scale_result_fits_output(r: Request) -> Finding | None:
    """Row-wise products do without it, whatever it is."""
    if r.scale_result is None or r.out_dtype in FP8_TYPES or kind_of(r) != scaling.TENSOR_WISE:
        return None
    return Finding("scale_result", f"out_dtype {r.out_dtype}", "an fp8 output, or no scale_result")


def wide_scale_result_is_refused(profile: Profile) -> bool:
    return profile.gemm.scale_result_on_wide_output == "reject"
