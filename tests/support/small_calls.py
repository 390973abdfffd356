# SPDX-License-Identifier: Apache-2.0
"""One small call of scaled_mm that torch accepts, and what to change in it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import mmaemu
from mmaemu.errors import MmaemuError

M, N, K = 32, 48, 64
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def fp8(rows, columns, dtype=E4M3):
    return torch.ones(rows, columns).to(dtype)


def good_call() -> dict[str, Any]:
    return {
        "a": fp8(M, K),
        "b": fp8(N, K).t(),
        "scale_a": torch.tensor(0.5),
        "scale_b": torch.tensor(2.0),
        "out_dtype": torch.bfloat16,
    }


def rows_and_columns(**more: Any) -> dict[str, Any]:
    return {"scale_a": torch.ones(M, 1), "scale_b": torch.ones(1, N), **more}


OLDER, NEWER = "h100-pcie-cublaslt12.8", "h100-pcie-cublaslt12.9"
"""One device under torch 2.7 and under torch 2.13."""


def blocks(**more: Any) -> dict[str, Any]:
    """Two K blocks of 1x128 scales as torch wants them."""
    operands = {"a": fp8(M, 256), "b": fp8(N, 256).t(), "scale_a": torch.ones(2, M).t(), "scale_b": torch.ones(2, N)}
    return {**operands, "profile": NEWER, **more}


KINDS_OF_2_13 = list(mmaemu.profiles.get(NEWER).contract.scale_kinds)


def e8m0(count):
    return torch.ones(count, dtype=torch.uint8).view(torch.float8_e8m0fnu)


NVFP4: dict[str, Any] = {
    "a": torch.zeros(M, K, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
    "b": torch.zeros(N, K, dtype=torch.uint8).view(torch.float4_e2m1fn_x2).t(),
    "scale_a": torch.ones(128 * 8).to(E4M3),
    "scale_b": torch.ones(128 * 8).to(E4M3),
    "profile": NEWER,
}
FP4_PAIR = {"a": NVFP4["a"], "b": NVFP4["b"]}
E5M2_TWICE = {"a": fp8(M, K, E5M2), "b": fp8(N, K, E5M2).t()}


def refusal(change):
    with pytest.raises(MmaemuError) as caught:
        mmaemu.scaled_mm(**{**good_call(), **change})
    return caught.value
