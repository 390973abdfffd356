# SPDX-License-Identifier: Apache-2.0
"""Every code of every format up to 16 bits means what the format's text says; so do samples of the wide ones."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from tests.support import exact_oracle as exact
from tests.support.exact_operands import STORAGE, seeded

from mmaemu.errors import InvalidInputError
from mmaemu.model import formats
from mmaemu.model.decode import FINITE, INFINITE, NAN, Decoded, decode, encode
from mmaemu.model.ieee import widen
from mmaemu.testing import assert_bitwise_equal

NARROW = ("e4m3", "e5m2", "f16", "bf16")
ALL = (*NARROW, "tf32", "f32")
KINDS = {exact.NUMBER: FINITE, exact.INF: INFINITE, exact.NAN: NAN}
NUMPY_TYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "f16": np.float16, "bf16": ml_dtypes.bfloat16
}  # fmt: skip
TORCH_TYPES = {
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "f16": torch.float16, "bf16": torch.bfloat16
}  # fmt: skip


def codes(fmt):
    """All codes of a narrow format; a sample of every exponent of a wide one."""
    if fmt in NARROW:
        return np.arange(1 << (8 * np.dtype(STORAGE[fmt]).itemsize)).astype(STORAGE[fmt])
    random = np.random.default_rng(1).integers(0, 1 << 23, (512, 40), dtype=np.uint32)
    random[:, :4] = 0, 1, 1 << 13, (1 << 23) - 1
    return (random | (np.arange(512, dtype=np.uint32) << 23)[:, None]).reshape(-1)


@pytest.mark.parametrize("fmt", ALL)
def test_every_code_decodes_to_its_kind(fmt):
    want = [KINDS[exact.decode(int(word), fmt).kind] for word in codes(fmt)]
    assert decode(codes(fmt), formats.get(fmt)).kinds.tolist() == want


@pytest.mark.parametrize("fmt", ALL)
def test_every_finite_code_decodes_to_its_number(fmt):
    words = codes(fmt)
    got = decode(words, formats.get(fmt))
    for i, word in enumerate(words):
        want = exact.decode(int(word), fmt)
        if want.kind == exact.NUMBER:
            assert (int(got.magnitude[i]), int(got.exponent[i]) - got.fraction_bits) == (want.units, want.unit), hex(
                word
            )


@pytest.mark.parametrize("fmt", ALL)
def test_every_code_decodes_to_its_sign(fmt):
    want = [-1 if exact.decode(int(word), fmt).negative else 1 for word in codes(fmt)]
    assert np.broadcast_to(decode(codes(fmt), formats.get(fmt)).sign, len(want)).tolist() == want


@pytest.mark.parametrize("fmt", ALL)
def test_subnormals_keep_the_smallest_exponent(fmt):
    words = codes(fmt)
    numbers = [exact.decode(int(word), fmt) for word in words]
    low = [
        i for i, number in enumerate(numbers) if number.kind == exact.NUMBER and 0 < number.units < 1 << _fraction(fmt)
    ]
    assert set(decode(words, formats.get(fmt)).exponent[low].tolist()) == {1 - exact.LAYOUTS[fmt].bias}


def _fraction(fmt):
    return exact.LAYOUTS[fmt].fraction


@pytest.mark.parametrize("fmt", NARROW)
def test_every_code_widens_as_ml_dtypes_and_numpy_say(fmt):
    words = codes(fmt)
    with np.errstate(invalid="ignore"):
        want = words.view(NUMPY_TYPES[fmt]).astype(np.float32)
    assert_bitwise_equal(
        widen(words, formats.get(fmt)).view(np.float32),
        want,
        nan="mask",  # nan=mask: numpy and ml_dtypes keep each code's own payload
    )


@pytest.mark.parametrize("fmt", NARROW)
def test_every_code_widens_as_torch_says(fmt):
    words = codes(fmt)
    signed = torch.from_numpy(words if fmt in ("e4m3", "e5m2") else words.view(np.int16))
    want = signed.view(TORCH_TYPES[fmt]).float().numpy()
    assert_bitwise_equal(
        widen(words, formats.get(fmt)).view(np.float32),
        want,
        nan="mask",  # nan=mask: torch keeps each code's own payload
    )


@pytest.mark.parametrize("fmt", NARROW)
def test_every_nan_widens_to_the_one_float32_nan(fmt):
    words = np.array([w for w in codes(fmt) if exact.decode(int(w), fmt).kind == exact.NAN], STORAGE[fmt])
    assert set(widen(words, formats.get(fmt)).tolist()) == {0x7FFFFFFF}


def test_tf32_ignores_the_13_low_bits():
    words = seeded("f32", (70, 30), 5)
    kept, cut = decode(words, formats.TF32), decode(words & np.uint32(0xFFFFE000), formats.TF32)
    assert kept.magnitude.tolist() == cut.magnitude.tolist()


def test_tf32_with_a_fraction_only_in_the_ignored_bits_is_infinite():
    assert decode(np.array([0x7F800001], np.uint32), formats.TF32).kinds.tolist() == [INFINITE]


@pytest.mark.parametrize(
    ("fmt", "word", "value"),
    [
        ("e4m3", 0x7E, 448.0), ("e4m3", 0x78, 256.0), ("e4m3", 0x01, 2.0**-9), ("e4m3", 0x08, 2.0**-6),
        ("e4m3", 0xB8, -1.0), ("e5m2", 0x7B, 57344.0), ("e5m2", 0x01, 2.0**-16), ("e5m2", 0x04, 2.0**-14),
        ("e5m2", 0xBC, -1.0), ("f16", 0x7BFF, 65504.0), ("f16", 0x0001, 2.0**-24), ("bf16", 0x3F80, 1.0),
        ("bf16", 0x0001, 2.0**-133), ("tf32", 0x3F801FFF, 1.0), ("f32", 0x00000001, 2.0**-149),
    ],
)  # fmt: skip
def test_a_code_that_a_person_can_check(fmt, word, value):
    got = decode(np.array([word], formats.get(fmt).storage), formats.get(fmt))
    assert float(got.sign[0] * np.ldexp(float(got.magnitude[0]), got.exponent[0] - got.fraction_bits)) == value


@pytest.mark.parametrize("fmt", ALL)
def test_the_largest_finite_code_is_the_largest_number(fmt):
    assert exact.decode(formats.get(fmt).max_finite, fmt).value == exact.LAYOUTS[fmt].largest


@pytest.mark.parametrize("fmt", [f for f in ALL if f != "e4m3"])
def test_the_infinity_is_a_positive_infinity(fmt):
    infinity = formats.get(fmt).infinity
    assert infinity is not None
    assert exact.decode(infinity, fmt) == exact.Number(exact.INF, False)


def test_e4m3_has_no_infinity():
    assert formats.E4M3.infinity is None


@pytest.mark.parametrize("fmt", ALL)
def test_the_canonical_nan_is_the_documented_word(fmt):
    assert formats.get(fmt).canonical_nan == exact.NAN_WORDS[fmt]


@pytest.mark.parametrize("fmt", ALL)
def test_both_names_of_a_format_find_it(fmt):
    found = formats.get(fmt)
    assert formats.get(f"torch.{found.torch_name}") is found


@pytest.mark.parametrize("name", ["e3m4", "", None, 8, ["f16"]])
def test_an_unknown_format_names_the_field(name):
    with pytest.raises(InvalidInputError) as caught:
        formats.get(name, "fmt_a")
    assert caught.value.field == "fmt_a"


@pytest.mark.parametrize("fmt", ["f16", "bf16", "e4m3", "e5m2"])
def test_encode_is_the_inverse_of_decode(fmt):
    words = codes(fmt)
    finite = words[decode(words, formats.get(fmt)).kinds == FINITE]
    assert_bitwise_equal(encode(decode(finite, formats.get(fmt)), formats.get(fmt)), finite)


def test_encode_widens_a_shorter_fraction():
    one = np.ones(1, np.int32)
    value = Decoded(-one, 3 * one, 5 * one, fraction_bits=1)  # -1.5 * 2^5
    assert_bitwise_equal(encode(value, formats.F32), np.array([-48.0], np.float32).view(np.uint32))
