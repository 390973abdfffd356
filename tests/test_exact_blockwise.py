# SPDX-License-Identifier: Apache-2.0
"""Block-wise scaling against the exact oracle: the three pairs of blocks, ragged edges, bias, every output."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import exact_rowwise as exact
from tests.support.exact_operands import bounded, seeded, words

import mmaemu
from mmaemu import Bits, profiles
from mmaemu.errors import InvalidInputError
from mmaemu.testing import assert_bitwise_equal

pytestmark = pytest.mark.usefixtures("each_backend")

PROFILE = "h100-pcie-cublaslt12.9"
TORCH = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "bf16": "bfloat16", "f16": "float16", "f32": "float32"}
VECTOR, SQUARE = "BlockWise1x128", "BlockWise128x128"
PAIRS = [(VECTOR, SQUARE), (SQUARE, VECTOR), (VECTOR, VECTOR)]
ONE = 0x3F800000
ODD_SCALES = [
    0x3EAAAAAB, 0xBFB504F3, 0x3F8CCCCD, 0x00000001, 0x7F7FFFFF, 0x58635FA9, 0x0DA24260, 0x00000000, 0x80000000,
    0x7F800000, 0x7FC00000,
]  # fmt: skip


def up(a, b):
    return -(-a // b)


def scales_for(recipe, outer, k, seed, values):
    """(as torch.nn.functional.scaled_mm takes them, as a table [outer][block])."""
    blocks, random = up(k, 128), np.random.default_rng(seed)
    choice = np.array(values, np.uint32)
    if recipe == VECTOR:
        flat = random.choice(choice, (blocks, outer))
        return flat.T, flat.T.tolist()
    rows = up(blocks, 4) * 4
    flat = random.choice(choice, (up(outer, 128), rows))
    return flat.T, np.repeat(flat[:, :blocks], 128, axis=0)[:outer].tolist()


def by_shape(scale, recipe, k):
    """The scales of a recipe as `_scaled_mm` takes them for a, [rows or their blocks, K blocks]."""
    return scale if recipe == VECTOR else np.ascontiguousarray(scale[: up(k, 128)].T)


def check(a, b, fmts, recipes, *, values, out="f32", bias=None, fast=False, cells=None, seed=0):
    (m, k), n = a.shape, b.shape[1]
    scale_a, table_a = scales_for(recipes[0], m, k, seed, values)
    scale_b, table_b = scales_for(recipes[1], n, k, seed + 1, values)
    extra: dict[str, Any] = {"use_fast_accum": fast, "profile": PROFILE}
    if bias is not None:
        extra["bias"] = Bits("bfloat16", np.asarray(bias, np.uint16))
    left, right = Bits(TORCH[fmts[0]], a), Bits(TORCH[fmts[1]], np.asfortranarray(b))
    if fmts == ("e4m3", "e4m3"):
        got = mmaemu.functional.scaled_mm(
            left, right, Bits("float32", scale_a), recipes[0], Bits("float32", scale_b), recipes[1],
            output_dtype=TORCH[out], **extra,
        ).array  # fmt: skip
    else:  # torch has no recipes for e5m2, but recognises its scales by their shapes
        first_scale = Bits("float32", by_shape(scale_a, recipes[0], k))
        second_scale = Bits("float32", by_shape(scale_b, recipes[1], k).T)
        got = mmaemu.scaled_mm(left, right, first_scale, second_scale, out_dtype=TORCH[out], **extra).array
    resolved = profiles.get(PROFILE)
    rule, step = resolved.path("block_wise"), resolved.gemm_instruction(*fmts).rule
    first = "b" if recipes == (SQUARE, VECTOR) else "a"
    cells = list(product(range(m), range(n))) if cells is None else cells
    want = []
    for i, j in cells:
        acc = exact.blockwise_sum(a[i].tolist(), b[:, j].tolist(), fmts, step, table_a[i], table_b[j], first)
        addend = None if bias is None else int(bias[j]) << 16
        want.append(exact.finish(acc, out, rule, "", ONE, ONE, addend, scaled=True))
    assert_bitwise_equal(got[tuple(np.array(cells).T)], np.array(want, got.dtype))


def matrices(fmts, m, n, k, seed):
    random = np.random.default_rng(seed)
    a = random.permutation(seeded(fmts[0], (max(m, 7), k), seed))[:m]
    return a, random.permutation(seeded(fmts[1], (max(n, 16), k), seed + 1))[:n].T


@pytest.mark.parametrize("recipes", PAIRS)
@pytest.mark.parametrize("k", [16, 128, 144, 272, 400])
@pytest.mark.parametrize("fast", [False, True])
def test_every_tail_of_k_is_exact_arithmetic(recipes, k, fast):
    a, b = matrices(("e4m3", "e4m3"), 2, 16, k, k)
    check(a, b, ("e4m3", "e4m3"), recipes, values=ODD_SCALES[:3], fast=fast)


@pytest.mark.parametrize("recipes", PAIRS)
@pytest.mark.parametrize("fmts", [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3")])
def test_every_scale_is_exact_arithmetic(recipes, fmts):
    a, b = matrices(fmts, 5, 32, 288, 43)
    check(a, b, fmts, recipes, values=ODD_SCALES, seed=5)


@pytest.mark.parametrize("recipes", PAIRS)
@pytest.mark.parametrize(("m", "n"), [(130, 272), (256, 128), (1, 144)])
def test_blocks_have_ragged_edges(recipes, m, n):
    a, b = matrices(("e4m3", "e4m3"), m, n, 144, m)
    cells = sorted({(0, 0), (m - 1, n - 1), (m // 2, 127), (min(m - 1, 128), min(n - 1, 128)), (0, n - 1)})
    check(a, b, ("e4m3", "e4m3"), recipes, values=ODD_SCALES[:3], cells=cells)


@pytest.mark.parametrize("out", ["bf16", "f16", "f32"])
def test_every_output_is_exact_arithmetic(out):
    a, b = matrices(("e4m3", "e4m3"), 3, 16, 272, 47)
    check(a, b, ("e4m3", "e4m3"), PAIRS[0], values=ODD_SCALES[:6], out=out)


def test_the_bias_is_added_to_the_finished_sum():
    a, b = matrices(("e4m3", "e4m3"), 3, 16, 272, 53)
    bias = np.random.default_rng(1).choice(np.array([0x3F81, 0xC2F7, 0x0000, 0x8000, 0x7F80, 0xB9A0]), 16)
    check(a, b, ("e4m3", "e4m3"), PAIRS[0], values=ODD_SCALES[:4], out="bf16", bias=bias)


@bounded(30)
@given(st.data())
def test_random_block_wise_calls_are_exact_arithmetic(data):
    draw = data.draw
    k = 16 * draw(st.integers(9, 24))  # of a single K block, 1x128 scales are row-wise ones by their shapes
    a = draw(words("e4m3", 2 * k)).reshape(2, k)
    b = np.tile(draw(words("e5m2", 2 * k)).reshape(2, k), (8, 1)).T
    values = draw(st.lists(st.sampled_from(ODD_SCALES) | st.integers(0x30000000, 0x4F000000), min_size=1, max_size=6))
    recipes, fast = draw(st.sampled_from(PAIRS)), draw(st.booleans())
    seed, cells = draw(st.integers(0, 99)), [(0, 0), (1, 1), (1, 14)]
    check(a, b, ("e4m3", "e5m2"), recipes, values=values, fast=fast, cells=cells, seed=seed)


def test_two_chunks_by_hand():
    """K = 256 of ones, scale_a 1 + 2^-23 and 2, scale_b 1: 128 * (1 + 2^-23) = 128 + 2^-16, then + 256.

    384 + 2^-16 lies between the float32 neighbours 384 and 384 + 2^-15, a tie: to even, 384.
    """
    a, b = np.full((1, 256), 0x38, np.uint8), np.full((256, 16), 0x38, np.uint8, order="F")
    scale_a = Bits("float32", np.array([[0x3F800001, 0x40000000]], np.uint32))
    scale_b = Bits("float32", np.full((2, 16), ONE, np.uint32))
    left, right = Bits("float8_e4m3fn", a), Bits("float8_e4m3fn", b)
    trace = mmaemu.explain(left, right, scale_a, scale_b, out_dtype="float32", profile=PROFILE, cells=[(0, 0)])
    first, second = trace.cells[0]["splits"][0]["chunks"]
    assert [chunk["sum"]["bits"] for chunk in (first, second)] == ["43000001", "43C00000"]
    assert (first["scale_a"]["bits"], first["scale_b"]["bits"]) == ("3F800001", "3F800000")
    assert trace.cells[0]["out"]["bits"] == "43C00000"
    assert trace.cells[0]["exact"]["dot"] == [384 * 2**16 + 1, -16]


@pytest.mark.parametrize("overrides", [{"block_wise.slow_chunks": [256]}, {"block_wise.chunk_join": "add"}])
def test_chunks_that_no_block_scale_belongs_to_are_refused(overrides):
    a, b = matrices(("e4m3", "e4m3"), 1, 16, 256, 59)
    scale_a, scale_b = (Bits("float32", np.ones(shape, np.uint32)) for shape in ((1, 2), (2, 16)))
    profile = profiles.get(PROFILE).with_overrides(overrides)
    with pytest.raises(InvalidInputError, match="chunk"):
        mmaemu.scaled_mm(
            Bits("e4m3", a), Bits("e4m3", np.asfortranarray(b)), scale_a, scale_b, out_dtype="float32", profile=profile
        )
