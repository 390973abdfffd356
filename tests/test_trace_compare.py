# SPDX-License-Identifier: Apache-2.0
"""Two profiles side by side: the decisions that differ, and the first running sum whose words do."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import mmaemu
from mmaemu import Bits, profiles
from mmaemu.errors import InvalidInputError
from mmaemu.trace_compare import SCHEMA, compare

HOPPER, ADA = "h100-pcie-cublaslt12.8", "l40s"
ONE = np.float32(1)


def worked_sum():
    """The five products of docs/arithmetic.md, one output of a [1, 32] by [32, 16] product."""
    a, b = np.zeros((1, 32), np.uint8), np.zeros((16, 32), np.uint8)
    a[0, [0, 1, 2, 16, 17]] = [0x24, 0x24, 0x98, 0x5C, 0xBE]
    b[0, [0, 1, 2, 16, 17]] = [0x20, 0x24, 0x3E, 0x5C, 0x3D]
    return Bits("float8_e4m3fn", a), Bits("float8_e4m3fn", b.T)


def traced(profile, operands=None, **options):
    a, b = operands or worked_sum()
    options = {"out_dtype": "float32", "cells": [(0, 0)], **options}
    return mmaemu.explain(a, b, ONE, ONE, profile=profile, **options)


def random_operands(k, seed=0):
    draw = np.random.default_rng(seed)
    a, b = (draw.integers(0, 0x7F, (16, k)) | draw.integers(0, 2, (16, k)) << 7 for _ in range(2))
    return Bits("float8_e4m3fn", a.astype(np.uint8)), Bits("float8_e4m3fn", b.astype(np.uint8).T)


def test_the_worked_sum_parts_at_k_31_as_the_page_says():
    comparison = compare(traced(HOPPER), traced(ADA))
    (cell,) = comparison.cells
    assert cell["parts"]["stage"] == "sum" and cell["parts"]["k"] == [0, 31]
    assert [word["bits"] for word in cell["parts"]["words"]] == ["440F4400", "440F4800"]
    hopper, ada = cell["parts"]["steps"]
    assert [step["k"][0] for step in hopper] == [0] and [step["k"][0] for step in ada] == [0, 16]
    assert [entry["k"] for entry in hopper[0]["lost"]] == [0, 1, 2]
    assert not ada[0]["lost"] and ada[1]["accumulator_lost"] == [-5, -8], "-1.625 units of 1/32, of which -1 is kept"
    assert [word["bits"] for word in cell["out"]] == ["440F4400", "440F4800"]


def test_decisions_of_unlike_value_carry_their_confidence():
    comparison = compare(traced(HOPPER), traced(ADA))
    by_name = {decision["name"]: decision["sides"] for decision in comparison.decisions}
    assert [side["value"] for side in by_name["instruction.group"]] == [32, 16]
    assert {side["confidence"] for side in by_name["instruction.group"]} == {"recorded"}
    assert [side["value"] for side in by_name["slow_chunks"]] == [[128], [64]]
    assert "instruction.fraction_bits" not in by_name


def test_a_profile_against_itself_parts_nowhere():
    comparison = compare(traced(HOPPER), traced("h200"))
    assert comparison.decisions == [] and comparison.cells[0]["parts"] is None
    assert "no decision differs" in str(comparison) and "is the same" in str(comparison)


@pytest.mark.parametrize("seed", range(6))
def test_everything_before_the_parting_agrees(seed):
    """The parting is the first: cut K there, and the accumulators of both are what it says."""
    operands = random_operands(384, seed)
    comparison = compare(traced(HOPPER, operands, use_fast_accum=True), traced(ADA, operands, use_fast_accum=True))
    parts = comparison.cells[0]["parts"]
    assert parts["stage"] == "sum" and parts["k"][0] == 0
    a, b = operands
    last = parts["k"][1] + 1

    def sums(stop):
        return [
            mmaemu.accumulate(
                Bits(a.dtype, a.array[:1, :stop]), Bits(b.dtype, b.array[:stop, :1]), use_fast_accum=True, profile=name
            ).array[0, 0]
            for name in (HOPPER, ADA)
        ]

    assert [f"{word:08X}" for word in sums(last)] == [word["bits"] for word in parts["words"]]
    for stop in range(32, last, 32):
        one, other = sums(stop)
        assert one == other


def test_an_epilogue_alone_can_part():
    profile = profiles.get(HOPPER).with_overrides({"gemm.wide_overflow": "saturate"})
    a, b = worked_sum()
    large = np.float32(3e38)
    ways: dict[str, Any] = {"out_dtype": "float32", "cells": [(0, 0)]}
    one = mmaemu.explain(a, b, large, ONE, profile=HOPPER, **ways)
    other = mmaemu.explain(a, b, large, ONE, profile=profile, **ways)
    parts = compare(one, other).cells[0]["parts"]
    assert parts["stage"] == "epilogue" and parts["names"] == ["to float32", "to float32"]
    assert [word["bits"] for word in parts["words"]] == ["7F800000", "7F7FFFFF"]


def test_row_wise_sums_of_a_ragged_k_are_compared_by_their_real_k():
    a, b = random_operands(208)
    scales = np.ones((16, 1), np.float32), np.ones((1, 16), np.float32)
    traces = [
        mmaemu.explain(a, b, *scales, out_dtype="bfloat16", profile=name, cells=[(2, 3)]) for name in (HOPPER, ADA)
    ]
    parts = compare(*traces).cells[0]["parts"]
    assert parts is not None and parts["stage"] in ("sum", "accumulator")


def test_the_comparison_is_json_and_text():
    comparison = compare(traced(HOPPER), traced(ADA))
    data = json.loads(json.dumps(comparison.to_dict()))
    assert data["schema"] == SCHEMA and data["profiles"] == [HOPPER, ADA]
    text = str(comparison)
    for wanted in (
        "decisions that differ",
        "instruction.group",
        "they part in the sum of k = 0..31",
        "440F4400",
        "exact",
    ):
        assert wanted in text


def test_traces_of_two_calls_are_refused():
    with pytest.raises(InvalidInputError, match="one call"):
        compare(traced(HOPPER), traced(HOPPER, random_operands(64)))
