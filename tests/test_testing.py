# SPDX-License-Identifier: Apache-2.0
"""assert_bitwise_equal: what it lets pass, what it refuses, and what its message says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import mmaemu
from mmaemu import Bits
from mmaemu.errors import InvalidInputError
from mmaemu.testing import assert_bitwise_equal


def f32(*words):
    return np.array(words, np.uint32).view(np.float32)


def test_equal_words_pass_in_every_kind():
    assert_bitwise_equal(f32(0x7FC00001, 0x80000000), f32(0x7FC00001, 0x80000000))
    assert_bitwise_equal(torch.tensor([1.0, -0.0]), torch.tensor([1.0, -0.0]))
    assert_bitwise_equal(np.array([1, 2], np.uint16), np.array([1, 2], np.uint16))
    assert_bitwise_equal(Bits("e5m2", np.arange(256, dtype=np.uint8)), Bits("e5m2", np.arange(256, dtype=np.uint8)))


def test_the_zeros_differ():
    with pytest.raises(AssertionError, match="0x80000000, expected 0x00000000"):
        assert_bitwise_equal(f32(0x80000000), f32(0))


def test_nan_payloads_differ():
    with pytest.raises(AssertionError, match="1 of 1 float32 words differ"):
        assert_bitwise_equal(f32(0x7FFFFFFF), f32(0x7FC00000))


def test_comparator_nan_payload():
    # nan=mask: tests the mask mode of the comparator itself
    assert_bitwise_equal(f32(0x7FFFFFFF, 1), f32(0xFFC00000, 1), nan="mask")  # nan=mask: the comparator itself
    with pytest.raises(AssertionError):
        assert_bitwise_equal(f32(0x7FFFFFFF), f32(0x7F800000), nan="mask")  # nan=mask: the comparator itself


def test_dtypes_and_shapes_must_agree():
    with pytest.raises(AssertionError, match="dtypes differ"):
        assert_bitwise_equal(torch.zeros(2), torch.zeros(2).half())
    with pytest.raises(AssertionError, match="shapes differ"):
        assert_bitwise_equal(torch.zeros(2), torch.zeros(3))


def test_the_message_gives_coordinates_words_distance_and_what_to_ask():
    expected = torch.zeros(3, 4, dtype=torch.bfloat16)
    actual = expected.clone()
    actual[1, 2] = torch.tensor([3], dtype=torch.int16).view(torch.bfloat16)[0]
    with pytest.raises(AssertionError) as caught:
        assert_bitwise_equal(actual, expected)
    message = str(caught.value)
    assert "1 of 12 bfloat16 words differ" in message
    assert "(1, 2): actual 0x0003, expected 0x0000, 3 ulp apart" in message
    assert "cells=[(1, 2)]" in message


def test_distance_counts_across_zero():
    with pytest.raises(AssertionError, match="2 ulp apart"):
        assert_bitwise_equal(f32(0x80000001), f32(0x00000001))


def test_only_the_first_differences_are_listed():
    with pytest.raises(AssertionError) as caught:
        assert_bitwise_equal(np.zeros(100, np.uint8), np.ones(100, np.uint8))
    assert str(caught.value).count("actual 0x00") == 5 and "..." in str(caught.value)


def test_malformed_arguments_are_refused():
    with pytest.raises(InvalidInputError, match="nan"):
        assert_bitwise_equal(f32(0), f32(0), nan="ignore")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        assert_bitwise_equal([1], [1])


def a_call(**options: Any) -> dict[str, Any]:
    a = Bits("float8_e4m3fn", np.arange(2 * 32, dtype=np.uint8).reshape(2, 32))
    b = Bits("float8_e4m3fn", np.arange(16 * 32, dtype=np.uint16).astype(np.uint8).reshape(16, 32).T % np.uint8(0x7F))
    return {"a": a, "b": b, "scale_a": np.float32(1), "scale_b": np.float32(2), "out_dtype": "float32", **options}


def test_the_message_spells_out_and_shows_the_explanation_of_the_call():
    call = a_call(profile="l40s", use_fast_accum=True)
    right = mmaemu.scaled_mm(**call)
    wrong = Bits("float32", right.array.copy())
    wrong.array[1, 3] ^= 1
    with pytest.raises(AssertionError) as caught:
        assert_bitwise_equal(wrong, right, call=call)
    text = str(caught.value)
    for wanted in (
        "(1, 3): actual 0x",
        "1 ulp apart",
        "print(mmaemu.explain(a=a, b=b, scale_a=scale_a, scale_b=scale_b, out_dtype='float32', profile='l40s', "
        "use_fast_accum=True, cells=[(1, 3)]))",
        "cell (1, 3): ",
        "step k = 0..15",
        "exact dot product",
    ):
        assert wanted in text
    assert len(text.splitlines()) < 60


def test_a_profile_object_is_named():
    call = a_call(profile=mmaemu.profiles.get("h200"))
    right = mmaemu.scaled_mm(**call)
    with pytest.raises(AssertionError, match="profile='h200'"):
        assert_bitwise_equal(Bits("float32", right.array ^ np.uint32(1)), right, call=call)


def test_a_call_that_cannot_be_explained_hides_no_difference():
    with pytest.raises(AssertionError, match="1 of 1 .*(?s:.)*no explanation"):
        assert_bitwise_equal(np.zeros((1, 1), np.float32), np.ones((1, 1), np.float32), call={"a": 1})


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (0x7FC00000, 0x3F800000, "one of them NaN"), (0x7FC00000, 0x7FFFFFFF, "both NaN"),
        (0x7F800000, 0x7F7FFFFF, "1 ulp apart"), (0x80000000, 0x00000000, "0 ulp apart"),
    ],
)  # fmt: skip
def test_a_distance_to_nan_is_no_number(one, other, said):
    first, second = (Bits("float32", np.array([word], np.uint32)) for word in (one, other))
    with pytest.raises(AssertionError, match=said):
        assert_bitwise_equal(first, second)
