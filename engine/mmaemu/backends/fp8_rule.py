# SPDX-License-Identifier: Apache-2.0
"""The rule of all fp8 instructions of Ada and Hopper with float32 accumulators, which fast kernels are made for."""

from __future__ import annotations

from functools import cache

from mmaemu.model import formats
from mmaemu.model.formats import Format
from mmaemu.profiles.instruction import StepRule

# The floor of the common exponent is out of reach of fp8 products.
_FIELDS = {
    "order": "sequential",
    "fraction_bits": 13,
    "result_fraction_bits": 13,
    "result_rounding": "RZ",
    "accumulator_joins": "first_step",
    "zero_products_align": False,
    "zero_accumulator_aligns": False,
}
_HIGHEST_FLOOR = -100


@cache
def applies(rule: StepRule, fmt_a: Format, fmt_b: Format) -> bool:
    """Whether these formats are multiplied by that rule, in groups of whatever size."""
    fp8 = fmt_a in formats.FP8 and fmt_b in formats.FP8 and rule.min_exponent <= _HIGHEST_FLOOR
    return (
        fp8
        and rule.instruction_k % rule.group == 0
        and all(getattr(rule, name) == value for name, value in _FIELDS.items())
    )
