# SPDX-License-Identifier: Apache-2.0
"""Row-wise scaling on sm_89 and sm_90 against the exact oracle: chunks, the ragged tile, Stream-K, scales, bias, -0."""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import exact_rowwise as exact
from tests.support import exact_stream_k
from tests.support.exact_gemm import through
from tests.support.exact_operands import bounded, seeded, words
from tests.support.exact_oracle import INF, LAYOUTS, NAN, add, decode, encode

import mmaemu
from mmaemu import Bits, profiles
from mmaemu.testing import assert_bitwise_equal

pytestmark = pytest.mark.usefixtures("each_backend")

ADA, HOPPER, NEWER = "rtx4060-cublaslt12.8", "h100-pcie-cublaslt12.8", "h100-pcie-cublaslt12.9"
TORCH = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "bf16": "bfloat16", "f16": "float16", "f32": "float32"}
PAIRS = [("e4m3", "e4m3"), ("e5m2", "e4m3")]
ONE, MINUS_ZERO = 0x3F800000, 0x80000000
ODD_SCALES = [
    0x3EAAAAAB, 0xBFB504F3, 0x00000001, 0x7F7FFFFF, 0x58635FA9, 0x0DA24260, 0x00000000, 0x80000000, 0x7F800000,
    0xFF800000, 0x7FC00000,
]  # fmt: skip
ODD_BIASES = [0x3F81, 0xC2F7, 0x0000, 0x8000, 0x0001, 0x7F7F, 0x7F80, 0xFFC1, 0xB9A0]


def column_of(words_, seed, count):
    """`count` of these words in an order of their own."""
    return np.random.default_rng(seed).choice(np.array(words_), count)


def check(a, b, fmts, profile, *, scales_a, scales_b, bias=None, fast=False, out="bf16", cells=None):
    """Every cell (or `cells`) of one call against the oracle, accumulators and outputs."""
    resolved = profiles.get(profile)
    rule, step = resolved.path("row_wise"), resolved.gemm_instruction(*fmts).rule
    (m, k), n = a.shape, b.shape[1]
    left, right = Bits(TORCH[fmts[0]], a), Bits(TORCH[fmts[1]], np.asfortranarray(b))
    scale_a = Bits("float32", np.asarray(scales_a, np.uint32).reshape(m, 1))
    scale_b = Bits("float32", np.asarray(scales_b, np.uint32).reshape(1, n))
    extra: dict[str, Any] = {} if bias is None else {"bias": Bits(TORCH[bias[0]], np.asarray(bias[1], np.uint16))}
    ways: dict[str, Any] = {"profile": resolved, "use_fast_accum": fast, "out_dtype": TORCH[out]}
    got = mmaemu.scaled_mm(left, right, scale_a, scale_b, **extra, **ways).array
    acc = mmaemu.accumulate(left, right, scale_a=scale_a, scale_b=scale_b, **ways).array

    tiles = None
    if rule.split_rule == "stream_k":
        tiles = exact_stream_k.ranges(m, n, k, resolved.sm_count or 0, rule.ctas_per_sm)
    order = rule.scale_order
    if order == "cutlass_sm90":
        order = "b_then_a" if exact_stream_k.exchanges_operands(m, n) else "a_then_b"
    cells = list(product(range(m), range(n))) if cells is None else cells
    sums, outputs = [], []
    for i, j in cells:
        row, column = a[i].tolist(), b[:, j].tolist()
        if tiles is None:
            word = exact.sm90_sum(row, column, fmts, step, fast=fast)
        else:
            word = exact.sm89_sum(row, column, fmts, step, fast=fast, ranges=tiles[i // 64, j // 128])
        sums.append(word)
        addend = None if bias is None else through_bias(int(bias[1][j]), bias[0])
        outputs.append(exact.finish(word, out, rule, order, int(scales_a[i]), int(scales_b[j]), addend))
    index = tuple(np.array(cells).T)
    assert_bitwise_equal(acc[index], np.array(sums, np.uint32))
    assert_bitwise_equal(got[index], np.array(outputs, got.dtype))


def through_bias(word, fmt):
    """A 16-bit word in float32: bf16 by its bits, f16 by way of the oracle."""
    if fmt == "bf16" and (word & 0x7FFF) <= 0x7F80:
        return word << 16
    number = decode(word, fmt)
    if number.kind == NAN:
        return 0x7FFFFFFF
    if number.kind == INF:
        return LAYOUTS["f32"].infinity | (MINUS_ZERO if number.negative else 0)
    return encode(number.negative, number.units, number.unit, "f32")


def matrices(fmts, m, n, k, seed):
    random = np.random.default_rng(seed)
    rows = random.permutation(seeded(fmts[0], (max(m, 7), k), seed))[:m]
    return rows, random.permutation(seeded(fmts[1], (max(n, 16), k), seed + 1))[:n].T


@pytest.mark.parametrize("k", [16, 32, 48, 64, 80, 96, 112, 128, 144, 192, 208, 272])
@pytest.mark.parametrize(("profile", "fast"), list(product((ADA, HOPPER, NEWER), (False, True))))
def test_every_tail_of_k_is_exact_arithmetic(profile, fast, k):
    a, b = matrices(("e4m3", "e4m3"), 2, 16, k, k)
    check(a, b, ("e4m3", "e4m3"), profile, scales_a=[0x3EAAAAAB, 0x40490FDB], scales_b=[0x3F8CCCCD] * 16, fast=fast)


@pytest.mark.parametrize("fmts", PAIRS)
@pytest.mark.parametrize("profile", [ADA, HOPPER, NEWER])
@pytest.mark.parametrize("bias", [None, ODD_BIASES])
def test_every_scale_meets_every_scale_and_bias_exactly(profile, fmts, bias):
    m, n = len(ODD_SCALES), 32
    a, b = matrices(fmts, m, n, 48, 7)
    given = None if bias is None else ("bf16", column_of(bias, 3, n))
    check(a, b, fmts, profile, scales_a=ODD_SCALES, scales_b=column_of(ODD_SCALES, 5, n), bias=given)


@pytest.mark.parametrize("add", ["fused", "separate"])
@pytest.mark.parametrize("order", ["a_then_b", "b_then_a", "combined"])
@pytest.mark.parametrize("without", [True, False])
def test_every_way_to_add_the_bias_is_exact_arithmetic(add, order, without):
    overrides = {"row_wise.bias_add": add, "row_wise.scale_order": order, "row_wise.adds_without_bias": without}
    profile = profiles.get(HOPPER).with_overrides(overrides)
    a, b = matrices(("e4m3", "e4m3"), 5, 16, 64, 11)
    scales = {"scales_a": column_of(ODD_SCALES, 1, 5), "scales_b": column_of(ODD_SCALES, 2, 16)}
    check(a, b, ("e4m3", "e4m3"), profile, **scales)
    check(a, b, ("e4m3", "e4m3"), profile, **scales, bias=("bf16", column_of(ODD_BIASES, 4, 16)))


@pytest.mark.parametrize("out", ["bf16", "f16", "f32"])
def test_newer_torch_has_more_outputs(out):
    a, b = matrices(("e4m3", "e5m2"), 3, 16, 144, 13)
    bias = {"bf16": ("bf16", column_of(ODD_BIASES, 6, 16)), "f16": ("f16", column_of([0x3C01, 0x8000, 0xFC00], 6, 16))}
    scales = {"scales_a": column_of(ODD_SCALES, 8, 3), "scales_b": column_of(ODD_SCALES, 9, 16)}
    check(a, b, ("e4m3", "e5m2"), NEWER, **scales, bias=bias.get(out), out=out)


SPLIT = [(64, 128, 1024), (70, 272, 1040), (16, 16, 4080), (130, 144, 720), (1, 400, 2000)]


@pytest.mark.parametrize("shape", SPLIT)
@pytest.mark.parametrize("fast", [False, True])
def test_stream_k_sums_are_exact_arithmetic(shape, fast):
    m, n, k = shape
    a, b = matrices(("e4m3", "e4m3"), m, n, k, sum(shape))
    random = np.random.default_rng(17)
    cells = sorted({(int(random.integers(m)), int(random.integers(n))) for _ in range(6)} | {(0, 0), (m - 1, n - 1)})
    scales = {"scales_a": column_of(ODD_SCALES[:2], 1, m), "scales_b": column_of(ODD_SCALES[:2], 2, n)}
    check(a, b, ("e4m3", "e4m3"), ADA, **scales, fast=fast, cells=cells)


def test_stream_k_reaches_splits_in_these_shapes():
    split = [any(len(r) > 1 for r in exact_stream_k.ranges(*shape, 24, 2).values()) for shape in SPLIT]
    assert split.count(True) >= 3


@pytest.mark.parametrize("sms", [2, 24, 142])
def test_the_number_of_multiprocessors_decides_bits_as_the_oracle_says(sms):
    profile = dataclasses.replace(profiles.get(ADA), sm_count=sms)
    a, b = matrices(("e4m3", "e4m3"), 3, 272, 1040, 19)
    cells = [(0, 0), (1, 127), (2, 128), (0, 271)]
    check(a, b, ("e4m3", "e4m3"), profile, scales_a=[ONE] * 3, scales_b=[ONE] * 272, cells=cells)


@pytest.mark.parametrize(("m", "n"), [(64, 64), (256, 128), (128, 256), (65, 272)])
def test_the_order_of_scales_follows_the_size_of_the_result(m, n):
    a, b = matrices(("e4m3", "e4m3"), m, n, 32, m + n)
    cells = [(0, 0), (m - 1, n - 1), (m // 2, 5), (3, n // 2)]
    scales = {
        "scales_a": column_of([0x3EAAAAAB, 0x3DFCD6EA], 1, m),
        "scales_b": column_of([0x40490FDB, 0x3F99999A], 2, n),
    }
    check(a, b, ("e4m3", "e4m3"), HOPPER, **scales, cells=cells)


@bounded(40)
@given(st.data())
def test_random_row_wise_calls_are_exact_arithmetic(data):
    draw = data.draw
    fmts, profile = draw(st.sampled_from(PAIRS)), draw(st.sampled_from([ADA, "l40s", HOPPER, NEWER]))
    k = 16 * draw(st.integers(1, 12))
    a = draw(words(fmts[0], 2 * k)).reshape(2, k)
    b = np.tile(draw(words(fmts[1], 2 * k)).reshape(2, k), (8, 1)).T
    scale = st.sampled_from(ODD_SCALES) | st.integers(0x30000000, 0x4F000000)
    scales_a, scales_b = ([draw(scale) for _ in range(count)] for count in (2, 16))
    bias = ("bf16", [draw(st.integers(0, 0xFFFF)) for _ in range(16)]) if draw(st.booleans()) else None
    cells = [(0, 0), (0, 1), (1, 0), (1, 15)]
    check(a, b, fmts, profile, scales_a=scales_a, scales_b=scales_b, bias=bias, fast=draw(st.booleans()), cells=cells)


def row_call(profile, scale_a, bias=None):
    """1 x 16 of one small negative product, whose scaled value underflows to -0."""
    a = np.zeros((1, 16), np.uint8)
    a[0, 0] = 0xB8
    b = np.full((16, 16), 0x38, np.uint8, order="F")
    one, ones = Bits("float32", np.array([[scale_a]], np.uint32)), Bits("float32", np.full((1, 16), ONE, np.uint32))
    addend = None if bias is None else Bits("bfloat16", np.full(16, bias, np.uint16))
    left, right = Bits("float8_e4m3fn", a), Bits("float8_e4m3fn", b)
    return int(mmaemu.scaled_mm(left, right, one, ones, addend, out_dtype="bfloat16", profile=profile).array[0, 0])


def test_minus_zero_becomes_plus_zero_without_a_bias_in_torchs_own_kernels():
    """-1 * 0 is -0. The kernels add +0; the newer path of cuBLASLt is taken to add nothing."""
    assert [row_call(profile, 0) for profile in (ADA, HOPPER, NEWER)] == [0x0000, 0x0000, 0x8000]


def test_a_bias_of_minus_zero_keeps_minus_zero():
    assert [row_call(profile, 0, 0x8000) for profile in (ADA, HOPPER, NEWER)] == [0x8000] * 3


def test_one_row_with_one_scale_is_row_wise():
    """(1, 1) and (1, N): on Ada K = 64 is then 32 + 32, where the tensor-wise chunk would be 64."""
    a, b = matrices(("e4m3", "e4m3"), 1, 16, 64, 23)
    check(a, b, ("e4m3", "e4m3"), ADA, scales_a=[ONE], scales_b=[ONE] * 16)


def test_the_ragged_tile_comes_first_by_hand():
    """K = 80 on Ada, slow: the first tile holds k 0..15 and 48 zeros, the second k 16..79.

    2^-9 * 2^-5 at k = 0 is the first chunk, 1 at k = 16 falls in the second, and float32 holds 1 + 2^-14. A tail that
    came last would leave k 0..31 in one chunk, where the step of k 16..31 drops an accumulator of 2^-14: its grid is
    2^-13.
    """
    a, b = np.zeros((1, 80), np.uint8), np.zeros((80, 16), np.uint8, order="F")
    a[0, [0, 16]] = 0x01, 0x38
    b[0], b[16] = 0x10, 0x38
    left, right = Bits("float8_e4m3fn", a), Bits("float8_e4m3fn", b)
    scales: dict[str, Any] = {"scale_a": Bits("float32", np.array([[ONE]], np.uint32))}
    scales["scale_b"] = Bits("float32", np.full((1, 16), ONE, np.uint32))
    last = profiles.get(ADA).with_overrides({"row_wise.k_residue": "last"})
    words_ = [mmaemu.accumulate(left, right, profile=profile, **scales).array[0, 0] for profile in (ADA, last)]
    assert [hex(word) for word in words_] == ["0x3f800200", "0x3f800000"]


def test_partials_of_a_named_split_are_added_in_order():
    profile = profiles.get(HOPPER)
    rule, step = profile.path("row_wise"), profile.gemm_instruction("e4m3", "e4m3").rule
    a, b = matrices(("e4m3", "e4m3"), 2, 16, 384, 29)
    one, ones = (Bits("float32", np.full(shape, ONE, np.uint32)) for shape in ((2, 1), (1, 16)))
    left, right = Bits("float8_e4m3fn", a), Bits("float8_e4m3fn", np.asfortranarray(b))
    got = mmaemu.scaled_mm(left, right, one, ones, out_dtype="bfloat16", profile=profile, splitk=(3, "output_type"))
    want = []
    for i, j in product(range(2), range(16)):
        row, column = a[i].tolist(), b[:, j].tolist()
        parts = [
            exact.sm90_sum(row[k : k + 128], column[k : k + 128], ("e4m3", "e4m3"), step, fast=False)
            for k in (0, 128, 256)
        ]
        parts = [through(part, "bf16", rule) for part in parts]
        acc = add(add(parts[0], parts[1]), parts[2])
        want.append(exact.finish(acc, "bf16", rule, "a_then_b", ONE, ONE, None))
    assert_bitwise_equal(got.array, np.array(want, np.uint16).reshape(2, 16))
