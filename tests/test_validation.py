# SPDX-License-Identifier: Apache-2.0
"""Each refusal of a call: its class, its field, and that the reference's own order decides which comes first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import mmaemu
from mmaemu import Bits, Spec
from mmaemu.errors import (
    InvalidInputError,
    MmaemuError,
    ReferenceRejectsError,
    ReferenceRejectsValueError,
    UnsupportedFeatureError,
)
from mmaemu.testing import assert_bitwise_equal

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
}

NEWER = "h100-pcie-cublaslt12.9"


def blocks(**more: Any) -> dict[str, Any]:
    """Two K blocks of 1x128 scales as torch wants them."""
    operands = {"a": fp8(M, 256), "b": fp8(N, 256).t(), "scale_a": torch.ones(2, M).t(), "scale_b": torch.ones(2, N)}
    return {**operands, "profile": NEWER, **more}


KINDS_OF_2_13 = list(mmaemu.profiles.get(NEWER).contract.scale_kinds)


def e8m0(count):
    return torch.ones(count, dtype=torch.uint8).view(torch.float8_e8m0fnu)


REJECTED |= {
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
}

NVFP4: dict[str, Any] = {
    "a": torch.zeros(M, K, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
    "b": torch.zeros(N, K, dtype=torch.uint8).view(torch.float4_e2m1fn_x2).t(),
    "scale_a": torch.ones(128 * 8).to(E4M3),
    "scale_b": torch.ones(128 * 8).to(E4M3),
    "profile": NEWER,
}

REJECTED |= {
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


def refusal(change):
    with pytest.raises(MmaemuError) as caught:
        mmaemu.scaled_mm(**{**good_call(), **change})
    return caught.value


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


VALUE_ERRORS: dict[str, dict[str, Any]] = {
    "e5m2 twice": {"a": fp8(M, K, E5M2), "b": fp8(N, K, E5M2).t()},
}


@pytest.mark.parametrize("name", VALUE_ERRORS)
def test_the_version_of_torch_decides_the_exception(name):
    older, newer = refusal(VALUE_ERRORS[name]), refusal({**VALUE_ERRORS[name], "profile": NEWER})
    assert type(older) is ReferenceRejectsError and not isinstance(older, ValueError)
    assert type(newer) is ReferenceRejectsValueError
    assert isinstance(newer, ValueError) and isinstance(newer, RuntimeError)
    assert str(older) == str(newer)


OLDER = "h100-pcie-cublaslt12.8"
FP4_PAIR = {"a": NVFP4["a"], "b": NVFP4["b"]}
Verdict = tuple[type[MmaemuError], str] | None
# The same call under torch 2.7 and under torch 2.13, on one device.
BOTH: dict[str, tuple[dict[str, Any], Verdict, Verdict]] = {
    "e5m2 twice": (VALUE_ERRORS["e5m2 twice"], (ReferenceRejectsError, "a, b"), (ReferenceRejectsValueError, "a, b")),
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
    assert type(refusal({**VALUE_ERRORS["e5m2 twice"], "profile": profile})) is ReferenceRejectsError


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
    "e5m2 twice before the bias's type": ({**VALUE_ERRORS["e5m2 twice"], "bias": torch.ones(N)}, "a, b"),
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
    from mmaemu import request, validation

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


ACCEPTED = {
    "row-wise scales": rows_and_columns(),
    "row-wise scales with a bias": rows_and_columns(bias=torch.ones(N).bfloat16()),
    "row-wise scales with scale_result, which is ignored": rows_and_columns(scale_result=torch.tensor(2.0)),
    "row-wise scales with an e5m2 a": rows_and_columns(a=fp8(M, K, E5M2)),
    "newer row-wise scales in float32": rows_and_columns(out_dtype=torch.float32, profile=NEWER),
    "newer row-wise scales with an e5m2 b": rows_and_columns(b=fp8(N, K, E5M2).t(), profile=NEWER),
    "newer scale_result with a wide output": {"scale_result": torch.tensor(2.0), "profile": NEWER},
    "a float16 bias for an fp8 output": {"bias": torch.ones(N).half(), "out_dtype": E4M3},
    "a bfloat16 bias for an fp8 output": {"bias": torch.ones(N).bfloat16(), "out_dtype": E4M3},
    "a bias of two dimensions": {"bias": torch.ones(1, N).bfloat16()},
    "blocks of 1x128": blocks(),
    "blocks of 128x128 for b": blocks(scale_b=torch.ones(1, 2).t()),
    "blocks of 128x128 for a": blocks(scale_a=torch.ones(1, 2)),
    "an out of the right shape": {"out": torch.empty(M, N, dtype=torch.bfloat16)},
    "an a and a b that begin at the sixteenth byte": {
        "a": fp8(M, 2 * K)[:, 16 : K + 16],
        "b": fp8(N, 2 * K)[:, 16 : K + 16].t(),
    },
    "a single row cut out of padded ones": {"a": fp8(M, 2 * K)[3:4, :K], "rows": 1},
    "an overlapping a, which torch copies": {"a": fp8(1, 8 * M + K).as_strided((M, K), (8, 1))},
    "an a of one row stretched, which torch copies": {"a": fp8(1, K).expand(M, K)},
    "an out of another shape in any layout": {"out": torch.empty(0, M, dtype=torch.bfloat16).t()},
    "an empty out": {"out": torch.empty(0, dtype=torch.bfloat16)},
    "an out with a padded leading dimension": {"out": torch.empty(M, 2 * N, dtype=torch.bfloat16)[:, :N]},
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_reference_accepts_is_computed(name):
    change = dict(ACCEPTED[name])
    rows = change.pop("rows", M)
    assert mmaemu.scaled_mm(**{**good_call(), **change}).shape == (rows, N)


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


def test_without_an_out_dtype_the_output_is_of_as_type():
    call = good_call()
    del call["out_dtype"]
    assert mmaemu.scaled_mm(**call).dtype == E4M3
    assert mmaemu.scaled_mm(**{**call, "a": fp8(M, K, E5M2)}).dtype == E5M2


def test_scale_result_changes_nothing_on_the_row_wise_path():
    plain = mmaemu.scaled_mm(**{**good_call(), **rows_and_columns()})
    scaled = mmaemu.scaled_mm(**{**good_call(), **rows_and_columns(scale_result=torch.tensor(3.0))})
    assert_bitwise_equal(scaled, plain)


def test_outs_type_is_the_default_of_out_dtype():
    call = good_call()
    del call["out_dtype"]
    out = torch.empty(M, N, dtype=torch.float32)
    assert mmaemu.scaled_mm(**call, out=out) is out
    assert_bitwise_equal(out, mmaemu.scaled_mm(**call, out_dtype=torch.float32))


def test_an_out_of_another_shape_is_resized_with_torchs_warning():
    out = torch.empty(3, 5, dtype=torch.bfloat16)
    with pytest.warns(UserWarning, match="resized"):
        mmaemu.scaled_mm(**good_call(), out=out)
    assert_bitwise_equal(out, mmaemu.scaled_mm(**good_call()))


def test_an_array_for_out_has_to_fit():
    a, b = Bits("e4m3", np.zeros((M, K), np.uint8)), Bits("e4m3", np.zeros((K, N), np.uint8, order="F"))
    one = np.float32(1)
    with pytest.raises(InvalidInputError, match="out: got shape"):
        mmaemu.scaled_mm(a, b, one, one, out=np.empty((M, M), np.float32))
    out = np.ones((M, N), np.float32)
    assert mmaemu.scaled_mm(a, b, one, one, out=out) is out and not out.any()


def test_autograd_is_refused_only_while_it_records():
    call = good_call()
    call["scale_a"] = torch.tensor(0.5, requires_grad=True)
    with torch.no_grad():
        mmaemu.scaled_mm(**call)
    assert type(refusal({"scale_a": call["scale_a"]})) is UnsupportedFeatureError


def test_the_references_rejection_comes_before_what_is_not_modelled():
    error = refusal({"scale_a": torch.ones((), requires_grad=True), "a": torch.ones(M, K)})
    assert type(error) is ReferenceRejectsError and error.field == "a"


def test_the_reference_looks_at_scales_before_multiples_of_16():
    error = refusal({"a": fp8(M, 40), "b": fp8(N, 40).t(), "scale_a": torch.ones(3)})
    assert error.field == "scale_a, scale_b"


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_tensor_wise_scale_is_one_number_of_any_rank(shape):
    mmaemu.scaled_mm(**{**good_call(), "scale_a": torch.ones(shape)})


def test_m_may_be_any_size():
    assert mmaemu.scaled_mm(**{**good_call(), "a": fp8(17, K)}).shape == (17, N)


def test_padded_leading_dimensions_pass():
    padded = {"a": fp8(M, 2 * K)[:, :K], "b": fp8(N, 2 * K)[:, :K].t()}
    assert mmaemu.scaled_mm(**{**good_call(), **padded}).shape == (M, N)


def test_an_a_without_a_unit_stride_is_copied_as_torch_does():
    scattered = fp8(2 * M, 2 * K)[::2, ::2]
    assert mmaemu.scaled_mm(**{**good_call(), "a": scattered}).shape == (M, N)


@pytest.mark.parametrize(("m", "n", "k"), [(0, N, K), (M, 0, K), (M, N, 0)])
def test_an_empty_size_skips_the_layout_checks(m, n, k):
    out = mmaemu.scaled_mm(**{**good_call(), "a": fp8(m, k), "b": fp8(k, n)})
    assert out.shape == (m, n)


def test_numpy_operands_are_checked_by_their_strides():
    a = Bits("e4m3", np.zeros((M, K), np.uint8))
    one = np.float32(1)
    with pytest.raises(ReferenceRejectsError, match="column-major"):
        mmaemu.scaled_mm(a, Bits("e4m3", np.zeros((K, N), np.uint8)), one, one)


def test_stated_strides_stand_for_the_callers_tensor():
    a = Bits("e4m3", np.zeros((M, K), np.uint8))
    b = Bits("e4m3", np.zeros((K, N), np.uint8), strides=(1, K))
    assert mmaemu.scaled_mm(a, b, np.float32(1), np.float32(1)).shape == (M, N)


def test_a_shape_without_data_cannot_be_multiplied():
    with pytest.raises(InvalidInputError, match="without data"):
        mmaemu.scaled_mm(
            Spec("e4m3", (M, K)), Spec("e4m3", (K, N), (1, K)), np.float32(1), np.float32(1), out_dtype="float32"
        )


def test_non_finite_scales_are_legal():
    out = mmaemu.scaled_mm(**{**good_call(), "scale_a": torch.tensor(float("nan")), "out_dtype": torch.float32})
    assert out.isnan().all()


def test_accumulate_takes_any_sizes_and_layouts():
    """A cut-out of a product has the accumulators of the whole."""
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(M, K, generator=generator).to(E4M3)
    b = torch.randn(K, N, generator=generator).to(E4M3)
    whole = mmaemu.accumulate(a, b)
    assert_bitwise_equal(mmaemu.accumulate(a[3:8], b[:, 5:12]), whole[3:8, 5:12])


def test_accumulate_pads_k_with_zeros():
    a, b = fp8(M, 41), fp8(41, N)
    padded = torch.zeros(M, 48).to(E4M3), torch.zeros(48, N).to(E4M3)
    padded[0][:, :41], padded[1][:41] = a, b
    assert_bitwise_equal(mmaemu.accumulate(a, b), mmaemu.accumulate(*padded))


@pytest.mark.parametrize(
    ("a", "b"), [(fp8(M, K), fp8(K + 1, N)), (fp8(M, K, E5M2), fp8(K, N, E5M2)), (torch.ones(M, K), fp8(K, N))]
)
def test_accumulate_still_refuses_what_cannot_be_summed(a, b):
    with pytest.raises(ReferenceRejectsError):
        mmaemu.accumulate(a, b)
