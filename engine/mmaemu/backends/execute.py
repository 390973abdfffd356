# SPDX-License-Identifier: Apache-2.0
"""From a plan to its words: operands padded as the plan says, each part of the result by itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mmaemu.backends.interface import Backend, Progress
from mmaemu.model.epilogue import Factors
from mmaemu.model.formats import AnyBits
from mmaemu.plan import Padding, Plan, Range

_STEPS = 1000
"""Of a plan with several parts, progress is told in thousandths of the result."""


def accumulate(
    backend: Backend,
    a: AnyBits,
    b: AnyBits,
    factors: Factors,
    plan: Plan,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> AnyBits:
    """[M, N] float32 words before the epilogue; +0 everywhere for K = 0."""

    def run(left: AnyBits, right: AnyBits, own: Factors, part: Plan, told: Progress | None) -> AnyBits:
        return backend.accumulate(left, right, own, part, threads=threads, progress=told)

    return _by_parts(run, a, b, factors, plan, np.dtype(np.uint32), progress)


def multiply(
    backend: Backend,
    a: AnyBits,
    b: AnyBits,
    factors: Factors,
    plan: Plan,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> AnyBits:
    """[M, N] output words. K = 0 gives zeros whatever scales and bias are, as the library returns early."""

    def run(left: AnyBits, right: AnyBits, own: Factors, part: Plan, told: Progress | None) -> AnyBits:
        return backend.multiply(left, right, own, part, threads=threads, progress=told)

    return _by_parts(run, a, b, factors, plan, plan.fmt_out.storage, progress)


_Run = Callable[[AnyBits, AnyBits, Factors, Plan, Progress | None], AnyBits]


def _by_parts(
    run: _Run, a: AnyBits, b: AnyBits, factors: Factors, plan: Plan, dtype: np.dtype[np.unsignedinteger],
    progress: Progress | None,
) -> AnyBits:  # fmt: skip
    if 0 in (plan.m, plan.n, plan.k):
        return np.zeros((plan.m, plan.n), dtype)
    if len(plan.parts) == 1:
        padding = plan.padding
        return run(padded(a, padding, axis=1), padded(b, padding, axis=0), factors, plan, progress)
    out = np.empty((plan.m, plan.n), dtype)
    done = 0
    for part in plan.parts:
        rows, columns = slice(*part.rows), slice(*part.columns)
        size = (rows.stop - rows.start) * (columns.stop - columns.start)
        left, right = padded(a[rows], part.padding, axis=1), padded(b[:, columns], part.padding, axis=0)
        told = None if progress is None else _share(progress, done, size, out.size)
        out[rows, columns] = run(left, right, of_tile(factors, part.rows, part.columns), plan.only(part), told)
        done += size
    return out


def _share(progress: Progress, before: int, size: int, whole: int) -> Progress:
    def tell(done: int, total: int) -> None:
        progress(_STEPS * (before * total + size * done) // (whole * total), _STEPS)

    return tell


def padded(words: AnyBits, padding: Padding | None, axis: int) -> AnyBits:
    """The operand with the plan's zeros between its k."""
    if padding is None:
        return words
    shape = list(words.shape)
    shape[axis] += padding.count
    wide = np.zeros(shape, words.dtype, order="C" if axis == 1 else "F")
    head = [slice(None)] * 2
    tail, rest = list(head), list(head)
    head[axis], tail[axis] = slice(0, padding.at), slice(padding.at + padding.count, None)
    rest[axis] = slice(padding.at, None)
    wide[tuple(head)] = words[tuple(head)]
    wide[tuple(tail)] = words[tuple(rest)]
    return wide


def of_tile(factors: Factors, rows: Range, columns: Range) -> Factors:
    """The factors of a rectangle of the result."""

    def part(words: AnyBits | None, axis: int, span: Range) -> AnyBits | None:
        if words is None or words.shape[axis] == 1:
            return words
        return words[slice(*span)] if axis == 0 else words[:, slice(*span)]

    scale_a, scale_b = part(factors.scale_a, 0, rows), part(factors.scale_b, 1, columns)
    assert scale_a is not None and scale_b is not None
    return Factors(scale_a, scale_b, part(factors.bias, 1, columns), factors.scale_result)
