# SPDX-License-Identifier: Apache-2.0
"""Whole matrix products against the exact oracle: chunks, split-K, scales, every output type, K tails, zero sizes."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import exact_gemm as gemm
from tests.support import exact_oracle as exact
from tests.support.exact_operands import bounded, seeded, words

import mmaemu
from mmaemu import Bits, profiles
from mmaemu.testing import assert_bitwise_equal

pytestmark = pytest.mark.usefixtures("each_backend")

TORCH = {short: name for name, short in gemm.SHORT.items()}
OUT = ("f32", "bf16", "f16", "e4m3", "e5m2")
PAIRS = [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3")]
DEVICES = ("h100-pcie-cublaslt12.8", "rtx4060-cublaslt12.8", "l40s")
ONE = 0x3F800000
SCALES = [
    ONE, 0x3F800001, 0x3EAAAAAB, 0xBFB504F3, 0x00000001, 0x7F7FFFFF, 0x0DA24260, 0x58635FA9, 0x00000000, 0x80000000,
    0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001,
]  # fmt: skip


def operand(array, fmt):
    return Bits(TORCH[fmt], array)


def column_major(array):
    return np.asfortranarray(array)


def scalar(word):
    return Bits("float32", np.array(word, np.uint32))


def both(a, b, fmts, out, profile, *, fast=False, split=None, scales=(ONE, ONE), scale_result=None):
    """(accumulators, outputs) of the engine and of the oracle."""
    fmt_a, fmt_b = fmts
    scale_a, scale_b = scales
    keywords = {"profile": profile, "splitk": split, "use_fast_accum": fast, "out_dtype": TORCH[out]}
    left, right = operand(a, fmt_a), operand(column_major(b), fmt_b)
    acc = mmaemu.accumulate(left, right, scale_a=scalar(scale_a), scale_b=scalar(scale_b), **keywords)
    extra = {} if scale_result is None else {"scale_result": scalar(scale_result)}
    result = mmaemu.scaled_mm(left, right, scalar(scale_a), scalar(scale_b), **extra, **keywords)

    resolved = profiles.get(profile)
    rule, step = resolved.gemm, resolved.gemm_instruction(fmt_a, fmt_b).rule
    splits, scheme = split or (rule.splits, rule.split_scheme)
    ways = {"fast": fast, "splits": splits, "scheme": scheme, "scale_a": scale_a, "scale_b": scale_b}
    cells = [
        gemm.accumulate(row, column, fmt_a, fmt_b, out, step, rule, **ways)
        for row in a.tolist()
        for column in b.T.tolist()
    ]
    exact_acc = np.array(cells, np.uint32).reshape(acc.shape)
    cut = gemm.ranges(a.shape[1], splits, rule.k_tile, rule.split_layout)
    scaled = rule.scale_timing == "before_reduction" and len(cut) > 1
    finish = [
        gemm.finish(int(word), out, rule, scale_a, scale_b, scale_result, scaled=scaled) if a.shape[1] else 0
        for word in exact_acc.flat
    ]
    return (acc, result), (exact_acc, np.array(finish, result.array.dtype).reshape(result.shape))


def agree(*args, **keywords):
    (acc, result), (exact_acc, exact_result) = both(*args, **keywords)
    assert_bitwise_equal(acc.array, exact_acc)
    assert_bitwise_equal(result.array, exact_result)


def matrices(fmts, m, k, seed, n=16):
    random = np.random.default_rng(seed)
    a = random.permutation(seeded(fmts[0], (7, k), seed))[:m]
    return a, random.permutation(seeded(fmts[1], (n, k), seed + 1)).T


def outputs_of(fmts):
    return [out for out in OUT if out != "e5m2" or "e5m2" in fmts]


CALLS = [(fmts, out, fast) for fmts in PAIRS for out in outputs_of(fmts) for fast in (False, True)]


@pytest.mark.parametrize(("fmts", "out", "fast"), CALLS)
@pytest.mark.parametrize("device", DEVICES[:2])
def test_every_output_type_of_every_profile_is_exact_arithmetic(device, fmts, out, fast):
    a, b = matrices(fmts, 2, 208, 101)
    scale_result = 0x3DCCCCCD if out in ("e4m3", "e5m2") else None
    agree(a, b, fmts, out, device, fast=fast, scales=(0x3EAAAAAB, 0xBFB504F3), scale_result=scale_result)


@pytest.mark.parametrize("k", [16, 32, 48, 112, 128, 144, 272])
@pytest.mark.parametrize(("device", "fast"), list(product(DEVICES[:2], (False, True))))
def test_a_tail_of_k_is_exact_arithmetic(device, fast, k):
    a, b = matrices(("e4m3", "e4m3"), 2, k, k)
    agree(a, b, ("e4m3", "e4m3"), "f32", device, fast=fast)


@pytest.mark.parametrize("chunks", [[16], [32, 64], [48, 16], [1], [7, 100, 3], [4096], [33]])
@pytest.mark.parametrize("device", DEVICES[:2])
def test_any_chunks_are_exact_arithmetic(device, chunks):
    profile = profiles.get(device).with_overrides({"gemm.slow_chunks": chunks})
    a, b = matrices(("e5m2", "e4m3"), 1, 112 if chunks != [1] else 32, 111)
    agree(a, b, ("e5m2", "e4m3"), "f32", profile)


def test_fast_chunks_are_read_as_slow_ones_are():
    profile = profiles.get(DEVICES[0]).with_overrides({"gemm.fast_chunks": [32, 48]})
    a, b = matrices(("e4m3", "e4m3"), 2, 208, 112)
    agree(a, b, ("e4m3", "e4m3"), "f32", profile, fast=True)


SCHEMES = ("compute_type", "output_type", "inplace")
SPLITS = list(product(SCHEMES, ("ceil", "even"), ("after_reduction", "before_reduction")))


@pytest.mark.parametrize("out", OUT)
@pytest.mark.parametrize(("scheme", "layout", "timing"), SPLITS)
def test_split_k_is_exact_arithmetic(scheme, layout, timing, out):
    overrides = {"gemm.split_layout": layout, "gemm.scale_timing": timing, "gemm.k_tile": 32}
    profile = profiles.get(DEVICES[0]).with_overrides(overrides)
    a, b = matrices(("e4m3", "e5m2"), 2, 208, 121)
    # Seven tiles in three ranges: ceil gives 3, 3, 1 and even 3, 2, 2.
    agree(a, b, ("e4m3", "e5m2"), out, profile, split=(3, scheme), scales=(0x3EAAAAAB, 0x3F8CCCCD))


@pytest.mark.parametrize("splits", [1, 2, 4, 5, 6, 7, 100])
@pytest.mark.parametrize("layout", ["ceil", "even"])
def test_any_number_of_splits_is_exact_arithmetic(layout, splits):
    profile = profiles.get(DEVICES[1]).with_overrides({"gemm.split_layout": layout, "gemm.k_tile": 16})
    a, b = matrices(("e4m3", "e4m3"), 1, 112, 131)
    agree(a, b, ("e4m3", "e4m3"), "bf16", profile, split=(splits, "output_type"), fast=True)


@pytest.mark.parametrize("order", ["combined", "a_then_b", "b_then_a"])
@pytest.mark.parametrize("timing", ["after_reduction", "before_reduction"])
def test_every_scale_meets_every_order_exactly(order, timing):
    profile = profiles.get(DEVICES[0]).with_overrides({"gemm.scale_order": order, "gemm.scale_timing": timing})
    a, b = matrices(("e4m3", "e5m2"), 1, 32, 141)
    for scale_a, scale_b in product(SCALES, SCALES[::3]):
        agree(a, b, ("e4m3", "e5m2"), "bf16", profile, scales=(scale_a, scale_b))


@pytest.mark.parametrize("scale_result", SCALES)
@pytest.mark.parametrize("out", ["e4m3", "e5m2"])
def test_every_scale_of_the_result_is_exact_arithmetic(out, scale_result):
    a, b = matrices(("e4m3", "e5m2"), 2, 48, 151)
    agree(a, b, ("e4m3", "e5m2"), out, DEVICES[0], scales=(0x3EAAAAAB, 0x3C000000), scale_result=scale_result)


@pytest.mark.parametrize("out", OUT)
@pytest.mark.parametrize("policy", ["infinity", "saturate"])
def test_every_overflow_policy_is_exact_arithmetic(policy, out):
    profile = profiles.get(DEVICES[0]).with_overrides({"gemm.wide_overflow": policy, "gemm.fp8_overflow": policy})
    a, b = matrices(("e5m2", "e4m3"), 7, 32, 161)
    agree(a, b, ("e5m2", "e4m3"), out, profile, scales=(0x7F000000, 0x40000000))


def test_nan_words_come_from_the_profile():
    words = {"gemm.nan_f32": 0xFFC00000, "gemm.nan_16bit": 0xFFC0, "gemm.nan_fp8": 0xFF}
    profile = profiles.get(DEVICES[0]).with_overrides(words)
    a, b = matrices(("e4m3", "e4m3"), 1, 16, 171)
    for out in ("f32", "bf16", "f16", "e4m3"):
        agree(a, b, ("e4m3", "e4m3"), out, profile, scales=(0x7FC00000, ONE))


def test_scale_result_is_ignored_on_a_wide_output_where_the_profile_says_so():
    profile = profiles.get(DEVICES[0]).with_overrides({"gemm.scale_result_on_wide_output": "ignore"})
    a, b = matrices(("e4m3", "e4m3"), 2, 16, 181)
    agree(a, b, ("e4m3", "e4m3"), "bf16", profile, scale_result=0x40400000)


ANY_RULE = st.fixed_dictionaries(
    {
        "gemm.slow_chunks": st.lists(st.integers(1, 70), max_size=3),
        "gemm.fast_chunks": st.lists(st.integers(1, 70), max_size=2),
        "gemm.k_tile": st.sampled_from([1, 16, 24, 32, 64, 128]),
        "gemm.split_layout": st.sampled_from(["ceil", "even"]),
        "gemm.scale_timing": st.sampled_from(["after_reduction", "before_reduction"]),
        "gemm.scale_order": st.sampled_from(["combined", "a_then_b", "b_then_a"]),
        "gemm.wide_overflow": st.sampled_from(["infinity", "saturate"]),
        "gemm.fp8_overflow": st.sampled_from(["infinity", "saturate"]),
        "instruction.group": st.integers(3, 32),
        "instruction.fraction_bits": st.integers(6, 28),
    }
)


@bounded(60)
@given(st.data())
def test_random_calls_under_random_profiles_are_exact_arithmetic(data):
    draw = data.draw
    fmts = draw(st.sampled_from(PAIRS))
    out = draw(st.sampled_from(outputs_of(fmts)))
    k = 16 * draw(st.integers(1, 6))
    a = draw(words(fmts[0], k)).reshape(1, k)
    b = np.tile(draw(words(fmts[1], 2 * k)).reshape(2, k), (8, 1)).T
    profile = profiles.get(draw(st.sampled_from(DEVICES))).with_overrides(draw(ANY_RULE))
    scheme = st.tuples(st.integers(1, 6), st.sampled_from(SCHEMES))
    scale = st.sampled_from(SCALES) | st.integers(0x30000000, 0x4F000000)
    agree(
        a, b, fmts, out, profile,
        fast=draw(st.booleans()), split=draw(scheme), scales=(draw(scale), draw(scale)),
        scale_result=draw(scale) if out in ("e4m3", "e5m2") else None,
    )  # fmt: skip


@pytest.mark.parametrize("out", OUT[:4])
@pytest.mark.parametrize("scale", [0xFF800000, 0x7FC00000, ONE])
def test_no_products_give_zeros_whatever_the_scales(scale, out):
    a, b = operand(np.zeros((3, 0), np.uint8), "e4m3"), operand(np.zeros((0, 16), np.uint8), "e4m3")
    result = mmaemu.scaled_mm(a, b, scalar(scale), scalar(scale), out_dtype=TORCH[out])
    assert (result.shape, result.dtype, result.array.any()) == ((3, 16), TORCH[out], False)


@pytest.mark.parametrize(("m", "n"), [(0, 16), (3, 0), (0, 0)])
def test_no_rows_or_columns_give_an_empty_result(m, n):
    a, b = operand(np.zeros((m, 32), np.uint8), "e4m3"), operand(column_major(np.zeros((32, n), np.uint8)), "e4m3")
    result = mmaemu.scaled_mm(a, b, scalar(ONE), scalar(ONE), out_dtype="bfloat16")
    assert (result.shape, result.dtype) == ((m, n), "bfloat16")


def test_a_product_larger_than_a_tile_agrees_cell_by_cell():
    """M and N beyond any tile of the backend: a sample of cells against the oracle."""
    a, b = seeded("e4m3", (83, 48), 191), seeded("e4m3", (272, 48), 192).T
    got = mmaemu.accumulate(operand(a, "e4m3"), operand(column_major(b), "e4m3"), profile=DEVICES[0]).array
    resolved = profiles.get(DEVICES[0])
    rule, step = resolved.gemm, resolved.gemm_instruction("e4m3", "e4m3").rule
    ways: dict[str, Any] = {"fast": False, "splits": 1, "scheme": SCHEMES[0], "scale_a": ONE, "scale_b": ONE}
    cells = [(i, j) for i in (0, 1, 15, 16, 63, 64, 82) for j in (0, 31, 63, 64, 127, 128, 255, 256, 271)]
    want = [
        gemm.accumulate(a[i].tolist(), b[:, j].tolist(), "e4m3", "e4m3", "f32", step, rule, **ways) for i, j in cells
    ]
    assert_bitwise_equal(got[tuple(zip(*cells, strict=True))], np.array(want, np.uint32))


@pytest.mark.parametrize(
    ("word", "fmt", "policy", "result"),
    [
        (0x44000000, "e4m3", "saturate", 0x7E), (0x44000000, "e4m3", "infinity", 0x7F),
        (0x7F800000, "e5m2", "infinity", 0x7C),
        (0xFF800000, "e5m2", "saturate", 0xFB), (0x3F800000, "e4m3", "saturate", 0x38),
    ],
)  # fmt: skip
def test_the_oracles_own_conversion_is_right_by_hand(word, fmt, policy, result):
    rule = profiles.get(DEVICES[0]).with_overrides({"gemm.fp8_overflow": policy}).gemm
    assert hex(gemm.convert(word, fmt, rule)) == hex(result)


def test_the_oracles_own_numbers_are_right_by_hand():
    assert exact.decode(0xC0490FDB, "f32").value == -(0x490FDB + (1 << 23)) / Fraction(1 << 22)
