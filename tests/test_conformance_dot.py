# SPDX-License-Identifier: Apache-2.0
"""Every backend against the reference: chains of one instruction, of every preset and of rules that no preset has."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.conformance import ENGINES
from tests.support.exact_operands import bounded, products, seeded, words
from tests.support.rules import BASES, changed, rules

import mmaemu
from mmaemu import model, profiles
from mmaemu.backends.native import library
from mmaemu.model import formats
from mmaemu.profiles import load
from mmaemu.testing import assert_bitwise_equal

if not ENGINES:
    pytest.skip(f"needs the compiled kernels: {library.why_missing()}", allow_module_level=True)

ONE_EACH = list({engine.backend: engine for engine in reversed(ENGINES)}.values())
"""fp8's own kernels play no part in instructions."""
ROWS = [
    pytest.param(row, fmt_a, fmt_b, id=f"{row.family}-{fmt_a}-{fmt_b}-{row.accumulator}")
    for name in profiles.preset_names()
    for row in load.family(name)
    for fmt_a in row.formats
    for fmt_b in row.formats
    if row.takes(fmt_a, fmt_b, row.accumulator)
]


@pytest.fixture(params=ONE_EACH, ids=lambda engine: engine.backend)
def backend(request, monkeypatch):
    return request.param.use(monkeypatch).backend


def agree(backend, a, b, c, fmt_a, fmt_b, **options):
    want = model.dot(a, b, c, fmt_a, fmt_b, **options)
    assert_bitwise_equal(mmaemu.mma(a, b, c, fmt_a, fmt_b, backend=backend, **options), want)


def operands(row, fmt_a, fmt_b, count, k, seed):
    """Adversarial words of every kind, NaN and infinities among them, accumulators too."""
    random = np.random.default_rng(seed)
    a, b = (random.permutation(seeded(fmt, (count, k), seed + i)) for i, fmt in enumerate((fmt_a, fmt_b)))
    return a, b, random.permutation(seeded(row.accumulator, (count, 1), seed + 2))[:, 0]


@pytest.mark.parametrize(("row", "fmt_a", "fmt_b"), ROWS)
def test_every_preset_agrees(backend, row, fmt_a, fmt_b):
    for count, k in ((1, 1), (15, 7), (16, 32), (33, 64), (1000, 48), (2, 333)):
        a, b, c = operands(row, fmt_a, fmt_b, count, k, count + k)
        agree(backend, a, b, c, fmt_a, fmt_b, preset=row, acc=row.accumulator)


@pytest.mark.parametrize(("row", "fmt_a", "fmt_b"), ROWS)
def test_random_words_of_every_preset_agree(backend, row, fmt_a, fmt_b):
    """Uniform bits: in the 16-bit formats most products are far apart; K is long enough to chain."""
    random = np.random.default_rng(5)
    storage = {name: formats.get(name).storage for name in (fmt_a, fmt_b, row.accumulator)}
    a, b, c = (
        random.integers(0, 1 << 8 * storage[fmt].itemsize, shape, np.uint64).astype(storage[fmt])
        for fmt, shape in ((fmt_a, (4000, 40)), (fmt_b, (4000, 40)), (row.accumulator, 4000))
    )
    agree(backend, a, b, c, fmt_a, fmt_b, preset=row, acc=row.accumulator)


@pytest.mark.parametrize("base", BASES)
def test_random_rules_agree(backend, base):
    _, fmt_a, fmt_b, acc = BASES[base]

    @bounded(150)
    @given(
        rules(acc), st.sampled_from(["infinity", "saturate"]),
        st.integers(1, 40).flatmap(lambda k: products(fmt_a, fmt_b, 17, k)), words(acc, 17),
    )  # fmt: skip
    def check(values, overflow, pair, c):
        row = changed(base, **{**values, "overflow": overflow})
        agree(backend, pair[0], pair[1], c, fmt_a, fmt_b, preset=row, acc=acc)

    check()


def test_any_layout_and_thread_count_agree(backend):
    random = np.random.default_rng(7)
    a, b = random.integers(0, 256, (2, 6000, 128), np.uint64).astype(np.uint8)
    c = np.zeros(6000, np.uint32)
    want = model.dot(a, b, c, "e4m3", "e5m2", preset="ada")
    for threads in (1, 2, 5):
        got = mmaemu.mma(a, b, c, "e4m3", "e5m2", preset="ada", backend=backend, threads=threads)
        assert_bitwise_equal(got, want)
    got = mmaemu.mma(np.asfortranarray(a), b[:, ::-1][:, ::-1], c, "e4m3", "e5m2", preset="ada", backend=backend)
    assert_bitwise_equal(got, want)


def test_no_rows_give_no_words(backend):
    nothing = np.zeros((0, 32), np.uint8)
    got = mmaemu.mma(nothing, nothing, np.zeros(0, np.uint32), "e4m3", "e4m3", preset="ada", backend=backend)
    assert got.shape == (0,) and got.dtype == np.uint32
