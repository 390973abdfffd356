# SPDX-License-Identifier: Apache-2.0
"""Which tiles PyTorch's sm_89 row-wise kernel splits, and when its sm_90 kernel exchanges operands."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import exact_stream_k as exact
from tests.support.exact_operands import bounded

import mmaemu
from mmaemu import Spec, cutlass_sm90, plan, profiles, stream_k
from mmaemu.errors import InvalidInputError


def engine_ranges(m, n, k, sms, occupancy, tile=(64, 128), depth=64):
    cuts = stream_k.tile_splits(m, n, k, sm_count=sms, ctas_per_sm=occupancy, tile=tile, k_tile=depth)
    tiles = [(i, j) for i in range(-(-m // tile[0])) for j in range(-(-n // tile[1]))]
    found = {}
    for place in tiles:
        edges = [0, *(cut * depth for cut in cuts.get(place, ())), k]
        found[place] = list(zip(edges, edges[1:], strict=False))
    return found


DEVICES = st.sampled_from([2, 3, 8, 20, 24, 58, 114, 142])


@bounded(1500)
@given(st.integers(1, 2000), st.integers(1, 160), st.integers(1, 200), DEVICES, st.integers(1, 3))
def test_splits_are_those_of_blocks_played_through(m, n16, k16, sms, occupancy):
    m, n, k = m, 16 * n16, 16 * k16
    assert engine_ranges(m, n, k, sms, occupancy) == exact.ranges(m, n, k, sms, occupancy)


@pytest.mark.parametrize("sms", [2, 5, 24])
@pytest.mark.parametrize("occupancy", [1, 2])
def test_grids_of_many_waves_agree_too(sms, occupancy):
    """Large grids count their tiles through cohorts of 8x4."""
    seen = 0
    for m in range(64, 64 * 60, 64 * 7):
        for n in range(128, 128 * 40, 128 * 5):
            want = exact.ranges(m, n, 1024, sms, occupancy)
            assert engine_ranges(m, n, 1024, sms, occupancy) == want
            seen += any(len(ranges) > 1 for ranges in want.values())
    assert seen > 10, "the shapes should reach split tiles"


def test_cohorts_are_reached_and_decide_where_split_tiles_lie():
    reached = [
        (m, n)
        for m in range(8, 60)
        for n in range(8, 40)
        if 0 < exact.population(m * n, 64, 24, 2)[0]
        and exact.place(1, m, n, exact.population(m * n, 64, 24, 2)[0], 48) == (0, 1) != (1, 0)
        and m < n
    ]
    assert reached, "a grid that is wider than high counts columns first, save in cohorts"
    m, n = reached[0]
    assert engine_ranges(64 * m, 128 * n, 4096, 24, 2) == exact.ranges(64 * m, 128 * n, 4096, 24, 2)


def test_one_tile_of_a_long_k_is_split_by_hand():
    """64 x 128 x 4096 on 24 multiprocessors, 2 blocks each: 64 iterations of one tile among up to 32 blocks.

    t blocks take ceil(64 / t) iterations in one wave (t <= 24) and cost 2 + 2t more. 64 - ceil(64/t) - 2 - 2t is
    largest at t = 5 (13 iterations, saving 39) and t = 6 (11, saving 39); the larger of equals wins, and
    64 = 4 * 11 + 2 * 10.
    """
    cuts = stream_k.tile_splits(64, 128, 4096, sm_count=24, ctas_per_sm=2)
    assert cuts == {(0, 0): (11, 22, 33, 44, 54)}


def test_whole_waves_are_not_split():
    assert stream_k.tile_splits(64 * 24, 128, 4096, sm_count=24, ctas_per_sm=2) == {}


@bounded(400)
@given(st.integers(1, 9000), st.integers(1, 600))
def test_operands_are_exchanged_where_the_source_says_so(m, n16):
    assert cutlass_sm90.transposes(m, 16 * n16) == exact.exchanges_operands(m, 16 * n16)


@pytest.mark.parametrize(
    ("m", "n", "exchanged"),
    [
        (64, 3072, False), (16, 3072, False), (3072, 64, True), (192, 4096, True), (4096, 192, False), (128, 256, True),
        (256, 128, False), (64, 64, False), (128, 64, True), (320, 8192 + 64, True), (4096, 4096, False),
        (4096, 8192, True), (256, 256, True), (2048, 2048, True),
    ],
)  # fmt: skip
def test_the_sm_90_cases_by_hand(m, n, exchanged):
    assert cutlass_sm90.transposes(m, n) == exchanged


def layout_of(m, n, k, profile):
    scales = Spec("float32", (m, 1)), Spec("float32", (1, n))
    a, b = Spec("float8_e4m3fn", (m, k)), Spec("float8_e4m3fn", (k, n), (1, k))
    return mmaemu.explain(a, b, *scales, out_dtype="bfloat16", profile=profile).plan


@bounded(150)
@given(st.integers(1, 700), st.integers(1, 90), st.integers(1, 80))
def test_parts_cover_the_result_once_and_carry_their_tiles_ranges(m, n16, k16):
    n, k = 16 * n16, 16 * k16
    count = np.zeros((m, n), int)
    want = exact.ranges(m, n, k, 24, 2)
    padding = -k % 64
    for part in layout_of(m, n, k, "rtx4060-cublaslt12.8")["parts"]:
        (top, bottom), (left, right) = part["rows"], part["columns"]
        count[top:bottom, left:right] += 1
        tiles = {(i // 64, j // 128) for i in range(top, bottom) for j in range(left, right, 16)}
        ranges = [(split["start"], split["stop"]) for split in part["splits"]]
        ranges[-1] = (ranges[-1][0], ranges[-1][1] - padding)
        assert all(want[tile] == ranges for tile in tiles)
        assert part["padding"] == ({"at": ranges[-1][0] + k % 64, "count": padding} if padding else None)
    assert (count == 1).all()


def test_the_number_of_multiprocessors_decides():
    profile = profiles.get("rtx4060-cublaslt12.8")
    larger = dataclasses.replace(profile, sm_count=142)
    plans = [layout_of(64, 1280, 4096, p)["parts"] for p in (profile, larger)]
    assert plans[0] != plans[1]


def test_stream_k_without_a_tile_is_refused():
    profile = profiles.get("h200").with_overrides({"row_wise.split_rule": "stream_k"})
    with pytest.raises(InvalidInputError, match="tile"):
        layout_of(64, 128, 64, profile)


def test_rectangles_join_equal_neighbours():
    cuts = {(0, 0): (1,), (0, 1): (1,), (1, 0): (1,), (1, 1): (1,), (0, 2): (2,)}
    found = plan.rectangles(150, 400, (64, 128), cuts)
    assert sorted(found) == [
        ((0, 64), (0, 256), (1,)), ((0, 64), (256, 384), (2,)), ((0, 64), (384, 400), ()),
        ((64, 128), (0, 256), (1,)), ((64, 128), (256, 400), ()), ((128, 150), (0, 400), ()),
    ]  # fmt: skip
