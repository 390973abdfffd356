# SPDX-License-Identifier: Apache-2.0
"""Operands that ordinary data never visits: wide exponents, cancellation, subnormals, zeros, the edge of overflow."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support.exact_oracle import LAYOUTS

Words = NDArray[Any]

STORAGE = {"e4m3": "u1", "e5m2": "u1", "f16": "<u2", "bf16": "<u2", "tf32": "<u4", "f32": "<u4"}
STYLES = ("any", "finite", "large", "tiny", "near one", "sparse")


def bounded(examples: int) -> settings:
    """Enough examples to mean something, few enough for two cores; time is bounded by their number alone."""
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )


def reshape(words: Words, fmt: str, style: str, choice: Words) -> Words:
    """Random words bent to a style; `choice` is one random byte for each word."""
    layout = LAYOUTS[fmt]
    low = layout.fraction + layout.unread
    fields = (1 << layout.exponent) - 1
    field = (words.astype(np.int64) >> low) & fields
    body = words.astype(np.int64) & ~(fields << low)
    if style == "any":
        return words
    if style == "large":
        field = fields - 1 - (choice % 3)
    elif style == "tiny":
        field = choice % 3 * (choice > 100)
    elif style == "near one":
        field = layout.bias - 2 + (choice % 5)
    elif layout.infinite:
        field = np.where(field == fields, fields - 1, field)
    if not layout.infinite:
        # All ones is the only NaN: clearing the last bit makes it a number.
        body = np.where((field == fields) & ((body & ((1 << low) - 1)) == (1 << low) - 1), body - 1, body)
    bent = (body | (field.astype(np.int64) << low)).astype(words.dtype)
    if style == "sparse":
        bent = np.where(choice < 128, (words & layout.sign).astype(words.dtype), bent)
    return bent


@st.composite
def words(draw: st.DrawFn, fmt: str, count: int, styles: tuple[str, ...] = STYLES) -> Words:
    """`count` words of one style."""
    style = draw(st.sampled_from(styles))
    size = count * np.dtype(STORAGE[fmt]).itemsize
    raw = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), STORAGE[fmt]).astype(STORAGE[fmt].lstrip("<"))
    choice = np.frombuffer(draw(st.binary(min_size=count, max_size=count)), "u1").astype(np.int64)
    return reshape(raw, fmt, style, choice)


@st.composite
def products(draw: st.DrawFn, fmt_a: str, fmt_b: str, rows: int, k: int) -> tuple[Words, Words]:
    """Operands [rows, k]; half of the time products come in pairs of opposite sign, with a few left over."""
    a = draw(words(fmt_a, rows * k)).reshape(rows, k)
    b = draw(words(fmt_b, rows * k)).reshape(rows, k)
    if draw(st.booleans()):
        half, keep = k // 2, draw(st.integers(0, 3))
        a, b = a.copy(), b.copy()
        first = slice(0, max(half - keep, 0))
        second = slice(k - half, k - half + max(half - keep, 0))
        a[:, second] = a[:, first] ^ a.dtype.type(LAYOUTS[fmt_a].sign)
        b[:, second] = b[:, first]
        swap = draw(st.permutations(range(k))) if k <= 16 else list(range(0, k, 2)) + list(range(1, k, 2))
        a, b = a[:, swap], b[:, swap]
    return a, b


def seeded(fmt: str, shape: tuple[int, ...], seed: int) -> Words:
    """Words of every style in turn, a row each, from a seed: many more than hypothesis can draw."""
    random = np.random.default_rng(seed)
    rows, rest = shape[0], int(np.prod(shape[1:], dtype=np.int64))
    out = np.empty((rows, rest), STORAGE[fmt].lstrip("<"))
    for row in range(rows):
        raw = random.integers(0, 1 << (8 * out.itemsize), rest, dtype=np.uint64).astype(out.dtype)
        out[row] = reshape(raw, fmt, STYLES[row % len(STYLES)], random.integers(0, 256, rest))
    return out.reshape(shape)
