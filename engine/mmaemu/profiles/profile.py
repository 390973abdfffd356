# SPDX-License-Identifier: Apache-2.0
"""A profile: one device and library version, every number with its source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from mmaemu.errors import InvalidInputError, UnsupportedFeatureError
from mmaemu.model import formats
from mmaemu.profiles import load
from mmaemu.profiles.facts import Fact
from mmaemu.profiles.gemm import GemmRule, rule_of
from mmaemu.profiles.instruction import Instruction


@dataclass(frozen=True)
class Profile:
    """What one GPU, driven by one library version, does to a matrix product. Immutable."""

    name: str
    device: str
    arch: str
    sm_count: int | None
    recorded_as: tuple[str, ...]
    """The device's names in recordings."""
    instructions: tuple[Instruction, ...]
    gemm_facts: dict[str, Fact] | None
    """None for a profile that knows instructions only."""
    library: str
    note: str
    overrides: tuple[tuple[str, Any], ...] = ()

    @cached_property
    def gemm(self) -> GemmRule:
        """The rules of `scaled_mm`. UnsupportedFeatureError where the profile knows instructions only."""
        return rule_of(self.known_gemm_facts)

    @property
    def known_gemm_facts(self) -> dict[str, Fact]:
        if self.gemm_facts is None:
            raise UnsupportedFeatureError.because(
                "profile",
                got=f"{self.name}, which knows instructions only",
                wanted="a profile that models matrix products",
                hint="`mmaemu profiles` lists them; mmaemu.model.dot takes this one's instructions.",
            )
        return self.gemm_facts

    def gemm_instruction(self, fmt_a: str, fmt_b: str) -> Instruction:
        """The instruction that multiplies these formats with an f32 accumulator in `scaled_mm`."""
        rows = [row for row in self.instructions if row.family == self.gemm.instruction]
        return pick(rows, fmt_a, fmt_b, "f32", self.name)

    def with_overrides(self, overrides: Mapping[str, Any]) -> Profile:
        """This profile with some values replaced: keys `gemm.FIELD`, and `instruction.FIELD` for every instruction
        that accumulates in f32, as `scaled_mm` does."""
        changed = self
        for key, value in overrides.items():
            changed = changed._with(key, value)
        return changed

    def _with(self, key: str, value: Any) -> Profile:
        scope, _, field = key.partition(".")
        new = Fact(value, "override", "set by the caller")
        if scope == "gemm" and field in self.known_gemm_facts:
            load.check_gemm_value(field, value, key)
            changed = replace(self, gemm_facts={**self.known_gemm_facts, field: new})
        elif scope == "instruction" and field in self.instructions[0].facts:
            load.check_instruction_value(field, value, formats.F32, key)
            rows = tuple(
                replace(row, facts={**row.facts, field: new}) if row.accumulator == formats.F32.name else row
                for row in self.instructions
            )
            changed = replace(self, instructions=rows)
        else:
            known = [f"gemm.{name}" for name in self.gemm_facts or ()]
            known += [f"instruction.{name}" for name in self.instructions[0].facts]
            raise InvalidInputError.because("overrides", got=repr(key)[:80], wanted="one of " + ", ".join(known))
        return replace(changed, overrides=(*self.overrides, (key, value)))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content: two profiles with one digest give the same bits."""
        text = json.dumps(asdict(self), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


def pick(rows: list[Instruction], fmt_a: str, fmt_b: str, accumulator: str, where: str) -> Instruction:
    """The row that takes these formats, or UnsupportedFeatureError."""
    for row in rows:
        if row.takes(fmt_a, fmt_b, accumulator):
            return row
    known = sorted({f"{'|'.join(row.formats)} -> {row.accumulator}" for row in rows})
    raise UnsupportedFeatureError.because(
        "fmt_a, fmt_b, acc",
        got=f"{fmt_a} x {fmt_b} -> {accumulator}",
        wanted=f"what {where} models: {', '.join(known)}",
    )


def from_table(name: str) -> Profile:
    table = load.device_table(name)
    rows = tuple(row for family in table["instructions"] for row in load.family(family))
    if not table["recorded_as"]:
        rows = tuple(_borrowed(row) for row in rows)
    gemm = table.get("gemm")
    return Profile(
        name=table["name"],
        device=table["device"],
        arch=table["arch"],
        sm_count=table.get("sm_count"),
        recorded_as=tuple(table["recorded_as"]),
        instructions=rows,
        gemm_facts=None if gemm is None else load.gemm_facts(gemm),
        library="instructions only" if gemm is None else gemm,
        note=table.get("note", ""),
    )


def _borrowed(row: Instruction) -> Instruction:
    """The row as a device may have it that no recording names: what others recorded is an assumption here."""
    facts = {
        name: replace(fact, confidence="assumed", source=f"not recorded on this device; {fact.source}")
        if fact.confidence == "recorded"
        else fact
        for name, fact in row.facts.items()
    }
    return replace(row, facts=facts)
