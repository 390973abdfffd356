# SPDX-License-Identifier: Apache-2.0
"""Every backend and kernel against the reference: matrix products of every plan, size, layout and special operand."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.conformance import (
    ADA,
    BIASES,
    E4M3,
    E5M2,
    ENGINES,
    HOPPER,
    NEWER,
    ODD,
    PAIRS,
    SCHEMES,
    SHORT,
    matrices,
)
from tests.support.exact_operands import bounded, words

from mmaemu import Bits, profiles
from mmaemu.backends.native import library

if not ENGINES:
    pytest.skip(f"needs the compiled kernels: {library.why_missing()}", allow_module_level=True)


@pytest.fixture(params=ENGINES, ids=str)
def engine(request, monkeypatch):
    return request.param.use(monkeypatch)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("profile", [HOPPER, ADA])
@pytest.mark.parametrize("fast", [False, True])
def test_sums_of_every_pair_and_tail_agree(engine, profile, pair, fast):
    for k in (16, 32, 48, 112, 128, 144, 208, 400):
        a, b = matrices(pair, 37, 80, k, k)
        engine.agree(a, b, profile=profile, use_fast_accum=fast)


@pytest.mark.parametrize("chunks", [[16], [32, 64], [48, 16], [1], [7, 100, 3], [33], [200, 5], [64, 1000]])
@pytest.mark.parametrize("profile", [HOPPER, ADA])
def test_any_chunks_agree(engine, profile, chunks):
    a, b = matrices((E4M3, E5M2), 9, 48, 208, len(chunks))
    engine.agree(a, b, profile=profiles.get(profile).with_overrides({"gemm.slow_chunks": chunks}))


@pytest.mark.parametrize(("m", "n"), [(1, 16), (2, 32), (3, 48), (4, 16), (5, 1040), (300, 16), (257, 528)])
def test_any_size_of_the_result_agrees(engine, m, n):
    a, b = matrices((E4M3, E4M3), m, n, 96, m + n)
    engine.agree(a, b, out_dtype="bfloat16")


def test_results_without_multiples_of_16_agree(engine):
    """accumulate takes any sizes."""
    for m, n, k in ((1, 1, 1), (3, 5, 7), (9, 33, 65), (2, 31, 17)):
        a, b = matrices((E4M3, E5M2), m, n, k, m)
        engine.agree_on_sums(a, b)


@pytest.mark.parametrize("layout", ["padded", "strided", "reversed", "row-major b"])
def test_any_layout_of_the_words_agrees(engine, layout):
    a, b = matrices((E4M3, E4M3), 24, 48, 160, 3)
    views = {
        "padded": (np.pad(a.array, ((0, 0), (0, 9)))[:, :160], np.pad(b.array.T, ((0, 0), (0, 9)))[:, :160].T),
        "strided": (np.repeat(a.array, 2, 1)[:, ::2], np.repeat(b.array, 2, 0)[::2]),
        "reversed": (a.array[::-1], b.array[:, ::-1]),
        "row-major b": (np.asfortranarray(a.array), np.ascontiguousarray(b.array)),
    }
    left, right = (Bits(E4M3, view) for view in views[layout])
    engine.agree_on_sums(left, right)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("profile", [HOPPER, ADA])
def test_rows_and_columns_with_nan_and_infinities_agree(engine, profile, pair):
    a, b = matrices(pair, 40, 64, 112, 5, special=True)
    engine.agree(a, b, profile=profile, out_dtype="float32")
    scales = np.ones((40, 1), np.float32), np.ones((1, 64), np.float32)
    if pair[1] == E4M3:
        engine.agree(
            a, b, *scales, profile=profile, out_dtype="bfloat16", bias=Bits("bfloat16", np.arange(64, dtype=np.uint16))
        )


@pytest.mark.parametrize(("scheme", "timing"), list(product(SCHEMES, ("after_reduction", "before_reduction"))))
@pytest.mark.parametrize("out", ["float32", "bfloat16", E4M3])
def test_split_k_agrees(engine, scheme, timing, out):
    profile = profiles.get(ADA).with_overrides({"gemm.scale_timing": timing})
    a, b = matrices((E4M3, E4M3), 20, 48, 464, 7)
    engine.agree(a, b, np.float32(0.3), np.float32(1.7), profile=profile, splitk=(3, scheme), out_dtype=out)


@pytest.mark.parametrize("out", ["float32", "bfloat16", "float16", E4M3, E5M2])
@pytest.mark.parametrize("order", ["combined", "a_then_b", "b_then_a"])
@pytest.mark.parametrize("add", ["fused", "separate"])
def test_the_epilogue_agrees_on_every_scale_bias_and_output(engine, order, add, out):
    rules = {"gemm.scale_order": order, "gemm.bias_add": add}
    a, b = matrices((E4M3, E5M2), 33, 48, 64, 11)
    bias_type = "float16" if out == "float16" else "bfloat16"
    bias = None if out == "float32" else Bits(bias_type, np.resize(BIASES, 48))
    for policy, without in product(("infinity", "saturate"), (True, False)):
        more = {"gemm.wide_overflow": policy, "gemm.fp8_overflow": policy, "gemm.adds_without_bias": without}
        profile = profiles.get(HOPPER).with_overrides({**rules, **more})
        for index, scale in enumerate(ODD):
            scales = Bits("float32", np.array(scale)), Bits("float32", np.array(ODD[index * 7 % len(ODD)]))
            extra: dict[str, Any] = {"scale_result": np.float32(0.37)} if out in SHORT else {}
            engine.agree(a, b, *scales, profile=profile, out_dtype=out, bias=bias if without else None, **extra)


@pytest.mark.parametrize(("profile", "m", "n", "k"), [
    (ADA, 70, 272, 1040), ("rtx4060-cublaslt12.8", 64, 128, 1024), (HOPPER, 64, 64, 208), (HOPPER, 40, 3072, 96),
    (NEWER, 33, 48, 272),
])  # fmt: skip
@pytest.mark.parametrize("fast", [False, True])
def test_row_wise_products_agree(engine, profile, m, n, k, fast):
    a, b = matrices((E4M3, E4M3), m, n, k, m)
    random = np.random.default_rng(17)
    scale_a = Bits("float32", random.choice(ODD, (m, 1)))
    scale_b = Bits("float32", random.choice(ODD, (1, n)))
    options: dict[str, Any] = {"profile": profile, "use_fast_accum": fast, "out_dtype": "bfloat16"}
    engine.agree(a, b, scale_a, scale_b, **options)
    engine.agree(a, b, scale_a, scale_b, bias=Bits("bfloat16", random.choice(BIASES, n)), **options)


@pytest.mark.parametrize("kind", ["1x128 by 128x128", "128x128 by 1x128", "1x128 by 1x128"])
def test_block_wise_products_agree(engine, kind):
    m, n, k = 140, 272, 400
    a, b = matrices((E4M3, E5M2), m, n, k, 19)
    random = np.random.default_rng(23)

    def scale(rows, columns):
        return random.choice(ODD[:9], (columns, rows)).T

    vector_a, vector_b = scale(m, 4), scale(n, 4).T
    scales = {
        "1x128 by 128x128": (vector_a, scale(4, 3)), "128x128 by 1x128": (scale(4, 2).T, vector_b),
        "1x128 by 1x128": (vector_a, vector_b),
    }[kind]  # fmt: skip
    bias = Bits("bfloat16", random.choice(BIASES, n))
    left, right = (Bits("float32", words_) for words_ in scales)
    engine.agree(a, b, left, right, profile=NEWER)
    engine.agree(a, b, left, right, profile=NEWER, out_dtype="bfloat16", bias=bias)


RULES = [
    {"instruction.fraction_bits": 12}, {"instruction.fraction_bits": 28}, {"instruction.result_fraction_bits": 23},
    {"instruction.result_fraction_bits": 10, "instruction.result_rounding": "RNE"}, {"instruction.group": 8},
    {"instruction.group": 1}, {"instruction.group": 5}, {"instruction.group": 64, "instruction.instruction_k": 64},
    {"instruction.group": 4, "instruction.instruction_k": 8}, {"instruction.order": "k_mod_4"},
    {"instruction.order": "k_mod_4", "instruction.group": 7, "instruction.instruction_k": 40},
    {"instruction.zero_products_align": True}, {"instruction.zero_accumulator_aligns": True},
    {"instruction.zero_products_align": True, "instruction.zero_accumulator_aligns": True},
    {"instruction.min_exponent": -20}, {"instruction.min_exponent": -3}, {"instruction.accumulator_joins": "after"},
    {"instruction.accumulator_joins": "after", "instruction.group": 8, "instruction.result_rounding": "RNE"},
    {"instruction.underflow_keeps_sign": True, "instruction.min_exponent": -1},
]  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_any_rule_of_an_instruction_agrees(engine, rule):
    profile = profiles.get(HOPPER).with_overrides(rule)
    for pair, special in product(PAIRS, (False, True)):
        a, b = matrices(pair, 18, 48, 208, 59, special)
        for fast in (True, False):
            engine.agree(a, b, profile=profile, use_fast_accum=fast)


def test_the_largest_numbers_over_a_long_k_stay_exact(engine):
    """The anchor's binade has room: K = 4,096 of the largest products of every sign, in groups of every size."""
    for pair in PAIRS:
        top = [0x7E if dtype == E4M3 else 0x7B for dtype in pair]
        signs = np.random.default_rng(31).integers(0, 2, (2, 4, 4096)).astype(np.uint8) << 7
        b = Bits(pair[1], np.tile(signs[1] | np.uint8(top[1]), (4, 1)).T)
        for sign in (signs[0], np.zeros_like(signs[0])):
            a = Bits(pair[0], sign | np.uint8(top[0]))
            for group in (16, 32, 64):
                rule = {"instruction.group": group, "instruction.instruction_k": 64}
                engine.agree(a, b, profile=profiles.get(HOPPER).with_overrides(rule), use_fast_accum=True)


@pytest.mark.parametrize("engine", ENGINES, ids=str)
@bounded(60)
@given(st.data())
def test_random_calls_agree(engine, data):
    draw = data.draw
    with pytest.MonkeyPatch.context() as patch:
        check_random_call(engine.use(patch), draw)


def check_random_call(engine, draw):
    pair = draw(st.sampled_from(PAIRS))
    k = 16 * draw(st.integers(1, 14))
    rows = draw(words(SHORT[pair[0]], 3 * k)).reshape(3, k)
    columns = np.tile(draw(words(SHORT[pair[1]], 4 * k)).reshape(4, k), (8, 1))
    overrides = {
        "gemm.slow_chunks": draw(st.lists(st.integers(1, 200), max_size=3)),
        "gemm.scale_order": draw(st.sampled_from(["combined", "a_then_b", "b_then_a"])),
        "gemm.k_tile": draw(st.sampled_from([16, 64, 128])),
        "gemm.k_residue": draw(st.sampled_from(["last", "first"])),
    }
    scales = [Bits("float32", np.array(draw(st.sampled_from([int(w) for w in ODD])), np.uint32)) for _ in range(2)]
    engine.agree(
        Bits(pair[0], rows), Bits(pair[1], columns.T), *scales,
        profile=profiles.get(draw(st.sampled_from([HOPPER, ADA]))).with_overrides(overrides),
        use_fast_accum=draw(st.booleans()), out_dtype=draw(st.sampled_from(["float32", "bfloat16", "float16", E4M3])),
        splitk=(draw(st.integers(1, 4)), draw(st.sampled_from(SCHEMES))),
    )  # fmt: skip
