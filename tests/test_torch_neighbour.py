# SPDX-License-Identifier: Apache-2.0
"""torch's own CPU `_scaled_mm` as a neighbour: float32 arithmetic, so ours lies within what the hardware drops."""

from __future__ import annotations

import pytest
import torch

import mmaemu
from mmaemu import profiles

F8 = torch.float8_e4m3fn


def bound(a, b, k, fast, profile):
    """How far an output may be from the exact sum before its scales.

    A step cuts each of its terms to 2^-13 of the largest exponent, and its result to 13 fraction bits. Products and
    running sum are below the sum S of all magnitudes, and a power of two is not above what it is the exponent of; so
    a step of G products and the accumulator loses at most (G + 1) * 2^-13 * S, and its result one more. K / G steps:

        |error| <= (K / G) * (G + 2) * 2^-13 * S,   with G = 16 or 32

    which is generous: it takes every term for the worst. float32 sums add K * 2^-24 * S.
    """
    group = profiles.get(profile).gemm_instruction("e4m3", "e4m3").rule.group
    total = a.float().abs() @ b.float().abs()
    steps = -(-k // group)
    return steps * (group + 2) * 2.0**-13 * total + k * 2.0**-24 * total


@pytest.mark.parametrize("profile", ["h100-pcie-cublaslt12.8", "l40s"])
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("k", [64, 512])
@pytest.mark.parametrize("kind", ["tensor-wise", "row-wise"])
def test_ordinary_data_lies_within_what_the_hardware_drops(profile, fast, k, kind):
    generator = torch.Generator().manual_seed(k)
    a = torch.randn(48, k, generator=generator).to(F8)
    b = torch.randn(64, k, generator=generator).to(F8).t()
    if kind == "row-wise":
        scale_a, scale_b = torch.rand(48, 1, generator=generator) + 0.5, torch.rand(1, 64, generator=generator) + 0.5
    else:
        scale_a, scale_b = torch.tensor(0.7), torch.tensor(1.3)
    neighbour = torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16)
    ours = mmaemu.scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=fast, profile=profile)
    allowed = bound(a, b, k, fast, profile) * scale_a * scale_b + 2.0**-8 * neighbour.float().abs()
    distance = (ours.float() - neighbour.float()).abs()
    assert (distance <= allowed).all()
    assert float((distance / neighbour.float().abs().clamp(min=1)).mean()) < 0.01, "and far closer than that on average"


def test_a_bias_lies_where_torchs_does():
    generator = torch.Generator().manual_seed(7)
    a = torch.randn(16, 64, generator=generator).to(F8)
    b = torch.randn(32, 64, generator=generator).to(F8).t()
    bias, one = torch.linspace(-30, 30, 32).bfloat16(), torch.tensor(1.0)
    neighbour = torch._scaled_mm(a, b, one, one, bias, out_dtype=torch.bfloat16)
    ours = mmaemu.scaled_mm(a, b, one, one, bias, out_dtype=torch.bfloat16)
    torch.testing.assert_close(ours, neighbour, rtol=2.0**-6, atol=0.1)
