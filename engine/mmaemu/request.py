# SPDX-License-Identifier: Apache-2.0
"""Stage 1: one call as plain data. Nothing is checked here but what no later stage could read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mmaemu import profiles, tensors
from mmaemu.errors import InvalidInputError
from mmaemu.profiles import Profile
from mmaemu.tensors import Operand

Splitk = tuple[int, str]


@dataclass(frozen=True)
class Request:
    """The arguments of one `scaled_mm`: operands as bits, everything else as given."""

    a: Operand
    b: Operand
    scale_a: Operand
    scale_b: Operand
    bias: Operand | None
    scale_result: Operand | None
    out_dtype: str
    """torch's name of the output type; where the caller named none, out's, else mat1's own, as in torch."""
    use_fast_accum: bool
    profile: Profile
    splitk: Splitk | None
    backend: str
    out: Operand | None = None
    """Where the result is to go, if the caller said so. Its values play no part."""
    scaling: str | None = None
    """How the operands are scaled, where the caller said so; else their scales' shapes tell (scaling.detect)."""
    contraction_dim: tuple[int, ...] = ()
    """Dimensions of a and b whose sizes torch.nn.functional.scaled_mm compares; () is a's columns and b's rows."""

    @property
    def operands(self) -> dict[str, Operand]:
        named = {
            "a": self.a,
            "b": self.b,
            "scale_a": self.scale_a,
            "scale_b": self.scale_b,
            "bias": self.bias,
            "scale_result": self.scale_result,
        }
        return {name: operand for name, operand in named.items() if operand is not None}


def build(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    *,
    profile: str | Profile | None = None,
    splitk: int | Splitk | None = None,
    backend: str = "auto",
    scaling: str | None = None,
    out: Any = None,
    contraction_dim: tuple[int, ...] = (),
) -> Request:
    """Read every argument. InvalidInputError for one that is not a tensor, a type or a profile at all."""
    mat1 = tensors.read(a, "a")
    target = None if out is None else tensors.read_target(out, "out")
    default = mat1.dtype if target is None else target.dtype
    resolved = profiles.get(profile)
    if not isinstance(use_fast_accum, bool):
        raise InvalidInputError.because("use_fast_accum", got=repr(use_fast_accum)[:80], wanted="True or False")
    if not isinstance(backend, str):
        raise InvalidInputError.because("backend", got=repr(backend)[:80], wanted="the name of a backend, or auto")
    return Request(
        a=mat1,
        b=tensors.read(b, "b"),
        scale_a=tensors.read(scale_a, "scale_a"),
        scale_b=tensors.read(scale_b, "scale_b"),
        bias=None if bias is None else tensors.read(bias, "bias"),
        scale_result=None if scale_result is None else tensors.read(scale_result, "scale_result"),
        out_dtype=default if out_dtype is None else tensors.dtype_name(out_dtype),
        use_fast_accum=use_fast_accum,
        profile=resolved,
        splitk=_splitk(splitk, resolved),
        backend=backend,
        out=target,
        scaling=scaling,
        contraction_dim=contraction_dim,
    )


def _splitk(splitk: int | Splitk | None, profile: Profile) -> Splitk | None:
    if splitk is None:
        return None
    if isinstance(splitk, int) and not isinstance(splitk, bool):
        return splitk, profile.gemm.split_scheme
    if isinstance(splitk, tuple | list) and len(splitk) == 2:
        return splitk[0], splitk[1]
    raise InvalidInputError.because(
        "splitk", got=repr(splitk)[:80], wanted="S or (S, scheme), such as (4, 'compute_type')"
    )
