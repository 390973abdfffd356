# SPDX-License-Identifier: Apache-2.0
"""Instructions that no preset has: rows of presets with fields changed."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from tests.support import exact_oracle as exact

from mmaemu import profiles
from mmaemu.profiles import Fact

# Formats and accumulator of the instruction that is changed, one for each shape of the arithmetic.
BASES = {
    "fp8 to f32": ("hopper-wgmma", "e4m3", "e5m2", "f32"),
    "fp8 to f16": ("ada", "e5m2", "e4m3", "f16"),
    "f16 to f32": ("hopper-mma", "f16", "f16", "f32"),
    "bf16 to f32": ("ampere", "bf16", "bf16", "f32"),
    "tf32 to f32": ("b200-mma", "tf32", "tf32", "f32"),
    "f16 to f16": ("v100", "f16", "f16", "f16"),
}


def changed(base, **values):
    family, fmt_a, fmt_b, acc = BASES[base]
    row = profiles.preset(family, fmt_a, fmt_b, acc)
    facts = {name: Fact(value, "override", "set by a test") for name, value in values.items()}
    return replace(row, facts={**row.facts, **facts})


def rules(acc):
    """Any rule that the schema admits, with no more result bits than the accumulator has."""
    return st.fixed_dictionaries(
        {
            "instruction_k": st.integers(1, 20),
            "group": st.integers(1, 12),
            "order": st.sampled_from(["sequential", "k_mod_4"]),
            "fraction_bits": st.integers(1, 28),
            "result_fraction_bits": st.integers(1, exact.LAYOUTS[acc].fraction),
            "result_rounding": st.sampled_from(["RZ", "RNE"]),
            "accumulator_joins": st.sampled_from(["first_step", "first_step", "after"]),
            "min_exponent": st.sampled_from([-1000, -133, -126, -40, -20, -14, -3, 0]),
            "zero_products_align": st.booleans(),
            "zero_accumulator_aligns": st.booleans(),
            "overflow": st.just("infinity"),
            "underflow_keeps_sign": st.booleans(),
            "nan": st.sampled_from([exact.NAN_WORDS[acc], 0x7E01 if acc == "f16" else 0x7FC01234]),
        }
    )
