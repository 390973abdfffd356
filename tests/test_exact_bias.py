# SPDX-License-Identifier: Apache-2.0
"""The bias of tensor-wise products against the exact oracle: every output and bias type, fused and separate."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import exact_gemm as gemm
from tests.support.exact_operands import bounded, seeded, words
from tests.support.exact_oracle import INF, LAYOUTS, NAN, decode, encode
from tests.support.exact_rowwise import finish

import mmaemu
from mmaemu import Bits, profiles
from mmaemu.testing import assert_bitwise_equal

pytestmark = pytest.mark.usefixtures("each_backend")

TORCH = {short: name for name, short in gemm.SHORT.items()}
DEVICES = ("h100-pcie-cublaslt12.8", "l40s", "h100-pcie-cublaslt12.9")
ONE = 0x3F800000
# Every output with the types of bias that torch and cuBLASLt take for it.
OUTPUTS = [("bf16", "bf16"), ("f16", "f16"), ("e4m3", "f16"), ("e4m3", "bf16"), ("e5m2", "bf16"), ("e5m2", "f16")]
ODD = {
    "bf16": [0x3F81, 0xC2F7, 0x0000, 0x8000, 0x0001, 0x7F7F, 0x7F80, 0xFF80, 0xFFC1, 0x7F81, 0xB9A0, 0x4380],
    "f16": [0x3C01, 0xC6F7, 0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0x7C00, 0xFC00, 0xFE01, 0x7C01, 0x5C00],
}
SCALES = [
    ONE,
    0x3EAAAAAB,
    0xBFB504F3,
    0x00000001,
    0x7F7FFFFF,
    0x58635FA9,
    0x00000000,
    0x80000000,
    0x7F800000,
    0x7FC00000,
]


def wide(word, fmt):
    """A 16-bit word in float32."""
    number = decode(int(word), fmt)
    if number.kind == NAN:
        return 0x7FFFFFFF
    if number.kind == INF:
        return LAYOUTS["f32"].infinity | (LAYOUTS["f32"].sign if number.negative else 0)
    return encode(number.negative, number.units, number.unit, "f32")


def check(a, b, fmts, out, bias_fmt, bias, profile, *, scales=(ONE, ONE), scale_result=None, fast=True, split=None):
    resolved = profiles.get(profile)
    rule, step = resolved.gemm, resolved.gemm_instruction(*fmts).rule
    left, right = Bits(TORCH[fmts[0]], a), Bits(TORCH[fmts[1]], np.asfortranarray(b))
    scale_a, scale_b = (Bits("float32", np.array(word, np.uint32)) for word in scales)
    extra: dict[str, Any] = (
        {} if scale_result is None else {"scale_result": Bits("float32", np.array(scale_result, np.uint32))}
    )
    got = mmaemu.scaled_mm(
        left, right, scale_a, scale_b, Bits(TORCH[bias_fmt], np.asarray(bias, np.uint16)),
        out_dtype=TORCH[out], use_fast_accum=fast, profile=resolved, splitk=split, **extra,
    ).array  # fmt: skip
    splits, scheme = split or (1, "compute_type")
    ways: dict[str, Any] = {
        "fast": fast,
        "splits": splits,
        "scheme": scheme,
        "scale_a": scales[0],
        "scale_b": scales[1],
    }
    cut = gemm.ranges(a.shape[1], splits, rule.k_tile, rule.split_layout)
    scaled = rule.scale_timing == "before_reduction" and len(cut) > 1
    want = []
    for row, (column, word) in product(a.tolist(), zip(b.T.tolist(), bias, strict=True)):
        acc = gemm.accumulate(row, column, fmts[0], fmts[1], out, step, rule, **ways)
        addend = wide(word, bias_fmt)
        want.append(finish(acc, out, rule, rule.scale_order, scales[0], scales[1], addend, scale_result, scaled=scaled))
    assert_bitwise_equal(got, np.array(want, got.dtype).reshape(got.shape))


def matrices(fmts, m, k, seed, n=32):
    random = np.random.default_rng(seed)
    a = random.permutation(seeded(fmts[0], (max(7, m), k), seed))[:m]
    return a, random.permutation(seeded(fmts[1], (n, k), seed + 1)).T


def odd_biases(fmt, n, seed=0):
    return np.random.default_rng(seed).choice(np.array(ODD[fmt], np.uint16), n)


@pytest.mark.parametrize(("out", "bias"), OUTPUTS)
@pytest.mark.parametrize("device", DEVICES)
def test_every_output_with_every_bias_is_exact_arithmetic(device, out, bias):
    fmts = ("e4m3", "e5m2")
    a, b = matrices(fmts, 3, 80, 31)
    scale_result = 0x3DCCCCCD if out in ("e4m3", "e5m2") else None
    check(
        a, b, fmts, out, bias, odd_biases(bias, 32), device, scales=(0x3EAAAAAB, 0x3F8CCCCD), scale_result=scale_result
    )


@pytest.mark.parametrize("add", ["fused", "separate"])
@pytest.mark.parametrize("order", ["combined", "a_then_b", "b_then_a"])
def test_every_scale_meets_every_bias_exactly(order, add):
    profile = profiles.get(DEVICES[0]).with_overrides({"gemm.scale_order": order, "gemm.bias_add": add})
    a, b = matrices(("e4m3", "e5m2"), 1, 32, 37, n=16)
    for scale_a, scale_b in product(SCALES, SCALES[::2]):
        check(a, b, ("e4m3", "e5m2"), "bf16", "bf16", odd_biases("bf16", 16), profile, scales=(scale_a, scale_b))


@pytest.mark.parametrize("timing", ["after_reduction", "before_reduction"])
@pytest.mark.parametrize("scheme", ["compute_type", "output_type", "inplace"])
def test_the_bias_comes_after_the_reduction(scheme, timing):
    profile = profiles.get(DEVICES[0]).with_overrides({"gemm.scale_timing": timing, "gemm.k_tile": 32})
    a, b = matrices(("e4m3", "e4m3"), 2, 112, 41, n=16)
    scales = (0x3EAAAAAB, 0x3F8CCCCD)
    bias = odd_biases("f16", 16)
    check(a, b, ("e4m3", "e4m3"), "f16", "f16", bias, profile, scales=scales, split=(3, scheme), fast=False)


@bounded(40)
@given(st.data())
def test_random_biases_under_random_rules_are_exact_arithmetic(data):
    draw = data.draw
    out, bias_fmt = draw(st.sampled_from(OUTPUTS))
    k = 16 * draw(st.integers(1, 5))
    a = draw(words("e4m3", k)).reshape(1, k)
    b = np.tile(draw(words("e5m2", 2 * k)).reshape(2, k), (8, 1)).T
    rules = {
        "gemm.scale_order": draw(st.sampled_from(["combined", "a_then_b", "b_then_a"])),
        "gemm.bias_add": draw(st.sampled_from(["fused", "separate"])),
    }
    scale = st.sampled_from(SCALES) | st.integers(0x30000000, 0x4F000000)
    check(
        a, b, ("e4m3", "e5m2"), out, bias_fmt, [draw(st.integers(0, 0xFFFF)) for _ in range(16)],
        profiles.get(draw(st.sampled_from(DEVICES))).with_overrides(rules), scales=(draw(scale), draw(scale)),
        scale_result=draw(scale) if out in ("e4m3", "e5m2") else None, fast=draw(st.booleans()),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("order", "add", "word"),
    [("a_then_b", "fused", 0xB280), ("a_then_b", "separate", 0x0000), ("combined", "fused", 0x0000)],
)
def test_a_fused_bias_keeps_what_a_rounded_product_loses_by_hand(order, add, word):
    """1 * (1 + 2^-13) * (1 - 2^-13) - 1 is -2^-26. Rounded to float32 first, the product is 1 and nothing is left; and
    combined scales round to 1 before either addition."""
    a, b = np.zeros((1, 16), np.uint8), np.zeros((16, 16), np.uint8, order="F")
    a[0, 0], b[0] = 0x38, 0x38
    scale_a, scale_b = (Bits("float32", np.array(bits, np.uint32)) for bits in (0x3F800400, 0x3F7FF800))
    bias = Bits("bfloat16", np.full(16, 0xBF80, np.uint16))
    profile = profiles.get(DEVICES[0]).with_overrides({"gemm.scale_order": order, "gemm.bias_add": add})
    left, right = Bits("float8_e4m3fn", a), Bits("float8_e4m3fn", b)
    out = mmaemu.scaled_mm(left, right, scale_a, scale_b, bias, out_dtype="bfloat16", profile=profile)
    assert hex(out.array[0, 0]) == hex(word)
