# SPDX-License-Identifier: Apache-2.0
"""NaN, infinities, signed zeros, overflow, subnormals: a named test for each rule, with words to check by hand.

Each docstring ends with how well the rule is known, in the words of the profiles: recorded, reported, source,
documented, assumed. A test shows that the engine keeps a rule, not that the hardware does.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.exact_operands import STORAGE, seeded

from mmaemu import model, profiles
from mmaemu.model import epilogue, formats
from mmaemu.profiles import load
from mmaemu.testing import assert_bitwise_equal

# 1, -1 and the specials of each operand format.
ONE = {"e4m3": 0x38, "e5m2": 0x3C, "f16": 0x3C00, "bf16": 0x3F80, "tf32": 0x3F800000}
INFINITY = {"e5m2": 0x7C, "f16": 0x7C00, "bf16": 0x7F80, "tf32": 0x7F800000}
QUIET = {"e4m3": 0x7F, "e5m2": 0x7F, "f16": 0x7E00, "bf16": 0x7FC0, "tf32": 0x7FC00000}
SIGN = {"e4m3": 0x80, "e5m2": 0x80, "f16": 0x8000, "bf16": 0x8000, "tf32": 0x80000000, "f32": 0x80000000}
NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF}

ROWS = [
    pytest.param(name, fmt, row.accumulator, id=f"{name}-{fmt}-{row.accumulator}")
    for name in profiles.preset_names()
    for row in load.family(name)
    for fmt in row.formats
]
WITH_INFINITY = [case for case in ROWS if case.values[1] != "e4m3"]


def dot(preset, fmt, acc, a, b, c=0, fmt_b=None):
    """One dot product as hex, short operands filled with zeros."""
    fmt_b = fmt_b or fmt
    left, right = np.array([a], STORAGE[fmt]), np.array([b], STORAGE[fmt_b])
    word = model.dot(left, right, np.array([c], STORAGE[acc]), fmt, fmt_b, preset=preset, acc=acc)
    return hex(int(word[0]))


@pytest.mark.parametrize(("preset", "fmt", "acc"), ROWS)
def test_a_nan_operand_gives_the_one_nan(preset, fmt, acc):
    """Rules 1, 2. reported for f32, source for f16."""
    negative = QUIET[fmt] | SIGN[fmt]
    assert dot(preset, fmt, acc, [negative], [ONE[fmt]]) == hex(NAN[acc])


@pytest.mark.parametrize(("preset", "fmt", "acc"), ROWS)
def test_nan_times_zero_is_nan(preset, fmt, acc):
    """Rule 1. reported for f32, source for f16."""
    assert dot(preset, fmt, acc, [QUIET[fmt]], [0]) == hex(NAN[acc])


@pytest.mark.parametrize(("preset", "fmt", "acc"), WITH_INFINITY)
def test_nan_beside_an_infinity_is_nan(preset, fmt, acc):
    """Rule 1. reported for f32, source for f16."""
    assert dot(preset, fmt, acc, [QUIET[fmt], INFINITY[fmt]], [ONE[fmt]] * 2) == hex(NAN[acc])


@pytest.mark.parametrize("c", [0x7FC00000, 0x7F800001, 0xFFC00000, 0xFFFFFFFF, 0x7FABCDEF])
@pytest.mark.parametrize("preset", ["ada", "hopper-wgmma", "b200-mma"])
def test_a_nan_accumulator_loses_its_sign_and_payload(preset, c):
    """Rule 1: quiet, signalling, negative, payload. reported."""
    assert dot(preset, "e4m3", "f32", [ONE["e4m3"]], [ONE["e4m3"]], c) == "0x7fffffff"


@pytest.mark.parametrize("c", [0x7E00, 0x7C01, 0xFE00])
@pytest.mark.parametrize("preset", ["ada", "hopper-mma", "b200-mma"])
def test_a_float16_nan_accumulator_is_canonical(preset, c):
    """Rule 2. source."""
    assert dot(preset, "e4m3", "f16", [ONE["e4m3"]], [ONE["e4m3"]], c) == "0x7fff"


@pytest.mark.parametrize(("preset", "fmt", "acc"), WITH_INFINITY)
def test_infinity_times_zero_is_nan(preset, fmt, acc):
    """Rules 1, 3. reported for f32, source for f16."""
    assert dot(preset, fmt, acc, [INFINITY[fmt]], [SIGN[fmt]]) == hex(NAN[acc])


@pytest.mark.parametrize(("preset", "fmt", "acc"), WITH_INFINITY)
def test_infinity_minus_infinity_is_nan(preset, fmt, acc):
    """Rule 1. reported for f32, source for f16."""
    inf = INFINITY[fmt]
    assert dot(preset, fmt, acc, [inf, inf], [ONE[fmt], ONE[fmt] | SIGN[fmt]]) == hex(NAN[acc])


@pytest.mark.parametrize(("preset", "fmt", "acc"), WITH_INFINITY)
def test_an_infinite_product_against_an_infinite_accumulator_is_nan(preset, fmt, acc):
    """Rule 1. reported for f32, source for f16."""
    c = {"f32": 0xFF800000, "f16": 0xFC00}[acc]
    assert dot(preset, fmt, acc, [INFINITY[fmt]], [ONE[fmt]], c) == hex(NAN[acc])


@pytest.mark.parametrize(("preset", "fmt", "acc"), WITH_INFINITY)
def test_infinity_times_minus_infinity_is_minus_infinity(preset, fmt, acc):
    """Rule 4. reported."""
    inf = INFINITY[fmt]
    assert dot(preset, fmt, acc, [inf], [inf | SIGN[fmt]]) == {"f32": "0xff800000", "f16": "0xfc00"}[acc]


@pytest.mark.parametrize(("preset", "fmt", "acc"), WITH_INFINITY)
def test_infinity_times_a_subnormal_is_infinity(preset, fmt, acc):
    """Rule 3. reported for e5m2."""
    smallest = 1 << 13 if fmt == "tf32" else 1
    assert dot(preset, fmt, acc, [INFINITY[fmt]], [smallest]) == {"f32": "0x7f800000", "f16": "0x7c00"}[acc]


@pytest.mark.parametrize("preset", ["ada", "ampere", "hopper-mma", "b200-mma"])
def test_an_infinity_stays_beside_finite_products_that_overflow_to_the_other_sign(preset):
    """Rules 4, 5: +Inf * 1 + 2^127 * -2 is +Inf; the finite part, -2^128, is no infinity. reported."""
    assert dot(preset, "bf16", "f32", [0x7F80, 0x7F00], [0x3F80, 0xC000]) == "0x7f800000"


@pytest.mark.parametrize("preset", ["ada", "hopper-mma", "b200-mma"])
def test_an_infinity_stays_in_float16_beside_a_finite_sum_below_minus_65520(preset):
    """Rules 4, 5: e5m2 +Inf * 1 with 57344 * -2. reported for f32; assumed for f16."""
    assert dot(preset, "e5m2", "f16", [0x7C, 0x7B], [0x3C, 0xC0]) == "0x7c00"


@pytest.mark.parametrize("preset", ["ada", "ampere", "hopper-mma", "b200-mma"])
def test_an_infinite_accumulator_stays_against_large_negative_products(preset):
    """Rule 4: +Inf + 2^127 * -2^127. reported."""
    assert dot(preset, "bf16", "f32", [0x7F00], [0xFF00], 0x7F800000) == "0x7f800000"


@pytest.mark.parametrize("preset", ["ada", "ampere", "hopper-mma", "b200-mma"])
def test_finite_products_beyond_float32_cancel_in_one_step(preset):
    """Rule 5: 2^100 * 2^100 - 2^100 * 2^100 is +0. reported."""
    assert dot(preset, "bf16", "f32", [0x7180, 0x7180], [0x7180, 0xF180]) == "0x0"


@pytest.mark.parametrize("preset", ["ada", "ampere", "hopper-mma", "b200-mma"])
def test_a_truncated_result_at_2_to_the_128_is_infinite(preset):
    """Rule 6: 7F7FFFFF + 2^120 is above 2^128. reported."""
    assert dot(preset, "bf16", "f32", [0x5D80], [0x5D80], 0x7F7FFFFF) == "0x7f800000"


@pytest.mark.parametrize("preset", ["ada", "ampere", "hopper-mma", "b200-mma"])
def test_one_added_to_the_largest_number_is_cut_off(preset):
    """Rule 6: 7F7FFFFF + 1 stays. reported."""
    assert dot(preset, "bf16", "f32", [0x3F80], [0x3F80], 0x7F7FFFFF) == "0x7f7fffff"


@pytest.mark.parametrize("preset", ["ada", "ampere"])
def test_a_later_step_cannot_bring_an_overflow_back(preset):
    """Rule 7: 2^127 * 2 in the first step of 8, -(2^127 * 2^127) in the second: still +Inf. reported."""
    a = [0x7F00, *[0] * 7, 0x7F00]
    b = [0x4000, *[0] * 7, 0xFF00]
    assert dot(preset, "bf16", "f32", a, b) == "0x7f800000"


@pytest.mark.parametrize("preset", ["ada", "hopper-mma", "b200-mma"])
def test_a_float16_overflow_is_sticky(preset):
    """Rule 7 in f16: 65504 * 65504 in the first step, its negative in the next. assumed for f16."""
    k = profiles.preset(preset, "f16", "f16", "f16").rule.group
    a = [0x7BFF, *[0] * (k - 1), 0x7BFF]
    b = [0x7BFF, *[0] * (k - 1), 0xFBFF]
    assert dot(preset, "f16", "f16", a, b) == "0x7c00"


@pytest.mark.parametrize("preset", ["ada", "hopper-wgmma"])
def test_the_largest_accumulator_keeps_13_fraction_bits_beside_finite_products(preset):
    """Rule 8: 7F7FFFFF + 1 * 1 is 7F7FFC00. reported."""
    assert dot(preset, "e4m3", "f32", [0x38], [0x38], 0x7F7FFFFF) == "0x7f7ffc00"


@pytest.mark.parametrize("preset", ["b200-mma"])
def test_the_lowered_fp8_instruction_keeps_the_largest_accumulator(preset):
    """Rule 8: C joins last, in float32. reported for Hopper's lowering, recorded for B200's order."""
    assert dot(preset, "e4m3", "f32", [0x38], [0x38], 0x7F7FFFFF) == "0x7f7fffff"


@pytest.mark.parametrize("fmt", ["e4m3", "e5m2"])
@pytest.mark.parametrize("preset", ["ada", "hopper-wgmma"])
def test_zero_products_cut_the_accumulator_to_13_fraction_bits(preset, fmt):
    """Rule 9: D = C & FFFFFC00 for all finite C that leave something. reported."""
    c = seeded("f32", (70, 500), 81).reshape(-1)
    c = c[(c & 0x7F800000 != 0x7F800000) & (c & 0x7FFFFC00 != 0)]
    zero = np.zeros((len(c), 32), np.uint8)
    got = model.dot(zero, zero, c, fmt, fmt, preset=preset)
    assert_bitwise_equal(got, c & np.uint32(0xFFFFFC00))


@pytest.mark.parametrize(("preset", "fmt", "acc"), ROWS)
def test_exact_cancellation_is_positive_zero(preset, fmt, acc):
    """Rule 10. recorded for Ada fp8, reported for wgmma, assumed elsewhere."""
    one, minus = ONE[fmt], ONE[fmt] | SIGN[fmt]
    assert dot(preset, fmt, acc, [minus, one], [one, one]) == "0x0"


@pytest.mark.parametrize(("preset", "fmt", "acc"), ROWS)
def test_a_negative_zero_accumulator_with_zero_products_gives_positive_zero(preset, fmt, acc):
    """Rule 10: also where every product is -0. reported."""
    c = {"f32": 0x80000000, "f16": 0x8000}[acc]
    assert dot(preset, fmt, acc, [SIGN[fmt]] * 4, [ONE[fmt]] * 4, c) == "0x0"


@pytest.mark.parametrize(("preset", "fmt", "acc"), ROWS)
def test_a_negative_zero_accumulator_with_cancellation_gives_positive_zero(preset, fmt, acc):
    """Rule 10. reported."""
    c = {"f32": 0x80000000, "f16": 0x8000}[acc]
    assert dot(preset, fmt, acc, [ONE[fmt]] * 2, [ONE[fmt], ONE[fmt] | SIGN[fmt]], c) == "0x0"


def test_operand_subnormals_count_with_the_smallest_exponent():
    """Rule 11: C = 1 + 2^-13, product 2^-9 * 448: exponent -6 + 8 = 2 sets the grid to 2^-11, so C's last bit goes.

    Were the subnormal normalised first, the exponent would be -9 + 8 = -1 and the bit would stay. recorded.
    """
    # 2^-9 * 448 = 0.875; 1 + 0.875 = 1.875.
    assert dot("hopper-wgmma", "e4m3", "f32", [0x01], [0x7E], 0x3F800400) == "0x3ff00000"


@pytest.mark.parametrize("preset", ["ada", "ampere", "hopper-mma", "b200-mma"])
def test_a_subnormal_result_is_kept(preset):
    """Rule 11: 2^-70 * 2^-70 = 2^-140 is 00000200. reported."""
    assert dot(preset, "bf16", "f32", [0x1C80], [0x1C80]) == "0x200"


@pytest.mark.parametrize("preset", ["ada", "ampere", "hopper-mma", "b200-mma"])
def test_a_subnormal_accumulator_is_kept(preset):
    """Rule 11: 00000001 with zero products. reported."""
    assert dot(preset, "bf16", "f32", [0], [0], 0x00000001) == "0x1"


def test_a_negative_term_that_is_cut_to_nothing_gives_positive_zero():
    """Rule 12: C = 800001A9 with zero products. reported."""
    assert dot("ada", "e4m3", "f32", [0], [0], 0x800001A9) == "0x0"


@pytest.mark.parametrize("preset", ["ada", "ampere", "hopper-mma", "b200-mma"])
def test_a_negative_sum_that_underflows_gives_positive_zero(preset):
    """Rule 13: -(2^-75 * 2^-76) = -2^-151 is on the grid and below half the smallest float32. source."""
    assert dot(preset, "bf16", "f32", [0x1A00], [0x9980]) == "0x0"


def test_a_zero_accumulator_takes_no_part_in_the_common_exponent():
    """Rule 14: 2^-9 * 2^-9 and C = 0 keep every bit of 1.125 * 2^-6 * 1.125 * 2^-6. recorded."""
    assert dot("hopper-wgmma", "e4m3", "f32", [0x09], [0x09]) == "0x39a20000"


def test_zero_products_take_no_part_in_the_common_exponent():
    """Rule 14: 0 * 448 beside C = 1 + 2^-13 keeps C's last bit. assumed."""
    assert dot("hopper-wgmma", "e4m3", "f32", [0x00], [0x7E], 0x3F800400) == "0x3f800400"


@pytest.mark.parametrize(
    ("preset", "small", "word"),
    [
        ("ada", 0x9880, "0x1"), ("ampere", 0x9880, "0x1"), ("hopper-mma", 0x9880, "0x0"), ("b200-mma", 0x9880, "0x0"),
        ("ada", 0x9900, "0x0"), ("ampere", 0x9900, "0x0"), ("hopper-mma", 0x9780, "0x1"), ("b200-mma", 0x9780, "0x1"),
    ],
)  # fmt: skip
def test_the_common_exponent_has_a_floor(preset, small, word):
    """Rule 15: 2^-149 - 2^-79 * 2^-78, cut toward zero: 1 unit where the small term falls off the grid, else 0.

    The grid is 2^(-132 - 24) on Ada: 2^-157 falls off and 2^-156 stays; 2^(-133 - 25) on Hopper: 2^-157 stays and
    2^-159 falls off. reported for Ada, consistent for Hopper.
    """
    assert dot(preset, "bf16", "f32", [0x1A00, 0x1800], [0x1A80, small]) == word


def test_wgmma_aligns_the_accumulator_as_one_more_term():
    """Rule 16: C = 2^14 cuts the product 1 * 1 at 13 fraction bits: 2^14 + 1 is 2^14. reported."""
    assert dot("hopper-wgmma", "e4m3", "f32", [0x38], [0x38], 0x46800000) == "0x46800000"


@pytest.mark.parametrize("preset", ["ada", "ampere", "hopper-mma", "b200-mma"])
def test_a_chain_is_repeated_single_instructions(preset):
    """Rule 17. reported."""
    k = profiles.preset(preset, "bf16", "bf16", "f32").rule.instruction_k
    a, b, c = seeded("bf16", (70, 3 * k), 91), seeded("bf16", (70, 3 * k), 92), seeded("f32", (70, 1), 93)[:, 0]
    whole = model.dot(a, b, c, "bf16", "bf16", preset=preset)
    for first in range(0, 3 * k, k):
        c = model.dot(a[:, first : first + k], b[:, first : first + k], c, "bf16", "bf16", preset=preset)
    assert_bitwise_equal(whole, c)


@pytest.mark.parametrize(
    ("out", "acc", "word"),
    [
        ("e4m3", 0x43E80000, 0x7E), ("e4m3", 0x7F800000, 0x7E), ("e4m3", 0xFF800000, 0xFE), ("e4m3", 0xFFC00000, 0x7F),
        ("e4m3", 0x47000000, 0x7E), ("e5m2", 0x47800000, 0x7B), ("e5m2", 0xFF800000, 0xFB), ("e5m2", 0x7FC00000, 0x7F),
        ("e4m3", 0x80000000, 0x80), ("e5m2", 0xB7000000, 0x80), ("e5m2", 0xB7000001, 0x81),
    ],
)  # fmt: skip
def test_fp8_outputs_saturate(out, acc, word):
    """Rule 19: Inf and what is too large give the largest number, NaN gives 7F. documented; assumed of the library."""
    assert finish(out, acc) == hex(word)


@pytest.mark.parametrize(
    ("out", "acc", "word"),
    [
        ("f16", 0x477FEFFF, 0x7BFF), ("f16", 0x477FF000, 0x7C00), ("f16", 0xFFC00001, 0x7FFF),
        ("f16", 0x80000000, 0x8000), ("bf16", 0x7F7F7FFF, 0x7F7F), ("bf16", 0x7F7F8000, 0x7F80),
        ("bf16", 0x7F800001, 0x7FFF), ("f16", 0x33000001, 0x1), ("bf16", 0x3F808000, 0x3F80),
        ("bf16", 0x3F818000, 0x3F82), ("f32", 0xFFC00001, 0x7FFFFFFF), ("f32", 0x1, 0x1),
    ],
)  # fmt: skip
def test_wide_outputs_round_to_nearest_and_overflow_to_infinity(out, acc, word):
    """Rule 20: NaN is 7FFF in 16 bits. documented; assumed of the library."""
    assert finish(out, acc) == hex(word)


@pytest.mark.parametrize(
    ("acc", "scale", "word"),
    [
        (0x3F800000, 0x7FC00000, 0x7FFFFFFF), (0x7F800000, 0x00000000, 0x7FFFFFFF),
        (0x3F800000, 0x7F800000, 0x7F800000), (0x00000000, 0x7F800000, 0x7FFFFFFF),
        (0xBF800000, 0x00000000, 0x80000000), (0x00800000, 0x3F000000, 0x00400000),
    ],
)  # fmt: skip
def test_scales_of_zero_infinity_and_nan_follow_ieee(acc, scale, word):
    """Rule 21. assumed."""
    assert finish("f32", acc, scale) == hex(word)


def finish(out, acc, scale=0x3F800000):
    """The output word of one accumulator under the default profile's rules."""
    word, factor, one = (np.array([[value]], np.uint32) for value in (acc, scale, 0x3F800000))
    rule = profiles.get("h100-pcie-cublaslt12.8").gemm
    return hex(int(epilogue.apply(word, factor, one, out_dtype=formats.get(out), rule=rule)[0, 0]))
