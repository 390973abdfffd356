# SPDX-License-Identifier: Apache-2.0
"""The same calls under torch 2.7 and torch 2.13, and cuBLASLt's table of types, which is one under both."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.small_calls import (
    E4M3,
    E5M2,
    E5M2_TWICE,
    FP4_PAIR,
    NEWER,
    NVFP4,
    OLDER,
    K,
    M,
    N,
    blocks,
    e8m0,
    fp8,
    good_call,
    refusal,
    rows_and_columns,
)

import mmaemu
from mmaemu.errors import (
    MmaemuError,
    ReferenceRejectsError,
    ReferenceRejectsValueError,
    UnsupportedFeatureError,
)

VALUE_ERRORS: dict[str, dict[str, Any]] = {
    "e5m2 twice": E5M2_TWICE,
}


@pytest.mark.parametrize("name", VALUE_ERRORS)
def test_the_version_of_torch_decides_the_exception(name):
    older, newer = refusal(VALUE_ERRORS[name]), refusal({**VALUE_ERRORS[name], "profile": NEWER})
    assert type(older) is ReferenceRejectsError and not isinstance(older, ValueError)
    assert type(newer) is ReferenceRejectsValueError
    assert isinstance(newer, ValueError) and isinstance(newer, RuntimeError)
    assert str(older) == str(newer)


Verdict = tuple[type[MmaemuError], str] | None
# The same call under torch 2.7 and under torch 2.13, on one device.
BOTH: dict[str, tuple[dict[str, Any], Verdict, Verdict]] = {
    "e5m2 twice": (E5M2_TWICE, (ReferenceRejectsError, "a, b"), (ReferenceRejectsValueError, "a, b")),
    "row-wise scales in float32": (
        rows_and_columns(out_dtype=torch.float32),
        (ReferenceRejectsError, "out_dtype"),
        None,
    ),
    "row-wise scales in fp8": (
        rows_and_columns(out_dtype=E4M3),
        (ReferenceRejectsError, "out_dtype"),
        (ReferenceRejectsError, "out_dtype"),
    ),
    "row-wise scales with an e5m2 b": (rows_and_columns(b=fp8(N, K, E5M2).t()), (ReferenceRejectsError, "b"), None),
    "row-wise scales with a bias of two dimensions": (
        rows_and_columns(bias=torch.ones(1, N).bfloat16()),
        (ReferenceRejectsError, "bias"),
        None,
    ),
    "row-wise scales with an a without unit stride": (
        rows_and_columns(a=fp8(2 * M, 2 * K)[::2, ::2]),
        (ReferenceRejectsError, "a"),
        None,
    ),
    "row-wise scales with a column-major out": (
        rows_and_columns(out=torch.empty(N, M, dtype=torch.bfloat16).t()),
        (ReferenceRejectsError, "out"),
        (UnsupportedFeatureError, "out"),
    ),
    "scale_result with a wide output": (
        {"scale_result": torch.tensor(2.0)},
        (ReferenceRejectsError, "scale_result"),
        None,
    ),
    "blocks of 128": (
        {key: value for key, value in blocks().items() if key != "profile"},
        (ReferenceRejectsError, "scale_a, scale_b"),
        None,
    ),
    "a scale_b of three dimensions": (
        {"scale_b": torch.ones(1, 1, 1)},
        None,
        (ReferenceRejectsError, "scale_a, scale_b"),
    ),
    "NVFP4": (
        {key: value for key, value in NVFP4.items() if key != "profile"},
        (ReferenceRejectsError, "scale_a"),
        (UnsupportedFeatureError, "scale_a, scale_b"),
    ),
    "MXFP4": (
        {**FP4_PAIR, "scale_a": e8m0(512), "scale_b": e8m0(512)},
        (ReferenceRejectsError, "a"),
        (UnsupportedFeatureError, "scale_a, scale_b"),
    ),
    "4-bit and 8-bit operands": (
        {"a": NVFP4["a"], "scale_a": e8m0(512), "scale_b": e8m0(512)},
        (ReferenceRejectsError, "a"),
        (UnsupportedFeatureError, "scale_a, scale_b"),
    ),
    "MXFP8": (
        {"scale_a": e8m0(512), "scale_b": e8m0(512)},
        (UnsupportedFeatureError, "scale_a, scale_b"),
        (UnsupportedFeatureError, "scale_a, scale_b"),
    ),
    "an a that is not fp8, and a bias of the wrong size": (
        {"a": torch.ones(M, K), "bias": torch.ones(3)},
        (ReferenceRejectsError, "bias"),
        (ReferenceRejectsError, "a"),
    ),
}


@pytest.mark.parametrize("name", BOTH)
def test_one_call_under_two_versions_of_torch(name):
    change, older, newer = BOTH[name]
    for profile, verdict in ((OLDER, older), (NEWER, newer)):
        if verdict is None:
            assert mmaemu.scaled_mm(**{**good_call(), **change, "profile": profile}).shape == (M, N)
        else:
            error = refusal({**change, "profile": profile})
            assert (type(error), error.field) == verdict


def test_a_contract_can_be_overridden():
    profile = mmaemu.profiles.get(NEWER).with_overrides({"contract.e5m2_pair_error": "RuntimeError"})
    assert type(refusal({**E5M2_TWICE, "profile": profile})) is ReferenceRejectsError


# cuBLASLt's table: of A and B, the types of D without a bias, with a float16 and with a bfloat16 one; fp8 D take both.
WITHOUT, HALF, BRAIN = {"float32", "bfloat16", "float16"}, {"float16"}, {"bfloat16"}
TYPES: dict[tuple[torch.dtype, torch.dtype], set[str]] = {
    (E4M3, E4M3): {"float8_e4m3fn"},
    (E4M3, E5M2): {"float8_e4m3fn", "float8_e5m2"},
    (E5M2, E4M3): {"float8_e4m3fn", "float8_e5m2"},
    (E5M2, E5M2): set(),
}


@pytest.mark.parametrize("profile", [OLDER, NEWER])
@pytest.mark.parametrize("bias", [None, "float16", "bfloat16", "float32"])
@pytest.mark.parametrize(("type_a", "type_b"), TYPES)
def test_outputs_and_biases_are_those_of_cublaslts_table(type_a, type_b, bias, profile):
    wide = {None: WITHOUT, "float16": HALF, "bfloat16": BRAIN, "float32": set()}[bias]
    narrow = set() if bias == "float32" else TYPES[type_a, type_b]
    operands = {"a": fp8(M, K, type_a), "b": fp8(N, K, type_b).t(), "profile": profile}
    found = set()
    for out_dtype in ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"):
        change: dict[str, Any] = {**operands, "out_dtype": getattr(torch, out_dtype)}
        if bias is not None:
            change["bias"] = torch.ones(N).to(getattr(torch, bias))
        try:
            mmaemu.scaled_mm(**{**good_call(), **change})
        except ReferenceRejectsError:
            continue
        found.add(out_dtype)
    assert found == (wide | narrow if TYPES[type_a, type_b] else set())
