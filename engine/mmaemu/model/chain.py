# SPDX-License-Identifier: Apache-2.0
"""A chain of instructions over K, each in groups in the hardware's order, the accumulator going along."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mmaemu.model import accumulator as acc
from mmaemu.model import ieee
from mmaemu.model.accumulator import Accumulator, Step
from mmaemu.model.alignment import without_zeros
from mmaemu.model.decode import Decoded, decode
from mmaemu.model.formats import AnyBits, Format
from mmaemu.profiles.instruction import StepRule


@dataclass(frozen=True)
class Group:
    """One step of a chain, as explain shows it."""

    k: tuple[int, ...]
    before: Accumulator
    step: Step


def operand(bits: AnyBits, fmt: Format, rule: StepRule) -> Decoded:
    """Decode an operand with K on axis 0, padded with zeros to whole instructions as the hardware pads."""
    short = -len(bits) % rule.instruction_k
    padded = np.concatenate([bits, np.zeros((short, *bits.shape[1:]), bits.dtype)]) if short else bits
    # In row-major order whatever the caller's strides are: the outputs, not K, must be the fastest axis.
    decoded = decode(np.ascontiguousarray(padded), fmt)
    return decoded if rule.zero_products_align else without_zeros(decoded)


def groups(length: int, rule: StepRule) -> list[list[tuple[int, ...]]]:
    """Which k each step takes, instruction by instruction, for `length` (padded) products."""
    return [
        [tuple(first + k for k in group) for group in instruction_groups(rule)]
        for first in range(0, length, rule.instruction_k)
    ]


def instruction_groups(rule: StepRule) -> list[list[int]]:
    ks = list(range(rule.instruction_k))
    if rule.order == "k_mod_4":
        ks.sort(key=lambda k: k % 4 >= 2)  # stable: lo = {0, 1}, then hi = {2, 3}, each ascending
    return [ks[first : first + rule.group] for first in range(0, len(ks), rule.group)]


def run(a: Decoded, b: Decoded, start: Accumulator, fmt: Format, rule: StepRule) -> Accumulator:
    """The accumulator after all of K (axis 0 of a and b, whole instructions)."""
    for current, _ in walk(a, b, start, fmt, rule):
        start = current
    return start


def walk(
    a: Decoded, b: Decoded, start: Accumulator, fmt: Format, rule: StepRule
) -> Iterator[tuple[Accumulator, Group]]:
    """The chain step by step: the accumulator so far, and the step that led to it.

    Where C is added after an instruction's steps, the last step's accumulator already holds that addition.
    """
    current = start
    for instruction in groups(len(a.sign), rule):
        joins_first = rule.accumulator_joins == "first_step"
        running = current if joins_first else acc.zeros(_shape(start), fmt)
        for position, ks in enumerate(instruction):
            index = _index(ks)
            before = running
            step = acc.step(a[index], b[index], before, fmt, rule)
            running = step.result
            if not joins_first and position == len(instruction) - 1:
                running = _add(running, current, fmt, rule)
            yield running, Group(ks, before, step)
        current = running


def _index(ks: tuple[int, ...]) -> slice | list[int]:
    """A slice where the group is contiguous: a view instead of a copy."""
    return slice(ks[0], ks[-1] + 1) if ks[-1] - ks[0] == len(ks) - 1 else list(ks)


def _add(x: Accumulator, y: Accumulator, fmt: Format, rule: StepRule) -> Accumulator:
    """x + y in the accumulator's format, RNE."""
    bits: NDArray[np.unsignedinteger] = ieee.add(acc.write(x, fmt, rule), acc.write(y, fmt, rule), fmt)
    return acc.read(bits, fmt)


def _shape(accumulator: Accumulator) -> tuple[int, ...]:
    return accumulator.value.sign.shape


def select(accumulator: Accumulator, index: object) -> Accumulator:
    """Part of the outputs."""
    flags = accumulator.flags
    return replace(accumulator, value=accumulator.value[index], flags=None if flags is None else flags[index])  # type: ignore[call-overload]
