# SPDX-License-Identifier: Apache-2.0
"""What a check says when it fires, and the words that several checks share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mmaemu import scaling
from mmaemu.model import formats
from mmaemu.request import Request
from mmaemu.tensors import Operand

E4M3, E5M2 = formats.E4M3.torch_name, formats.E5M2.torch_name
FP8_TYPES = (E4M3, E5M2)
OUT_TYPES = ("float32", "bfloat16", "float16", E4M3, E5M2)


@dataclass(frozen=True)
class Finding:
    """The field that is wrong, what came, what was wanted, and what to do where that is plain."""

    field: str
    got: str
    wanted: str
    hint: str = ""


@dataclass(frozen=True)
class Check:
    """One condition of the contract: `finds` returns None where the call passes."""

    condition: str
    """What has to hold, as docs/contract.md prints it."""
    finds: Callable[[Request], Finding | None]
    confidence: str = "source"
    """Whether torch's source says so, or it is inferred (assumed) from what cuBLASLt's documents say."""
    exception: str = ""
    """The field of the contract that names torch's exception; RuntimeError where there is none."""
    whole_call: bool = False
    """True for the library's rules on sizes, layouts and outputs, which the sum itself does not need."""
    unless_empty: bool = False
    """True where torch returns early for a size of zero, before it comes to the check."""


def kind_of(r: Request) -> str | None:
    """How the operands are scaled: as the caller said, else as the scales' shapes tell."""
    return r.scaling or scaling.detect(r)


def is_empty(r: Request) -> bool:
    return 0 in (*r.a.shape, *r.b.shape)


def is_row_wise(r: Request) -> bool:
    return kind_of(r) == scaling.ROW_WISE


def has_own_kernel(r: Request) -> bool:
    """Whether the product goes to torch's own row-wise kernels, which look at layouts more strictly than cuBLASLt's
    callers do."""
    return is_row_wise(r) and r.profile.contract.row_wise_kernel == "torch"


def shown(operand: Operand) -> str:
    return f"{operand.dtype} {operand.shape} of strides {operand.strides}"
