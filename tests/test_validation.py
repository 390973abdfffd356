# SPDX-License-Identifier: Apache-2.0
"""Each refusal of a call: its class, its field, and that the reference's own order decides which comes first."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.small_calls import (
    E4M3,
    E5M2,
    E5M2_TWICE,
    KINDS_OF_2_13,
    NEWER,
    NVFP4,
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
from mmaemu import request, validation
from mmaemu.errors import (
    InvalidInputError,
    ReferenceRejectsError,
    UnsupportedFeatureError,
)

REJECTED: dict[str, tuple[dict[str, Any], str]] = {
    "a vector for a": ({"a": fp8(1, K)[0]}, "a"),
    "three dimensions for b": ({"b": fp8(N, K).t()[None]}, "b"),
    "inner sizes differ": ({"b": fp8(N, 32).t()}, "b"),
    "half-precision scale": ({"scale_a": torch.tensor(1.0, dtype=torch.float16)}, "scale_a"),
    "float64 scale": ({"scale_b": torch.tensor(1.0, dtype=torch.float64)}, "scale_b"),
    "scales of two numbers": ({"scale_a": torch.ones(2)}, "scale_a, scale_b"),
    "one row-wise scale beside one number": ({"scale_a": torch.ones(M, 1)}, "scale_a, scale_b"),
    "row scales as a vector": ({"scale_a": torch.ones(M), "scale_b": torch.ones(N)}, "scale_a, scale_b"),
    "row scales that are not contiguous": (
        rows_and_columns(scale_a=torch.ones(M, 2)[:, :1]),
        "scale_a",
    ),
    "row-wise with another output than bfloat16": (rows_and_columns(out_dtype=torch.float32), "out_dtype"),
    "scale_result of two numbers": ({"scale_result": torch.ones(2)}, "scale_result"),
    "scale_result in half precision": ({"scale_result": torch.tensor(1.0).half()}, "scale_result"),
    "scale_result with a wide output": ({"scale_result": torch.tensor(1.0)}, "scale_result"),
    "bias of another size": ({"bias": torch.ones(N - 1, dtype=torch.bfloat16)}, "bias"),
    "bias with a float32 output": (
        {"bias": torch.ones(N, dtype=torch.bfloat16), "out_dtype": torch.float32},
        "bias",
    ),
    "half bias for a bfloat16 output": ({"bias": torch.ones(N).half()}, "bias"),
    "K not a multiple of 16": ({"a": fp8(M, 40), "b": fp8(N, 40).t()}, "a"),
    "N not a multiple of 16": ({"b": fp8(40, K).t()}, "b"),
    "a is not fp8": ({"a": torch.ones(M, K)}, "a"),
    "b is an integer matrix": ({"b": torch.ones(N, K, dtype=torch.int8).t()}, "b"),
    "e5m2 twice": ({"a": fp8(M, K, E5M2), "b": fp8(N, K, E5M2).t()}, "a, b"),
    "row-major b": ({"b": fp8(K, N)}, "b"),
    "b without a unit stride": ({"b": fp8(2 * N, 2 * K).t()[::2, ::2]}, "b"),
    "column-major a": ({"a": fp8(K, M).t()}, "a"),
    "e4m3 x e4m3 to e5m2": ({"out_dtype": E5M2}, "out_dtype"),
    "an integer output": ({"out_dtype": torch.int32}, "out_dtype"),
    "row-wise scales with an e5m2 b": (rows_and_columns(b=fp8(N, K, E5M2).t()), "b"),
    "row-wise scales with a bias of two dimensions": (rows_and_columns(bias=torch.ones(1, N).bfloat16()), "bias"),
    "row-wise scales with a bias that has gaps": (rows_and_columns(bias=torch.ones(2 * N).bfloat16()[::2]), "bias"),
    "row-wise scales with an a without unit stride": (rows_and_columns(a=fp8(2 * M, 2 * K)[::2, ::2]), "a"),
    "row-wise scales with a row-major b": (rows_and_columns(b=fp8(K, N)), "b"),
    "a float32 bias": ({"bias": torch.ones(N)}, "bias"),
    "a bfloat16 bias for a float16 output": ({"bias": torch.ones(N).bfloat16(), "out_dtype": torch.float16}, "bias"),
    "an out of another type": ({"out": torch.empty(M, N)}, "out_dtype"),
    "a row-major b beside an out": ({"b": fp8(K, N), "out": torch.empty(M, N, dtype=torch.bfloat16)}, "b"),
    "row-wise scales with a column-major out": (
        rows_and_columns(out=torch.empty(N, M, dtype=torch.bfloat16).t()),
        "out",
    ),
    "a single row whose stride is 1": ({"a": fp8(K, 1).t()}, "a"),
    "row-wise scales with a single row whose stride is 1": (
        rows_and_columns(a=fp8(K, 1).t(), scale_a=torch.ones(1, 1)),
        "a",
    ),
    "an out of a single row whose stride is 1": (
        {"a": fp8(1, K), "out": torch.empty(N, 1, dtype=torch.bfloat16).t()},
        "out",
    ),
    "rows of a that begin 72 bytes apart": ({"a": fp8(M, K + 8)[:, :K]}, "a"),
    "columns of b that begin 72 bytes apart": ({"b": fp8(N, K + 8)[:, :K].t()}, "b"),
    "rows of out that begin 104 bytes apart": ({"out": torch.empty(M, N + 4, dtype=torch.bfloat16)[:, :N]}, "out"),
    "an a that begins at the eighth byte": ({"a": fp8(M, 2 * K)[:, 8 : K + 8]}, "a"),
    "a b that begins at the eighth byte": ({"b": fp8(N, 2 * K)[:, 8 : K + 8].t()}, "b"),
    "an out that begins at the eighth byte": (
        {"out": torch.empty(M, 2 * N, dtype=torch.bfloat16)[:, 4 : N + 4]},
        "out",
    ),
    "e8m0 scales of the wrong number": ({"scale_a": e8m0(4), "scale_b": e8m0(4)}, "scale_a, scale_b"),
    "block-wise scales before torch knew them": (
        blocks(profile="h200"),
        "scale_a, scale_b",
    ),
    "block-wise scales in the wrong layout": (
        blocks(scale_a=torch.ones(M, 2)),
        "scale_a, scale_b",
    ),
    "a scale_b of three dimensions, newer": ({"scale_b": torch.ones(1, 1, 1), "profile": NEWER}, "scale_a, scale_b"),
    "newer row-wise scales with an fp8 output": (rows_and_columns(out_dtype=E4M3, profile=NEWER), "out_dtype"),
    "4-bit operands with scales of 8-bit ones": (
        {"a": NVFP4["a"], "b": NVFP4["b"]},
        "a",
    ),
    "newer 4-bit operands with scales of 8-bit ones": (
        {"a": NVFP4["a"], "b": NVFP4["b"], "profile": NEWER},
        "a",
    ),
    "4-bit operands with fast accumulation": ({**NVFP4, "use_fast_accum": True}, "use_fast_accum"),
    "a newer a that is not fp8": ({"a": torch.ones(M, K), "profile": NEWER}, "a"),
    "a type of AMD's": ({"b": torch.zeros(N, K).to(torch.float8_e4m3fnuz).t()}, "b"),
}


UNMODELLED: dict[str, tuple[dict[str, Any], str]] = {
    "MXFP8 scales": ({"scale_a": e8m0(512), "scale_b": e8m0(512), "profile": NEWER}, "scale_a, scale_b"),
    "NVFP4 operands and scales": (NVFP4, "scale_a, scale_b"),
    "block-wise scales on a device without a table of them": (
        {
            **blocks(profile=mmaemu.profiles.get("l40s").with_overrides({"contract.scale_kinds": KINDS_OF_2_13})),
        },
        "scale_a, scale_b",
    ),
    "a column-major out": ({"out": torch.empty(N, M, dtype=torch.bfloat16).t()}, "out"),
    "an out without a unit stride": ({"out": torch.empty(2 * M, 2 * N, dtype=torch.bfloat16)[::2, ::2]}, "out"),
    "newer row-wise scales with a column-major out": (
        rows_and_columns(out=torch.empty(N, M, dtype=torch.bfloat16).t(), profile=NEWER),
        "out",
    ),
    "a bias with gaps": ({"bias": torch.ones(2 * N).bfloat16()[::2]}, "bias"),
    "a bias that is one number stretched": ({"bias": torch.ones(1).bfloat16().expand(N)}, "bias"),
    "block-wise scales with an fp8 output": (blocks(out_dtype=E4M3), "out_dtype"),
    "an empty product of integers": ({"a": fp8(0, K), "out_dtype": torch.int32}, "out_dtype"),
    "a scale that autograd follows": ({"scale_a": torch.ones((), requires_grad=True)}, "scale_a"),
    "a profile of instructions only": ({"profile": "a100"}, "profile"),
}

MALFORMED = {
    "an unknown profile": ({"profile": "rtx9999"}, "profile"),
    "an unknown backend": ({"backend": "abacus"}, "backend"),
    "a Python number for a scale": ({"scale_a": 1.0}, "scale_a"),
    "a list for a": ({"a": [[1.0]]}, "a"),
    "a split of nothing": ({"splitk": 0}, "splitk"),
    "an unknown scheme": ({"splitk": (2, "sideways")}, "splitk"),
    "three numbers for splitk": ({"splitk": (1, 2, 3)}, "splitk"),
    "a number for use_fast_accum": ({"use_fast_accum": 1}, "use_fast_accum"),
    "an out_dtype that is no dtype": ({"out_dtype": object()}, "out_dtype"),
}


def test_the_good_call_passes():
    assert mmaemu.scaled_mm(**good_call()).shape == (M, N)


@pytest.mark.parametrize("name", REJECTED)
def test_what_the_reference_rejects(name):
    change, field = REJECTED[name]
    error = refusal(change)
    assert type(error) is ReferenceRejectsError and error.field == field
    assert isinstance(error, RuntimeError)
    assert error.got and error.wanted


@pytest.mark.parametrize("name", UNMODELLED)
def test_what_is_not_modelled(name):
    change, field = UNMODELLED[name]
    error = refusal(change)
    assert type(error) is UnsupportedFeatureError and error.field == field


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_malformed(name):
    change, field = MALFORMED[name]
    error = refusal(change)
    assert type(error) is InvalidInputError and error.field == field


# Two faults at once: torch's order says which one is named.
FIRST_OF_TWO: dict[str, tuple[dict[str, Any], str]] = {
    "inner sizes before scales": ({"b": fp8(N, 32).t(), "scale_a": torch.ones(3)}, "b"),
    "scale types before bias": ({"scale_a": torch.ones(()).half(), "bias": torch.ones(3)}, "scale_a"),
    "scale_result before bias": ({"scale_result": torch.ones(2), "bias": torch.ones(3)}, "scale_result"),
    "bias size before K": ({"bias": torch.ones(3), "a": fp8(M, 40), "b": fp8(N, 40).t()}, "bias"),
    "K before N": ({"a": fp8(M, 40), "b": fp8(40, 40).t()}, "a"),
    "N before operand types": ({"a": torch.ones(M, K), "b": fp8(40, K).t()}, "b"),
    "out's type before operand types": ({"a": torch.ones(M, K), "out": torch.empty(M, N)}, "out_dtype"),
    "a before b": ({"a": torch.ones(M, K), "b": torch.ones(N, K).t()}, "a"),
    "operand types before the bias's": ({"b": torch.ones(N, K).t(), "bias": torch.ones(N)}, "b"),
    "e5m2 twice before the bias's type": ({**E5M2_TWICE, "bias": torch.ones(N)}, "a, b"),
    "the bias's type before layouts": ({"bias": torch.ones(N), "b": fp8(K, N)}, "bias"),
    "row-wise outputs before layouts": (rows_and_columns(out_dtype=torch.float16, b=fp8(K, N)), "out_dtype"),
    "layouts before outputs": ({"b": fp8(K, N), "out_dtype": torch.int32}, "b"),
    "a single row's stride before what begins where": (
        {"a": fp8(K, 1).t(), "out": torch.empty(1, 2 * N, dtype=torch.bfloat16)[:, 4 : N + 4]},
        "a",
    ),
    "torch's own row-wise kernels: b's type before layouts": (rows_and_columns(b=fp8(K, N, E5M2)), "b"),
    "torch's own row-wise kernels: layouts before the bias": (
        rows_and_columns(b=fp8(K, N), bias=torch.ones(1, N).bfloat16()),
        "b",
    ),
    "torch's own row-wise kernels: the bias before out": (
        rows_and_columns(bias=torch.ones(1, N).bfloat16(), out=torch.empty(N, M, dtype=torch.bfloat16).t()),
        "bias",
    ),
    "the reference before options": ({"splitk": 0, "b": fp8(K, N)}, "b"),
}


@pytest.mark.parametrize("name", FIRST_OF_TWO)
def test_of_two_faults_the_references_first_is_named(name):
    change, field = FIRST_OF_TWO[name]
    assert refusal(change).field == field


def test_every_check_of_the_reference_can_fire():
    """Each row of the table is some call's first fault: a check that nothing reaches would prove nothing."""
    calls = [change for change, _ in (*REJECTED.values(), *UNMODELLED.values(), *FIRST_OF_TWO.values())]
    calls += [{"out": torch.empty(M, N, dtype=torch.float16), "out_dtype": torch.bfloat16}]
    made = [request.build(**{**good_call(), **change}) for change in calls if change.get("profile") != "a100"]

    def first(call):
        """The first condition that does not hold, where all checks of the reference and of the model are one table."""
        for check in (*validation.REFERENCE_CHECKS, *validation.MODEL_CHECKS[:-1]):
            found = check.finds(call) if check.looked_at(call) else None
            if found is not None:
                assert found.field in check.field.split("; ") or check.field == "the operands", check.condition
                return check.condition
        return None

    reached = {first(call) for call in made}
    conditions = [check.condition for check in (*validation.REFERENCE_CHECKS, *validation.MODEL_CHECKS[:-1])]
    assert set(conditions) <= reached and len(set(conditions)) == len(conditions)


def test_the_references_rejection_comes_before_what_is_not_modelled():
    error = refusal({"scale_a": torch.ones((), requires_grad=True), "a": torch.ones(M, K)})
    assert type(error) is ReferenceRejectsError and error.field == "a"


def test_the_reference_looks_at_scales_before_multiples_of_16():
    error = refusal({"a": fp8(M, 40), "b": fp8(N, 40).t(), "scale_a": torch.ones(3)})
    assert error.field == "scale_a, scale_b"
