# SPDX-License-Identifier: Apache-2.0
"""What one tensor-core instruction does, as data: the rows of profiles/data/instructions/*.toml."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

from mmaemu.profiles.facts import Fact

Order = Literal["sequential", "k_mod_4"]


@dataclass(frozen=True)
class StepRule:
    """The plain values that the arithmetic reads. Field meanings are documented in `FIELDS`."""

    instruction_k: int
    group: int
    order: Order
    fraction_bits: int
    result_fraction_bits: int
    result_rounding: Literal["RZ", "RNE"]
    accumulator_joins: Literal["first_step", "after"]
    min_exponent: int
    zero_products_align: bool
    zero_accumulator_aligns: bool
    overflow: Literal["infinity", "saturate"]
    underflow_keeps_sign: bool
    nan: int


FIELDS: dict[str, str] = {
    "instruction_k": "products of one instruction; longer K is a chain of instructions",
    "group": "products fused in one step",
    "order": "which k form a group: sequential, or k_mod_4 (first k mod 4 in {0, 1}, then {2, 3})",
    "fraction_bits": "bits kept below the largest exponent when the terms of a step are aligned",
    "result_fraction_bits": "fraction bits of a step's result",
    "result_rounding": "rounding of a step's result: RZ (toward zero) or RNE (nearest, ties to even)",
    "accumulator_joins": "first_step: C is one of the aligned terms; after: steps start at 0, C is added last, RNE",
    "min_exponent": "floor of the common exponent",
    "zero_products_align": "whether a product with a zero operand takes part in the common exponent",
    "zero_accumulator_aligns": "whether a zero accumulator takes part in the common exponent",
    "overflow": "result at or above 2^(max exponent + 1): infinity, or saturate at the largest finite number",
    "underflow_keeps_sign": "whether a negative sum that packs to zero gives -0 (true) or +0 (false)",
    "nan": "bit pattern of every NaN result",
}
"""Meaning of each field, in the order of StepRule; `mmaemu profiles show` prints it."""

CHOICES: dict[str, tuple[Any, ...]] = {
    "order": ("sequential", "k_mod_4"),
    "result_rounding": ("RZ", "RNE"),
    "accumulator_joins": ("first_step", "after"),
    "overflow": ("infinity", "saturate"),
    "zero_products_align": (True, False),
    "zero_accumulator_aligns": (True, False),
    "underflow_keeps_sign": (True, False),
}

assert tuple(FIELDS) == tuple(f.name for f in fields(StepRule))


@dataclass(frozen=True)
class Instruction:
    """One row: operand formats, accumulator format, and a Fact for each field of StepRule."""

    family: str
    formats: tuple[str, ...]
    accumulator: str
    facts: dict[str, Fact]
    mixed: Fact | None = None
    """Whether a and b may differ within `formats`, and how well that is known; None: they may not."""

    @cached_property
    def rule(self) -> StepRule:
        return StepRule(**{name: fact.value for name, fact in self.facts.items()})

    def takes(self, fmt_a: str, fmt_b: str, accumulator: str) -> bool:
        mixed_ok = fmt_a == fmt_b or (self.mixed is not None and bool(self.mixed.value))
        return accumulator == self.accumulator and fmt_a in self.formats and fmt_b in self.formats and mixed_ok
