# SPDX-License-Identifier: Apache-2.0
"""`torch.ops.mmaemu.scaled_mm`: the emulation as an operator that torch.compile and torch.export can hold.

Importing this module registers it. It needs torch.
"""

from __future__ import annotations

from typing import Any, NoReturn

from mmaemu.errors import BackendUnavailableError, ReferenceRejectsError, UnsupportedFeatureError

try:
    import torch
except ImportError:
    raise BackendUnavailableError.because(
        "torch", got="no torch", wanted="the package torch", hint="pip install 'mmaemu[torch]'"
    ) from None

from mmaemu import api

_SCHEMA = (
    "(Tensor self, Tensor mat2, Tensor scale_a, Tensor scale_b, Tensor? bias=None, Tensor? scale_result=None, "
    "ScalarType? out_dtype=None, bool use_fast_accum=False, *, str? profile=None, int? splits=None, "
    "str? split_scheme=None, str backend='auto') -> Tensor"
)


def _scaled_mm(
    self: torch.Tensor,
    mat2: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    *,
    profile: str | None = None,
    splits: int | None = None,
    split_scheme: str | None = None,
    backend: str = "auto",
) -> torch.Tensor:
    """`mmaemu.scaled_mm` on torch tensors: same bits, same errors. profile is a name; splits and split_scheme are
    `splitk`'s two parts."""
    splitk = None if splits is None else splits if split_scheme is None else (splits, split_scheme)
    out: torch.Tensor = api.scaled_mm(
        self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum,
        profile=profile, splitk=splitk, backend=backend,
    )  # fmt: skip
    return out


scaled_mm = torch.library.custom_op("mmaemu::scaled_mm", _scaled_mm, mutates_args=(), schema=_SCHEMA)


@scaled_mm.register_fake
def _scaled_mm_fake(
    self: torch.Tensor,
    mat2: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    *,
    profile: str | None = None,
    splits: int | None = None,
    split_scheme: str | None = None,
    backend: str = "auto",
) -> torch.Tensor:
    """Shape and type of the result. What the reference refuses is refused when the call runs."""
    if self.dim() != 2 or mat2.dim() != 2:
        raise ReferenceRejectsError.because("a, b", got=f"{self.dim()} and {mat2.dim()} dimensions", wanted="matrices")
    return self.new_empty((self.size(0), mat2.size(1)), dtype=out_dtype or self.dtype)


def _refuse_autograd(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> NoReturn:
    """Called where autograd would record the call: refused now, not at the backward pass."""
    raise UnsupportedFeatureError.because(
        "operands", got="requires_grad", wanted="tensors outside autograd", hint="Call under torch.no_grad()."
    )


def _no_backward(ctx: Any, *grads: Any) -> NoReturn:
    raise UnsupportedFeatureError.because("operands", got="a backward pass", wanted="a forward pass alone")


scaled_mm.register_autograd(_no_backward, setup_context=_refuse_autograd)
