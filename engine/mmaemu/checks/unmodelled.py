# SPDX-License-Identifier: Apache-2.0
"""What the hardware would run and mmaemu does not model, and options that are malformed in its own terms."""

from __future__ import annotations

from collections.abc import Mapping

from mmaemu import scaling
from mmaemu.checks.finding import FP8_TYPES, OUT_TYPES, Finding, fits_in_place, kind_of, lies_in_rows
from mmaemu.profiles.gemm import SPLIT_SCHEMES
from mmaemu.profiles.load import MAX_SPLITS
from mmaemu.request import Request
from mmaemu.tensors import Operand


def splitk_is_well_formed(r: Request) -> Finding | None:
    if r.splitk is None:
        return None
    count, scheme = r.splitk
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_SPLITS:
        return Finding("splitk", repr(count)[:80], f"a number of splits from 1 to {MAX_SPLITS}")
    if scheme not in SPLIT_SCHEMES:
        return Finding("splitk", repr(scheme)[:80], f"a scheme: {', '.join(SPLIT_SCHEMES)}")
    return None


def no_autograd(r: Request) -> Finding | None:
    return autograd(r.operands)


def autograd(operands: Mapping[str, Operand]) -> Finding | None:
    names = [name for name, operand in operands.items() if operand.requires_grad]
    if not names:
        return None
    return Finding(", ".join(names), "requires_grad", "tensors outside autograd", "Call under torch.no_grad().")


def no_microscaling(r: Request) -> Finding | None:
    kind = kind_of(r)
    if kind not in scaling.MICROSCALED:
        return None
    name = "MXFP8: one e8m0 scale for 32" if kind == scaling.BLOCK_1x32 else "NVFP4: one e4m3 scale for 16"
    return Finding("scale_a, scale_b", name, "float32 scales", "Only Blackwell has instructions for these scales.")


def bias_has_no_gaps(r: Request) -> Finding | None:
    """torch hands on where a bias begins; its strides are not looked at, so the library reads what lies in gaps."""
    if r.bias is None or r.bias.contiguous:
        return None
    return Finding("bias", f"strides {r.bias.strides}", "a contiguous tensor", "Call .contiguous() on it.")


def out_is_row_major(r: Request) -> Finding | None:
    """torch lets the library write a column-major out with the operands' parts exchanged; into a copy, which it then
    drops, where neither stride is 1."""
    if r.out is None or not fits_in_place(r) or lies_in_rows(r.out):
        return None
    return Finding("out", f"strides {r.out.strides}", "a row-major matrix", "Write to a contiguous tensor, then copy.")


def contraction_is_the_usual(r: Request) -> Finding | None:
    if not r.contraction_dim or tuple(dim % 2 for dim in r.contraction_dim) == (1, 0):
        return None
    return Finding("contraction_dim", str(r.contraction_dim), "() or (1, 0)")


def block_scales_have_modelled_output(r: Request) -> Finding | None:
    if kind_of(r) not in scaling.BLOCKS_OF_128 or r.out_dtype not in FP8_TYPES:
        return None
    return Finding("out_dtype", f"{r.out_dtype} with block-wise scales", "bfloat16, float16 or float32")


def output_has_a_format(r: Request) -> Finding | None:
    """Only an empty product comes so far with another type: torch makes an empty tensor of it, or zeros."""
    return None if r.out_dtype in OUT_TYPES else Finding("out_dtype", r.out_dtype, f"one of {', '.join(OUT_TYPES)}")


def path_is_modelled(r: Request) -> Finding | None:
    """Raised by the profile itself, which knows what it has not modelled."""
    r.profile.path_facts(scaling.PATHS[scaling.of(r)])
    return None
