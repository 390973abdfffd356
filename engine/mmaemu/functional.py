# SPDX-License-Identifier: Apache-2.0
"""`scaled_mm` as torch.nn.functional has it since torch 2.10: the caller names how each operand is scaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mmaemu import api, recipes, request, scaling, tensors, validation
from mmaemu.backends.interface import Progress
from mmaemu.checks.finding import is_empty
from mmaemu.model import formats
from mmaemu.profiles import Profile
from mmaemu.request import Request, Splitk


def scaled_mm(
    mat_a: Any,
    mat_b: Any,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Any = None,
    output_dtype: Any = "bfloat16",
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
    *,
    profile: str | Profile | None = None,
    splitk: int | Splitk | None = None,
    backend: str = "auto",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """What `torch.nn.functional.scaled_mm` returns on the profile's GPU, bit for bit: [M, N] of `output_dtype`.

    NaN, overflow and zero sizes as in `mmaemu.scaled_mm`, which gives the same bits for the same scales; output_dtype
    None is mat_a's type. A recipe is torch's ScalingType, its number or its name; lists of one are taken, as torch
    takes them. Scales are float32:

    TensorWise: one number. RowWise: (M, 1) for a, N numbers of two dimensions for b. BlockWise1x128: (M, K/128) of
    strides (1, M) for a, (N, K/128) of strides (1, N) for b. BlockWise128x128: (R, M/128) or (R, N/128) of strides
    (1, R), R being K/128 rounded up to a multiple of 4; every division rounds up. Blocks need a profile that models
    them: h100-pcie-cublaslt12.9. swizzle_a and swizzle_b belong to recipes that mmaemu does not model; for the others
    torch does not look at them, nor does mmaemu.

    Raises as `mmaemu.scaled_mm` does; refusals for which torch raises ValueError are ReferenceRejectsValueError.
    """
    recipe_a, recipe_b = recipes.read(scale_recipe_a, "scale_recipe_a"), recipes.read(scale_recipe_b, "scale_recipe_b")
    scales_a, scales_b = recipes.all_of(scale_a, "scale_a"), recipes.all_of(scale_b, "scale_b")
    call = request.build(
        mat_a, mat_b, scales_a[0], scales_b[0], bias, None, output_dtype, use_fast_accum,
        profile=profile, splitk=splitk, backend=backend,
        scaling=recipes.kind_of(recipe_a, recipe_b, len(scales_a), len(scales_b)),
        contraction_dim=recipes.contraction(contraction_dim),
    )  # fmt: skip
    validation.validate_functional(call)
    if is_empty(call):
        return _empty(call)
    return api.run(_as_v1(call), threads=threads, progress=progress)


def _empty(call: Request) -> Any:
    """torch makes the result before it looks at types, scales or bias."""
    _ = call.profile.gemm  # a profile of instructions alone multiplies nothing, not even this
    words = np.zeros((call.a.shape[0], call.b.shape[1]), formats.get(call.out_dtype).storage)
    return tensors.give_back(words, call.out_dtype, call.a)


def _as_v1(call: Request) -> Request:
    """The same call with scales in the shapes of `torch._scaled_mm`; microscaled ones as they are, to be refused."""
    if call.scaling in scaling.MICROSCALED:
        return call
    blocks = call.scaling in scaling.BLOCKS_OF_128
    scale_a, scale_b = recipes.block_scales(call) if blocks else recipes.plain_scales(call)
    return replace(call, scale_a=scale_a, scale_b=scale_b)
