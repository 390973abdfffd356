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
from mmaemu.profiles import gemm, load
from mmaemu.profiles.contract import Contract, contract_of
from mmaemu.profiles.facts import Fact
from mmaemu.profiles.gemm import GemmRule, rule_of
from mmaemu.profiles.instruction import Instruction

PATHS = {"gemm": "tensor-wise scales", "row_wise": "row-wise scales", "block_wise": "blocks of 1x128 and 128x128"}
"""The ways through the library that have rules of their own. Their names are the scopes of overrides."""


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
    tables: dict[str, str]
    """The table of each path that the profile models."""
    note: str
    row_wise_facts: dict[str, Fact] | None = None
    block_wise_facts: dict[str, Fact] | None = None
    contract_facts: dict[str, Fact] | None = None
    overrides: tuple[tuple[str, Any], ...] = ()

    @property
    def library(self) -> str:
        return self.tables.get("gemm", "instructions only")

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

    def path_facts(self, path: str) -> dict[str, Fact]:
        """The facts of one of PATHS. UnsupportedFeatureError where the profile has not modelled it."""
        if path == "gemm":
            return self.known_gemm_facts
        facts: dict[str, Fact] | None = getattr(self, f"{path}_facts")
        if facts is None:
            others = "`mmaemu profiles` lists what each profile models."
            raise UnsupportedFeatureError.because(
                "scale_a, scale_b", got=PATHS[path], wanted=f"a scaling that {self.name} models", hint=others
            )
        return facts

    def path(self, path: str) -> GemmRule:
        """The rules of one of PATHS."""
        return rule_of(self.path_facts(path))

    @cached_property
    def contract(self) -> Contract:
        """What the profile's version of torch accepts. UnsupportedFeatureError as for `gemm`."""
        if self.contract_facts is None:
            _ = self.known_gemm_facts
        assert self.contract_facts is not None, "a profile with products names a contract"
        return contract_of(self.contract_facts)

    def instruction_of(self, rule: GemmRule, fmt_a: str, fmt_b: str) -> Instruction:
        """The instruction that multiplies these formats with an f32 accumulator under `rule`."""
        rows = [row for row in self.instructions if row.family == rule.instruction]
        return pick(rows, fmt_a, fmt_b, "f32", self.name)

    def gemm_instruction(self, fmt_a: str, fmt_b: str) -> Instruction:
        """The instruction of tensor-wise products."""
        return self.instruction_of(self.gemm, fmt_a, fmt_b)

    def with_overrides(self, overrides: Mapping[str, Any]) -> Profile:
        """This profile with some values replaced: keys `gemm.FIELD`, `row_wise.FIELD` and `block_wise.FIELD` for the
        three kinds of scales, `contract.FIELD`, and `instruction.FIELD` for every instruction that accumulates in f32,
        as `scaled_mm` does."""
        changed = self
        for key, value in overrides.items():
            changed = changed._with(key, value)
        return changed

    def _with(self, key: str, value: Any) -> Profile:
        scope, _, field = key.partition(".")
        new = Fact(value, "override", "set by the caller")
        if scope in PATHS and scope in self._scopes() and field in gemm.FIELDS:
            load.check_gemm_value(field, value, key)
            table: dict[str, Any] = {f"{scope}_facts": {**self.path_facts(scope), field: new}}
            changed = replace(self, **table)
        elif scope == "contract" and field in self._scopes().get(scope, {}):
            load.check_contract_value(field, value, key)
            changed = replace(self, contract_facts={**(self.contract_facts or {}), field: new})
        elif scope == "instruction" and field in self.instructions[0].facts:
            load.check_instruction_value(field, value, formats.F32, key)
            rows = tuple(
                replace(row, facts={**row.facts, field: new}) if row.accumulator == formats.F32.name else row
                for row in self.instructions
            )
            changed = replace(self, instructions=rows)
        else:
            names = {scope: gemm.FIELDS if scope in PATHS else facts for scope, facts in self._scopes().items()}
            known = [f"{scope}.{name}" for scope, fields in names.items() for name in fields]
            raise InvalidInputError.because("overrides", got=repr(key)[:80], wanted="one of " + ", ".join(known))
        return replace(changed, overrides=(*self.overrides, (key, value)))

    def _scopes(self) -> dict[str, dict[str, Fact]]:
        found = {
            "gemm": self.gemm_facts,
            "row_wise": self.row_wise_facts,
            "block_wise": self.block_wise_facts,
            "contract": self.contract_facts,
            "instruction": self.instructions[0].facts,
        }
        return {scope: facts for scope, facts in found.items() if facts}

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
    tensor_wise, row_wise, block_wise = (table.get(path) for path in PATHS)
    return Profile(
        name=table["name"],
        device=table["device"],
        arch=table["arch"],
        sm_count=table.get("sm_count"),
        recorded_as=tuple(table["recorded_as"]),
        instructions=rows,
        gemm_facts=None if tensor_wise is None else load.gemm_facts(tensor_wise),
        tables={path: table[path] for path in PATHS if path in table},
        note=table.get("note", ""),
        row_wise_facts=None if row_wise is None else load.gemm_facts(row_wise),
        block_wise_facts=None if block_wise is None else load.gemm_facts(block_wise),
        contract_facts=None if tensor_wise is None else load.contract_facts(table["contract"]),
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
