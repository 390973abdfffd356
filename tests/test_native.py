# SPDX-License-Identifier: Apache-2.0
"""The compiled backend against the reference: every plan it takes, both kernels, every output, special operands."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.exact_operands import bounded, seeded, words

import mmaemu
from mmaemu import Bits, profiles
from mmaemu.backends import native
from mmaemu.backends.native import library
from mmaemu.backends.registry import choose
from mmaemu.errors import BackendUnavailableError
from mmaemu.testing import assert_bitwise_equal

if library.load() is None:
    pytest.skip(f"needs the compiled kernels: {library.why_missing()}", allow_module_level=True)

LIBRARY = library.load()
assert LIBRARY is not None
KERNELS = [name for name, number in library.KERNELS.items() if LIBRARY.mmaemu_has(number)]
HOPPER, ADA, NEWER = "h100-pcie-cublaslt12.8", "l40s", "h100-pcie-cublaslt12.9"
E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
SHORT = {E4M3: "e4m3", E5M2: "e5m2"}
PAIRS = [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3)]
ONE = np.float32(1)


@pytest.fixture(params=KERNELS)
def kernel(request, monkeypatch):
    monkeypatch.setattr(native, "KERNEL", request.param)
    return request.param


def finite(array, dtype):
    """The same words without NaN and Inf."""
    largest = 0x7E if dtype == E4M3 else 0x7B
    return np.where((array & 0x7F) > largest, (array & 0x80) | largest, array).astype(np.uint8)


def matrices(pair, m, n, k, seed, special=False):
    random = np.random.default_rng(seed)
    a = random.permutation(seeded(SHORT[pair[0]], (max(m, 6), k), seed))[:m]
    b = random.permutation(seeded(SHORT[pair[1]], (max(n, 6), k), seed + 1))[:n]
    if not special:
        a, b = finite(a, pair[0]), finite(b, pair[1])
    return Bits(pair[0], a), Bits(pair[1], b.T)


def agree(a, b, *scales, **options):
    """native equals reference, in accumulators and in outputs."""
    options = {"out_dtype": "float32", **options}
    bias = options.pop("bias", None)
    scale_a, scale_b = scales or (ONE, ONE)
    got = mmaemu.scaled_mm(a, b, scale_a, scale_b, bias, backend="native", **options)
    assert_bitwise_equal(got, mmaemu.scaled_mm(a, b, scale_a, scale_b, bias, backend="reference", **options))
    options.pop("scale_result", None)
    sums = [
        mmaemu.accumulate(a, b, scale_a=scale_a, scale_b=scale_b, backend=name, **options)
        for name in ("native", "reference")
    ]
    assert_bitwise_equal(*sums)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("profile", [HOPPER, ADA])
@pytest.mark.parametrize("fast", [False, True])
def test_sums_of_every_pair_and_tail_agree(kernel, profile, pair, fast):
    for k in (16, 32, 48, 112, 128, 144, 208, 400):
        a, b = matrices(pair, 37, 80, k, k)
        agree(a, b, profile=profile, use_fast_accum=fast)


@pytest.mark.parametrize("chunks", [[16], [32, 64], [48, 16], [1], [7, 100, 3], [33], [200, 5], [64, 1000]])
@pytest.mark.parametrize("profile", [HOPPER, ADA])
def test_any_chunks_agree(kernel, profile, chunks):
    a, b = matrices((E4M3, E5M2), 9, 48, 208, len(chunks))
    agree(a, b, profile=profiles.get(profile).with_overrides({"gemm.slow_chunks": chunks}))


@pytest.mark.parametrize(("m", "n"), [(1, 16), (2, 32), (3, 48), (4, 16), (5, 1040), (300, 16), (257, 528)])
def test_any_size_of_the_result_agrees(kernel, m, n):
    a, b = matrices((E4M3, E4M3), m, n, 96, m + n)
    agree(a, b, out_dtype="bfloat16")


def test_results_without_multiples_of_16_agree(kernel):
    """accumulate takes any sizes."""
    for m, n, k in ((1, 1, 1), (3, 5, 7), (9, 33, 65), (2, 31, 17)):
        a, b = matrices((E4M3, E5M2), m, n, k, m)
        sums = [mmaemu.accumulate(a, b, backend=name) for name in ("native", "reference")]
        assert_bitwise_equal(*sums)


@pytest.mark.parametrize("layout", ["padded", "strided", "reversed", "row-major b"])
def test_any_layout_of_the_words_agrees(kernel, layout):
    a, b = matrices((E4M3, E4M3), 24, 48, 160, 3)
    views = {
        "padded": (np.pad(a.array, ((0, 0), (0, 9)))[:, :160], np.pad(b.array.T, ((0, 0), (0, 9)))[:, :160].T),
        "strided": (np.repeat(a.array, 2, 1)[:, ::2], np.repeat(b.array, 2, 0)[::2]),
        "reversed": (a.array[::-1], b.array[:, ::-1]),
        "row-major b": (np.asfortranarray(a.array), np.ascontiguousarray(b.array)),
    }
    left, right = (Bits(E4M3, view) for view in views[layout])
    sums = [mmaemu.accumulate(left, right, backend=name) for name in ("native", "reference")]
    assert_bitwise_equal(*sums)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("profile", [HOPPER, ADA])
def test_rows_and_columns_with_nan_and_infinities_agree(kernel, profile, pair):
    a, b = matrices(pair, 40, 64, 112, 5, special=True)
    agree(a, b, profile=profile, out_dtype="float32")
    scales = np.ones((40, 1), np.float32), np.ones((1, 64), np.float32)
    if pair[1] == E4M3:
        agree(
            a, b, *scales, profile=profile, out_dtype="bfloat16", bias=Bits("bfloat16", np.arange(64, dtype=np.uint16))
        )


SCHEMES = ("compute_type", "output_type", "inplace")


@pytest.mark.parametrize(("scheme", "timing"), list(product(SCHEMES, ("after_reduction", "before_reduction"))))
@pytest.mark.parametrize("out", ["float32", "bfloat16", E4M3])
def test_split_k_agrees(kernel, scheme, timing, out):
    profile = profiles.get(ADA).with_overrides({"gemm.scale_timing": timing})
    a, b = matrices((E4M3, E4M3), 20, 48, 464, 7)
    agree(a, b, np.float32(0.3), np.float32(1.7), profile=profile, splitk=(3, scheme), out_dtype=out)


ODD = np.array([
    0x3F800000, 0x3EAAAAAB, 0xBFB504F3, 0x00000001, 0x7F7FFFFF, 0x0DA24260, 0x58635FA9, 0x00000000, 0x80000000,
    0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x3C000000, 0x43E00000,
], np.uint32)  # fmt: skip
BIASES = np.array([0x3F81, 0xC2F7, 0, 0x8000, 1, 0x7F7F, 0x7F80, 0xFF80, 0xFFC1, 0xB9A0, 0x4380], np.uint16)


@pytest.mark.parametrize("out", ["float32", "bfloat16", "float16", E4M3, E5M2])
@pytest.mark.parametrize("order", ["combined", "a_then_b", "b_then_a"])
@pytest.mark.parametrize("add", ["fused", "separate"])
def test_the_epilogue_agrees_on_every_scale_bias_and_output(order, add, out):
    rules = {"gemm.scale_order": order, "gemm.bias_add": add}
    a, b = matrices((E4M3, E5M2), 33, 48, 64, 11)
    bias_type = "float16" if out == "float16" else "bfloat16"
    bias = None if out == "float32" else Bits(bias_type, np.resize(BIASES, 48))
    for policy, without in product(("infinity", "saturate"), (True, False)):
        more = {"gemm.wide_overflow": policy, "gemm.fp8_overflow": policy, "gemm.adds_without_bias": without}
        profile = profiles.get(HOPPER).with_overrides({**rules, **more})
        for index, scale in enumerate(ODD):
            scales = Bits("float32", np.array(scale)), Bits("float32", np.array(ODD[index * 7 % len(ODD)]))
            extra: dict[str, Any] = {"scale_result": np.float32(0.37)} if out in SHORT else {}
            agree(a, b, *scales, profile=profile, out_dtype=out, bias=bias if without else None, **extra)


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
    from mmaemu.model import epilogue, formats
    from mmaemu.model.epilogue import Factors

    ones = np.full((1, 1), 0x3F800000, np.uint32)
    a, b = matrices((E4M3, E5M2), acc.shape[0], 64, 16, 1)
    layout = plan_of(a, b, out_dtype=out)
    got = np.empty(acc.shape, layout.fmt_out.storage)
    native._finish(acc, Factors(ones, ones), layout, got)
    assert_bitwise_equal(got, epilogue.convert(acc, formats.get(out), layout.rule))


def plan_of(a, b, **options):
    from mmaemu import plan, request

    options = {"out_dtype": "float32", **options}
    return plan.make(request.build(a, b, ONE, ONE, **options))


@pytest.mark.parametrize(("profile", "m", "n", "k"), [
    (ADA, 70, 272, 1040), ("rtx4060-cublaslt12.8", 64, 128, 1024), (HOPPER, 64, 64, 208), (HOPPER, 40, 3072, 96),
    (NEWER, 33, 48, 272),
])  # fmt: skip
@pytest.mark.parametrize("fast", [False, True])
def test_row_wise_products_agree(kernel, profile, m, n, k, fast):
    a, b = matrices((E4M3, E4M3), m, n, k, m)
    random = np.random.default_rng(17)
    scale_a = Bits("float32", random.choice(ODD, (m, 1)))
    scale_b = Bits("float32", random.choice(ODD, (1, n)))
    options: dict[str, Any] = {"profile": profile, "use_fast_accum": fast, "out_dtype": "bfloat16"}
    agree(a, b, scale_a, scale_b, **options)
    agree(a, b, scale_a, scale_b, bias=Bits("bfloat16", random.choice(BIASES, n)), **options)


@pytest.mark.parametrize("kind", ["1x128 by 128x128", "128x128 by 1x128", "1x128 by 1x128"])
def test_block_wise_products_agree(kernel, kind):
    m, n, k = 140, 272, 400
    a, b = matrices((E4M3, E5M2), m, n, k, 19)
    random = np.random.default_rng(23)

    def scale(rows, columns):
        return random.choice(ODD[:9], (columns, rows)).T

    vector_a, vector_b = scale(m, 4), scale(n, 4).T
    scales = {
        "1x128 by 128x128": (vector_a, scale(4, 3)), "128x128 by 1x128": (scale(4, 2).T, vector_b),
        "1x128 by 1x128": (vector_a, vector_b),
    }[kind]  # fmt: skip
    bias = Bits("bfloat16", random.choice(BIASES, n))
    left, right = (Bits("float32", words_) for words_ in scales)
    agree(a, b, left, right, profile=NEWER)
    agree(a, b, left, right, profile=NEWER, out_dtype="bfloat16", bias=bias)


@bounded(80)
@given(st.data())
def test_random_calls_agree(data):
    draw = data.draw
    pair = draw(st.sampled_from(PAIRS))
    k = 16 * draw(st.integers(1, 14))
    rows = draw(words(SHORT[pair[0]], 3 * k)).reshape(3, k)
    columns = np.tile(draw(words(SHORT[pair[1]], 4 * k)).reshape(4, k), (8, 1))
    overrides = {
        "gemm.slow_chunks": draw(st.lists(st.integers(1, 200), max_size=3)),
        "gemm.scale_order": draw(st.sampled_from(["combined", "a_then_b", "b_then_a"])),
        "gemm.k_tile": draw(st.sampled_from([16, 64, 128])),
        "gemm.k_residue": draw(st.sampled_from(["last", "first"])),
    }
    scales = [Bits("float32", np.array(draw(st.sampled_from([int(w) for w in ODD])), np.uint32)) for _ in range(2)]
    agree(
        Bits(pair[0], rows), Bits(pair[1], columns.T), *scales,
        profile=profiles.get(draw(st.sampled_from([HOPPER, ADA]))).with_overrides(overrides),
        use_fast_accum=draw(st.booleans()), out_dtype=draw(st.sampled_from(["float32", "bfloat16", "float16", E4M3])),
        splitk=(draw(st.integers(1, 4)), draw(st.sampled_from(SCHEMES))),
    )  # fmt: skip


@pytest.mark.skipif(len(KERNELS) < 2, reason="needs a processor with AVX2 and FMA")
@pytest.mark.parametrize("profile", [HOPPER, ADA])
@pytest.mark.parametrize("pair", PAIRS)
def test_two_kernels_that_work_differently_agree_on_full_matrices(monkeypatch, profile, pair):
    a, b = matrices(pair, 260, 1040, 1040, 29)
    found = []
    for name in KERNELS:
        monkeypatch.setattr(native, "KERNEL", name)
        found.append(mmaemu.accumulate(a, b, profile=profile, use_fast_accum=True, backend="native"))
    assert_bitwise_equal(*found)


def test_the_largest_numbers_over_a_long_k_stay_exact(kernel):
    """The anchor's binade has room: K = 4,096 of the largest products of every sign."""
    for pair in PAIRS:
        top = [0x7E if dtype == E4M3 else 0x7B for dtype in pair]
        signs = np.random.default_rng(31).integers(0, 2, (2, 4, 4096)).astype(np.uint8) << 7
        a = Bits(pair[0], signs[0] | np.uint8(top[0]))
        b = Bits(pair[1], np.tile(signs[1] | np.uint8(top[1]), (4, 1)).T)
        for profile in (HOPPER, ADA):
            agree(a, b, profile=profile, use_fast_accum=True)


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


UNSUPPORTED = {
    "instruction.fraction_bits": 12, "instruction.group": 8, "instruction.order": "k_mod_4",
    "instruction.zero_products_align": True, "instruction.zero_accumulator_aligns": True,
    "instruction.min_exponent": -20, "instruction.result_rounding": "RNE", "instruction.accumulator_joins": "after",
}  # fmt: skip


@pytest.mark.parametrize("key", UNSUPPORTED)
def test_a_plan_that_the_kernels_do_not_run_goes_to_the_reference_and_says_so(key):
    profile = profiles.get(HOPPER).with_overrides({key: UNSUPPORTED[key]})
    a, b = matrices((E4M3, E4M3), 4, 16, 64, 47)
    trace = mmaemu.explain(a, b, out_dtype="float32", profile=profile)
    assert trace.call["backend"] == "reference" and "kernels are written for" in trace.call["backend_note"]
    assert "kernels are written for" in str(trace)
    with pytest.raises(BackendUnavailableError, match="kernels are written for"):
        mmaemu.scaled_mm(a, b, ONE, ONE, out_dtype="float32", profile=profile, backend="native")
    assert choose("auto", plan_of(a, b, profile=profile)).name == "reference"


def test_auto_is_native_for_fp8():
    a, b = matrices((E4M3, E4M3), 4, 16, 64, 53)
    assert mmaemu.explain(a, b, out_dtype="float32").call["backend"] == "native"
    assert mmaemu.backends_status()["native"].available
