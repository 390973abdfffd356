# SPDX-License-Identifier: Apache-2.0
"""explain: it ends at the very bits of scaled_mm, loses nothing on the way, and survives JSON."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import mmaemu
from mmaemu import Bits, Spec, Trace, profiles
from mmaemu.errors import InvalidInputError, ReferenceRejectsError, UnsupportedFeatureError

M, N, K = 5, 32, 208
HALF, THREE = np.float32(0.3), np.float32(0.7)


def operands(seed=0, a_format="e4m3", b_format="e4m3"):
    random = np.random.default_rng(seed)
    a, b = random.integers(0, 256, (M, K), np.uint8), random.integers(0, 256, (N, K), np.uint8)
    for words in (a, b):
        words[words & 0x7C == 0x7C] ^= 0x40  # no NaN, no infinity in either format
    return Bits(a_format, a), Bits(b_format, b.T)


CALLS: dict[str, dict[str, Any]] = {
    "hopper fast": {"use_fast_accum": True},
    "hopper slow": {"out_dtype": "bfloat16"},
    "ada slow": {"profile": "l40s", "out_dtype": "float16"},
    "ada split": {"profile": "rtx4060-cublaslt12.8", "splitk": (3, "compute_type"), "out_dtype": "float32"},
    "partials in the output type": {"splitk": (2, "output_type"), "out_dtype": "bfloat16"},
    "in place": {"splitk": (2, "inplace"), "out_dtype": "float16", "use_fast_accum": True},
    "scales on partials": {
        "profile": profiles.get("h200").with_overrides({"gemm.scale_timing": "before_reduction"}),
        "splitk": (2, "output_type"),
        "out_dtype": "bfloat16",
    },
    "fp8 output with its scale": {"out_dtype": "float8_e4m3fn", "scale_result": np.float32(0.1)},
    "step by step scales": {"profile": profiles.get("h200").with_overrides({"gemm.scale_order": "b_then_a"})},
    "an instruction that adds C last": {
        "profile": profiles.get("h200").with_overrides({"instruction.accumulator_joins": "after"}),
        "out_dtype": "float32",
    },
    "an interleaved order": {
        "profile": profiles.get("h200").with_overrides({"instruction.order": "k_mod_4", "instruction.group": 16}),
        "out_dtype": "float32",
    },
}


def dyadic(pair):
    return Fraction(pair[0]) * Fraction(2) ** pair[1]


def steps(cell):
    return [step for split in cell["splits"] for chunk in split["chunks"] for step in chunk["steps"]]


@pytest.mark.parametrize("name", CALLS)
def test_a_cell_ends_at_the_word_of_scaled_mm(name):
    a, b = operands()
    out = mmaemu.scaled_mm(a, b, HALF, THREE, **CALLS[name]).array
    cells = [(0, 0), (4, 31), (2, 17)]
    trace = mmaemu.explain(a, b, HALF, THREE, cells=cells, **CALLS[name])
    for (i, j), cell in zip(cells, trace.cells, strict=True):
        assert int(cell["out"]["bits"], 16) == int(out[i, j])


@pytest.mark.parametrize("name", CALLS)
def test_what_a_term_keeps_and_loses_is_the_exact_product(name):
    a, b = operands(1)
    (cell,) = mmaemu.explain(a, b, HALF, THREE, cells=[(1, 2)], **CALLS[name]).cells
    lossy = 0
    for step in steps(cell):
        grid = Fraction(2) ** step["grid_exponent"]
        kept = [term["kept"] * grid for term in step["terms"]]
        for term, units in zip(step["terms"], kept, strict=True):
            assert units + dyadic(term["lost"]) == dyadic(term["product"])
            assert abs(dyadic(term["lost"])) < grid
            lossy += term["lost"] != [0, 0]
        assert step["sum"] == step["accumulator"]["kept"] + sum(term["kept"] for term in step["terms"])
    assert lossy > 0


def test_every_k_is_shown_once():
    a, b = operands(2)
    (cell,) = mmaemu.explain(a, b, cells=[(0, 0)], out_dtype="float32", splitk=(2, "compute_type")).cells
    assert sorted(term["k"] for step in steps(cell) for term in step["terms"]) == list(range(K))


def test_the_exact_dot_product_is_the_sum_of_the_exact_products():
    a, b = operands(3)
    (cell,) = mmaemu.explain(a, b, cells=[(3, 9)], out_dtype="float32").cells
    left = torch.from_numpy(a.array[3].copy()).view(torch.float8_e4m3fn).double().tolist()
    right = torch.from_numpy(b.array[:, 9].copy()).view(torch.float8_e4m3fn).double().tolist()
    exact = sum(Fraction(x) * Fraction(y) for x, y in zip(left, right, strict=True))
    assert dyadic(cell["exact"]["dot"]) == exact
    assert dyadic(cell["out"]["exact"]) - exact == dyadic(cell["exact"]["error"])


def test_a_nan_operand_is_shown_and_leaves_no_exact_value():
    a, b = operands(4)
    a.array[0, 5] = 0x7F
    trace = mmaemu.explain(a, b, cells=[(0, 0)], out_dtype="float32")
    (cell,) = trace.cells
    assert cell["out"]["bits"] == "7FFFFFFF" and cell["exact"]["result"] is None
    assert "NaN or infinite" in str(trace)


def test_k_of_zero_is_all_zeros():
    a, b = Bits("e4m3", np.zeros((2, 0), np.uint8)), Bits("e4m3", np.zeros((0, 16), np.uint8))
    (cell,) = mmaemu.explain(a, b, cells=[(1, 15)], out_dtype="bfloat16").cells
    assert cell["out"]["bits"] == "0000" and cell["splits"] == []


def test_a_trace_survives_json():
    a, b = operands()
    trace = mmaemu.explain(a, b, HALF, THREE, cells=[(0, 1)], out_dtype="bfloat16", profile="l40s")
    again = Trace.from_dict(json.loads(json.dumps(trace.to_dict(), allow_nan=False)))
    assert again == trace and str(again) == str(trace)


def test_another_schema_is_refused():
    with pytest.raises(InvalidInputError, match="mmaemu-trace/1"):
        Trace.from_dict({"schema": "mmaemu-trace/99"})


def test_shapes_alone_give_the_plan():
    trace = mmaemu.explain(Spec("e4m3", (64, 1920)), Spec("e4m3", (1920, 5760), (1, 1920)), out_dtype="bfloat16")
    assert trace.plan["splits"][0]["chunks"][:2] == [[0, 128], [128, 256]] and trace.cells == []


def test_torch_meta_tensors_give_the_plan():
    a = torch.empty(64, 256, dtype=torch.float8_e4m3fn, device="meta")
    b = torch.empty(128, 256, dtype=torch.float8_e4m3fn, device="meta").t()
    assert mmaemu.explain(a, b, out_dtype=torch.float32).call["n"] == 128


def test_cells_need_values():
    with pytest.raises(InvalidInputError, match="without data"):
        mmaemu.explain(Spec("e4m3", (16, 32)), Spec("e4m3", (32, 16), (1, 32)), cells=[(0, 0)], out_dtype="float32")


@pytest.mark.parametrize("cell", [(5, 0), (0, 32), (-1, 0), (0,), "ab", (0, 0, 0)])
def test_a_cell_outside_the_result_is_malformed(cell):
    a, b = operands()
    with pytest.raises(InvalidInputError, match="cells"):
        mmaemu.explain(a, b, cells=[cell], out_dtype="float32")


def test_explain_refuses_what_scaled_mm_refuses():
    a, b = operands()
    with pytest.raises(ReferenceRejectsError):
        mmaemu.explain(a, Bits("e4m3", np.ascontiguousarray(b.array)), HALF, THREE)
    with pytest.raises(UnsupportedFeatureError):
        mmaemu.explain(a, b, HALF, THREE, out_dtype="float16", profile="a100")


def test_the_text_names_profile_confidence_and_every_step():
    a, b = operands()
    text = str(mmaemu.explain(a, b, HALF, THREE, cells=[(0, 1)], out_dtype="bfloat16", profile="l40s"))
    for wanted in ("l40s: NVIDIA L40S", "assumed", "recorded", "step k = 0..15", "cell (0, 1)", "exact dot product"):
        assert wanted in text
