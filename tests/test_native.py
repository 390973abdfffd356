# SPDX-License-Identifier: Apache-2.0
"""The compiled backend beside its bits: threads, progress, rounding modes, kernels against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.conformance import ADA, E4M3, E5M2, ENGINES, HOPPER, ONE, PAIRS, matrices

import mmaemu
from mmaemu import plan, profiles, request
from mmaemu.backends.native import library, outputs, sums
from mmaemu.model import epilogue, formats
from mmaemu.model.epilogue import Factors
from mmaemu.testing import assert_bitwise_equal

if not ENGINES:
    pytest.skip(f"needs the compiled kernels: {library.why_missing()}", allow_module_level=True)


@pytest.mark.parametrize("out", ["bfloat16", "float16", E4M3, E5M2])
def test_every_float32_rounds_to_the_same_output(out):
    """Words around every rounding point and at every exponent, through scales of 1 and a product that gives them."""
    random = np.random.default_rng(13)
    acc = random.integers(0, 1 << 32, 200_000, np.uint64).astype(np.uint32)
    ends = np.array(
        [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x7FFFF, 0x80000, 0x80001, 0xFFFFF, 0x1FFF, 0x1000], np.uint32
    )
    acc = np.concatenate([acc, (np.arange(512, dtype=np.uint32)[:, None] << 23 | ends).ravel()])
    acc = np.resize(acc, (-(-acc.size // 64), 64))
    ones = np.full((1, 1), 0x3F800000, np.uint32)
    a, b = matrices((E4M3, E5M2), acc.shape[0], 64, 16, 1)
    layout = plan_of(a, b, out_dtype=out)
    got = np.empty(acc.shape, layout.fmt_out.storage)
    outputs.finish(acc, Factors(ones, ones), layout, got)
    assert_bitwise_equal(got, epilogue.convert(acc, formats.get(out), layout.rule))


def plan_of(a, b, **options):
    options = {"out_dtype": "float32", **options}
    return plan.make(request.build(a, b, ONE, ONE, **options))


@pytest.mark.parametrize("profile", [HOPPER, ADA])
@pytest.mark.parametrize("pair", PAIRS)
def test_kernels_that_work_differently_agree_on_full_matrices(monkeypatch, profile, pair):
    a, b = matrices(pair, 260, 1040, 1040, 29)
    found = []
    for engine in ENGINES:
        engine.use(monkeypatch)
        found.append(mmaemu.accumulate(a, b, profile=profile, use_fast_accum=True, backend="native"))
    assert len(found) > 1
    for other in found[1:]:
        assert_bitwise_equal(other, found[0])


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_threads_change_no_bit(threads):
    a, b = matrices((E4M3, E4M3), 300, 800, 96, 37)
    one = mmaemu.scaled_mm(a, b, ONE, ONE, out_dtype="bfloat16", backend="native", threads=1)
    assert_bitwise_equal(mmaemu.scaled_mm(a, b, ONE, ONE, out_dtype="bfloat16", backend="native", threads=threads), one)


def test_progress_is_told_and_can_stop_the_work():
    a, b = matrices((E4M3, E4M3), 600, 1600, 32, 41)
    told: list[tuple[int, int]] = []
    options: dict[str, Any] = {"out_dtype": "bfloat16", "backend": "native", "threads": 2}
    mmaemu.scaled_mm(a, b, ONE, ONE, progress=lambda done, total: told.append((done, total)), **options)
    assert told[-1][0] == told[-1][1] == len(told) > 2

    class Stop(Exception):
        pass

    def stop(done, total):
        raise Stop

    with pytest.raises(Stop):
        mmaemu.scaled_mm(a, b, ONE, ONE, progress=stop, **options)
    assert_bitwise_equal(
        mmaemu.scaled_mm(a, b, ONE, ONE, **options), mmaemu.scaled_mm(a, b, ONE, ONE, **{**options, "threads": 1})
    )


def test_the_rounding_mode_of_the_caller_comes_back():
    """The kernels round toward zero; a division afterwards rounds to nearest, as before."""
    a, b = matrices((E4M3, E4M3), 8, 16, 64, 43)
    mmaemu.scaled_mm(a, b, ONE, ONE, out_dtype="float32", backend="native", threads=1)
    assert (np.array([1.0], np.float32) / np.array([3.0], np.float32)).view(np.uint32)[0] == 0x3EAAAAAB


def test_auto_is_native_where_it_is_compiled():
    a, b = matrices((E4M3, E4M3), 4, 16, 64, 53)
    other = profiles.get(HOPPER).with_overrides({"instruction.group": 8})
    for profile in (HOPPER, other):
        assert mmaemu.explain(a, b, out_dtype="float32", profile=profile).call["backend"] == "native"
    assert mmaemu.backends_status()["native"].available


def test_only_the_rule_that_the_fp8_kernels_know_goes_to_them():
    usual = profiles.preset("hopper-wgmma", "e4m3", "e4m3", "f32").rule
    assert sums.kernel_of(usual, formats.E4M3, formats.E5M2) == library.fastest()
    assert sums.kernel_of(usual, formats.F16, formats.F16) == "general"
    for preset, fmt in (("hopper-mma", "f16"), ("ampere", "bf16"), ("b200-mma", "e4m3")):
        rule = profiles.preset(preset, fmt, fmt, "f32").rule
        assert sums.kernel_of(rule, formats.get(fmt), formats.get(fmt)) == "general"
