# SPDX-License-Identifier: Apache-2.0
"""Plans: how K is cut, and that every decision says how well it is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmaemu import Spec, plan, profiles, request
from mmaemu.profiles import CONFIDENCES

ONE = np.float32(1)


def plan_of(k=256, profile="h100-pcie-cublaslt12.8", **options):
    call = request.build(
        Spec("e4m3", (16, k)), Spec("e4m3", (k, 32), (1, k)), ONE, ONE, out_dtype="float32", profile=profile, **options
    )
    return plan.make(call)


def test_fast_accumulation_is_one_chain():
    (split,) = plan_of(k=1920, use_fast_accum=True).splits
    assert split.chunks == ((0, 1920),)


def test_hopper_restarts_every_128():
    (split,) = plan_of(k=336).splits
    assert split.chunks == ((0, 128), (128, 256), (256, 336))


def test_the_last_chunk_length_repeats():
    assert plan.chunk_ranges(0, 200, [32, 64]) == ((0, 32), (32, 96), (96, 160), (160, 200))


def test_chunks_restart_in_each_split():
    splits = plan_of(k=512, splitk=(2, "inplace")).splits
    assert [split.chunks[0] for split in splits] == [(0, 128), (256, 384)]


def test_ceil_splits_leave_the_short_range_last():
    assert plan.split_ranges(15 * 128, 4, 128, "ceil") == [(0, 512), (512, 1024), (1024, 1536), (1536, 1920)]


def test_even_splits_put_the_longer_ranges_first():
    assert plan.split_ranges(5 * 64, 3, 64, "even") == [(0, 128), (128, 256), (256, 320)]


@given(
    k=st.integers(0, 5000), count=st.integers(1, 40), tile=st.integers(1, 300), layout=st.sampled_from(["ceil", "even"])
)
def test_split_ranges_cover_k_once_in_whole_tiles(k, count, tile, layout):
    ranges = plan.split_ranges(k, count, tile, layout)
    assert [position for start, stop in ranges for position in range(start, stop)] == list(range(k))
    assert len(ranges) <= count
    assert all(start < stop and start % tile == 0 for start, stop in ranges)


@given(start=st.integers(0, 100), length=st.integers(0, 3000), lengths=st.lists(st.integers(1, 400), max_size=4))
def test_chunk_ranges_cover_their_split_once(start, length, lengths):
    ranges = plan.chunk_ranges(start, start + length, lengths)
    assert [k for first, stop in ranges for k in range(first, stop)] == list(range(start, start + length))


@pytest.mark.parametrize("name", [name for name in profiles.names() if profiles.get(name).gemm_facts])
@pytest.mark.parametrize("fast", [True, False])
def test_every_decision_has_a_source_and_a_confidence(name, fast):
    decisions = plan_of(profile=name, use_fast_accum=fast).decisions
    assert len({decision.name for decision in decisions}) == len(decisions) > 10
    for decision in decisions:
        assert decision.source and decision.confidence in CONFIDENCES


def test_an_unknown_choice_of_split_is_marked_assumed():
    decision = {d.name: d for d in plan_of().decisions}["splits"]
    assert (decision.value, decision.confidence) == (1, "assumed")


def test_a_named_split_is_marked_as_the_callers():
    decisions = {d.name: d for d in plan_of(splitk=(2, "output_type")).decisions}
    assert decisions["splits"].confidence == "override"
    assert {"k_tile", "split_layout", "scale_timing"} <= decisions.keys()


def test_an_override_shows_as_one():
    profile = profiles.get("l40s").with_overrides({"gemm.slow_chunks": [32, 64]})
    decisions = {d.name: d for d in plan_of(profile=profile).decisions}
    assert decisions["slow_chunks"].confidence == "override"


def test_mixed_formats_say_that_no_recording_covers_them():
    call = request.build(Spec("e4m3", (16, 64)), Spec("e5m2", (64, 16), (1, 64)), ONE, ONE, out_dtype="float32")
    decisions = {d.name: d for d in plan.make(call).decisions}
    assert decisions["instruction.mixed"].confidence == "assumed"
