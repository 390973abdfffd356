# SPDX-License-Identifier: Apache-2.0
"""assert_bitwise_equal: what it lets pass, what it refuses, and what its message says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

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
