# SPDX-License-Identifier: Apache-2.0
"""Tensors as JSON: three forms of the same words, one rounding, and a refusal that names the member."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmaemu import Bits
from mmaemu.errors import WireFormatError
from mmaemu.model import formats
from mmaemu.model.formats import BF16, E4M3, E5M2, F16, F32
from mmaemu.testing import assert_bitwise_equal
from mmaemu.wire import FORMS, tensor_from_json, tensor_to_json

FORMATS = [E4M3, E5M2, F16, BF16, F32]


def values(fmt, *numbers):
    return tensor_from_json({"dtype": fmt.torch_name, "shape": [len(numbers)], "values": list(numbers)}, "a").array


def refusal(**tensor):
    with pytest.raises(WireFormatError) as caught:
        tensor_from_json(tensor, "a")
    return caught.value


def all_words(fmt):
    words = np.arange(1 << min(fmt.storage_bits, 16), dtype=np.uint32) << max(fmt.storage_bits - 16, 0)
    return Bits(fmt.torch_name, words.astype(fmt.storage))


@pytest.mark.parametrize("form", ["bits", "b64"])
@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_bits_and_b64_keep_every_word(fmt, form):
    bits = all_words(fmt)
    assert_bitwise_equal(tensor_from_json(json.loads(json.dumps(tensor_to_json(bits, form))), "a"), bits)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_values_keep_every_word_but_the_payload_of_a_nan(fmt):
    bits = all_words(fmt)
    again = tensor_from_json(json.loads(json.dumps(tensor_to_json(bits, "values"))), "a")
    assert_bitwise_equal(again, bits, nan="mask")  # nan=mask: a number has no payload


@settings(deadline=None)
@given(st.sampled_from(FORMS), st.lists(st.integers(0, 3), max_size=4))
def test_every_shape_comes_back(form, shape):
    bits = Bits("float16", np.zeros(shape, np.uint16))
    again = tensor_from_json(json.loads(json.dumps(tensor_to_json(bits, form))), "a")
    assert again.shape == tuple(shape)


@settings(deadline=None)
@given(st.sampled_from(FORMATS), st.floats(allow_nan=False, allow_infinity=False))
def test_values_are_rounded_to_nearest_even_once(fmt, number):
    """Against exact fractions: no code of the format is nearer, and of two that are as near the even one is taken."""
    try:
        word = int(values(fmt, number)[0])
    except WireFormatError:
        ulp = Fraction(2) ** (fmt.max_exponent - fmt.fraction_bits)
        assert abs(Fraction(number)) >= _exact(fmt.max_finite, fmt) + ulp / 2
        return
    assert bool(word & fmt.sign_bit) == (np.signbit(number))
    magnitude, target = word & (fmt.sign_bit - 1), abs(Fraction(number))
    distance = abs(_exact(magnitude, fmt) - target)
    for neighbour in (magnitude - 1, magnitude + 1):
        if 0 <= neighbour <= fmt.max_finite:
            other = abs(_exact(neighbour, fmt) - target)
            assert other > distance or (other == distance and magnitude % 2 == 0)


def _exact(magnitude, fmt):
    field, fraction = divmod(magnitude, 1 << fmt.fraction_bits)
    significand = fraction + (1 << fmt.fraction_bits if field else 0)
    return significand * Fraction(2) ** (max(field, 1) - fmt.bias - fmt.fraction_bits)


def test_values_by_hand():
    assert values(E4M3, 1, -2.0, 448, 0.001953125, 0.0009765625, "NaN").tolist() == [0x38, 0xC0, 0x7E, 0x01, 0x00, 0x7F]
    assert values(F32, 0.1, -0.0, "Infinity", "-Infinity", "NaN").tolist() == [
        0x3DCCCCCD, 0x80000000, 0x7F800000, 0xFF800000, 0x7FFFFFFF,
    ]  # fmt: skip


def test_a_tie_goes_to_the_even_code():
    assert values(E4M3, 17, 19).tolist() == [0x58, 0x5A]  # 16 and 20; steps of 2 there


@pytest.mark.parametrize(
    ("fmt", "number"), [(E4M3, 480), (E4M3, "Infinity"), (E5M2, 61440), (F16, 65520), (F32, 1e39), (F32, 10**400)]
)
def test_a_value_that_the_type_cannot_hold_is_refused(fmt, number):
    error = refusal(dtype=fmt.torch_name, shape=[1], values=[number])
    assert error.field == "a.values"


def test_bits_may_be_one_string():
    assert tensor_from_json({"dtype": "float32", "shape": [2], "bits": "3f800000\n BF800000"}, "a").array.tolist() == [
        0x3F800000,
        0xBF800000,
    ]


def test_bits_may_be_flat_for_any_shape():
    found = tensor_from_json({"dtype": "float8_e5m2", "shape": [2, 1, 2], "bits": ["00", "01", "02", "03"]}, "a")
    assert found.array.tolist() == [[[0, 1]], [[2, 3]]]


def test_a_scalar_may_stand_alone():
    assert tensor_from_json({"dtype": "float32", "shape": [], "values": 1}, "a").array == 0x3F800000


def test_words_are_written_in_full_width_and_nested():
    written = tensor_to_json(Bits("bfloat16", np.array([[1, 0xABCD]], np.uint16)))
    assert written == {"dtype": "bfloat16", "shape": [1, 2], "bits": [["0001", "ABCD"]]}


def test_b64_is_little_endian():
    assert tensor_to_json(Bits("float16", np.array([0x3C00], np.uint16)), "b64")["b64"] == "ADw="


def test_a_vast_empty_tensor_is_written_small():
    assert tensor_to_json(Bits("float16", np.zeros((1 << 40, 0), np.uint16)))["bits"] == []


BAD = {
    "no object": ([], "a"),
    "no form": ({"dtype": "float16", "shape": [1]}, "a"),
    "two forms": ({"dtype": "float16", "shape": [1], "bits": ["0000"], "values": [0]}, "a"),
    "an unknown member": ({"dtype": "float16", "shape": [1], "bits": ["0000"], "strides": [1]}, "a"),
    "no dtype": ({"shape": [1], "bits": ["00"]}, "a.dtype"),
    "an unknown dtype": ({"dtype": "float64", "shape": [1], "bits": ["00"]}, "a.dtype"),
    "tf32": ({"dtype": "tf32", "shape": [1], "bits": ["00000000"]}, "a.dtype"),
    "a dtype that is a list": ({"dtype": [], "shape": [1], "bits": ["00"]}, "a.dtype"),
    "no shape": ({"dtype": "float16", "bits": ["0000"]}, "a.shape"),
    "a shape of text": ({"dtype": "float16", "shape": "1", "bits": ["0000"]}, "a.shape"),
    "too few words": ({"dtype": "float16", "shape": [2], "bits": ["0000"]}, "a.bits"),
    "a short word": ({"dtype": "float32", "shape": [1], "bits": ["3F80"]}, "a.bits"),
    "a prefix": ({"dtype": "float8_e5m2", "shape": [1], "bits": ["0x38"]}, "a.bits"),
    "no hexadecimal": ({"dtype": "float8_e5m2", "shape": [1], "bits": ["G0"]}, "a.bits"),
    "a number for a word": ({"dtype": "float8_e5m2", "shape": [1], "bits": [38]}, "a.bits"),
    "an Arabic digit": ({"dtype": "float8_e5m2", "shape": [1], "bits": ["\u0663\u0668"]}, "a.bits"),
    "bits that are an object": ({"dtype": "float8_e5m2", "shape": [1], "bits": {}}, "a.bits"),
    "ragged rows": ({"dtype": "float8_e5m2", "shape": [2, 2], "bits": [["00"], ["00", "00", "00"]]}, "a.bits"),
    "rows and words": ({"dtype": "float8_e5m2", "shape": [2, 1], "bits": [["00"], "00"]}, "a.bits"),
    "nested too deep": ({"dtype": "float8_e5m2", "shape": [1], "bits": [[["00"]]]}, "a.bits"),
    "no base64": ({"dtype": "float8_e5m2", "shape": [1], "b64": "!!!!"}, "a.b64"),
    "base64 of another length": ({"dtype": "float8_e5m2", "shape": [1], "b64": "AAA="}, "a.b64"),
    "b64 that is a list": ({"dtype": "float8_e5m2", "shape": [1], "b64": ["AA=="]}, "a.b64"),
    "text for a value": ({"dtype": "float16", "shape": [1], "values": ["1"]}, "a.values"),
    "true for a value": ({"dtype": "float16", "shape": [1], "values": [True]}, "a.values"),
    "null for a value": ({"dtype": "float16", "shape": [1], "values": [None]}, "a.values"),
    "too many values": ({"dtype": "float16", "shape": [1], "values": [1, 2]}, "a.values"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_tensor_is_refused_by_the_member_that_is_wrong(name):
    tensor, field = BAD[name]
    with pytest.raises(WireFormatError) as caught:
        tensor_from_json(tensor, "a")
    assert caught.value.field == field and caught.value.got and caught.value.wanted


def test_the_short_names_of_formats_are_understood():
    for fmt in FORMATS:
        assert tensor_from_json({"dtype": fmt.name, "shape": [0], "bits": []}, "a").dtype == fmt.torch_name
    assert formats.TF32 not in FORMATS
