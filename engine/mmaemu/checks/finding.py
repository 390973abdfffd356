# SPDX-License-Identifier: Apache-2.0
"""What a check says when it fires, and the words that several checks share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mmaemu import scaling
from mmaemu.model import formats
from mmaemu.profiles import Profile
from mmaemu.profiles.contract import Contract
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


Finds = Callable[[Request], Finding | None]


@dataclass(frozen=True)
class Check:
    """One condition of the contract: `finds` returns None where the call passes."""

    condition: str
    """What has to hold, as docs/contract.md prints it."""
    field: str
    """The argument that is named when it does not hold; one of several after a semicolon."""
    finds: Finds
    confidence: str = "source"
    """Whether torch's source says so, cuBLASLt's documents do, or it is inferred (assumed)."""
    exception: str = "RuntimeError"
    """torch's exception, where it is the same in all versions."""
    exception_field: str = ""
    """The field of the contract that names torch's exception, where versions differ."""
    applies: Callable[[Profile], bool] | None = None
    """Whether this version of torch, with this library, looks at it; None where all do."""
    whole_call: bool = False
    """True for the library's rules on sizes, layouts and outputs, which the sum itself does not need."""
    unless_empty: bool = False
    """True where torch returns early for a size of zero, before it comes to the check."""

    def exception_under(self, contract: Contract) -> str:
        """torch's exception under this version."""
        return str(getattr(contract, self.exception_field)) if self.exception_field else self.exception

    def looked_at(self, request: Request) -> bool:
        """Whether torch comes to this check at all."""
        if self.unless_empty and is_empty(request):
            return False
        return self.applies is None or self.applies(request.profile)


def kind_of(r: Request) -> str | None:
    """How the operands are scaled: as the caller said, else as the scales' shapes tell."""
    return r.scaling or scaling.detect(r)


def is_empty(r: Request) -> bool:
    """Whether torch returns early: of two matrices, M, K or N is 0; it does not look at b's rows here."""
    return 0 in (*r.a.shape, r.b.shape[1])


def is_row_wise(r: Request) -> bool:
    return kind_of(r) == scaling.ROW_WISE


def has_own_kernels(profile: Profile) -> bool:
    """Whether row-wise products go to torch's own kernels, which look at layouts more strictly than cuBLASLt's
    callers do."""
    return profile.contract.row_wise_kernel == "torch"


def has_own_kernel(r: Request) -> bool:
    return is_row_wise(r) and has_own_kernels(r.profile)


def fits_in_place(r: Request) -> bool:
    """Whether the result goes to `out` as it is; torch resizes an out of another shape, which makes it contiguous."""
    return r.out is not None and r.out.shape == (r.a.shape[0], r.b.shape[1])


def lies_in_rows(operand: Operand) -> bool:
    """Whether torch hands a matrix on as it is, its rows one after the other, with gaps between them or without."""
    return operand.contiguous or (operand.strides[1] == 1 and operand.strides[0] >= operand.shape[1])


def shown(operand: Operand) -> str:
    return f"{operand.dtype} {operand.shape} of strides {operand.strides}"
