# SPDX-License-Identifier: Apache-2.0
"""Profiles are data: every number has a source and a confidence, and a malformed table or override is named."""

from __future__ import annotations

import copy
import dataclasses

import pytest
from tests.support import exact_oracle as exact

from mmaemu import profiles
from mmaemu.errors import InvalidInputError, UnsupportedFeatureError
from mmaemu.model import formats
from mmaemu.profiles import gemm, instruction, load

ROWS = [
    pytest.param(row, id=f"{name}-{'-'.join(row.formats)}-{row.accumulator}")
    for name in profiles.preset_names()
    for row in load.family(name)
]
GEMM_TABLES = sorted({profiles.get(name).library for name in profiles.names()} - {"instructions only"})
OURS = "h100-pcie-cublaslt12.8"


@pytest.mark.parametrize("row", ROWS)
def test_every_instruction_fact_has_a_source_and_a_confidence(row):
    facts = [*row.facts.values(), *([row.mixed] if row.mixed else [])]
    assert all(fact.source.strip() and fact.confidence in profiles.CONFIDENCES[:-1] for fact in facts)


@pytest.mark.parametrize("table", GEMM_TABLES)
def test_every_gemm_fact_has_a_source_and_a_confidence(table):
    facts = load.gemm_facts(table).values()
    assert all(fact.source.strip() and fact.confidence in profiles.CONFIDENCES[:-1] for fact in facts)


@pytest.mark.parametrize("row", ROWS)
def test_only_an_assumed_instruction_fact_has_other_candidates(row):
    assert [n for n, f in row.facts.items() if f.candidates and f.confidence != "assumed"] == []


@pytest.mark.parametrize("table", GEMM_TABLES)
def test_candidates_of_a_gemm_fact_are_admissible_and_differ_from_its_value(table):
    for name, fact in load.gemm_facts(table).items():
        for candidate in fact.candidates:
            assert candidate != fact.value
            load.check_gemm_value(name, candidate, name)


@pytest.mark.parametrize("row", ROWS)
def test_the_nan_of_an_instruction_is_its_accumulators_one_nan(row):
    assert row.rule.nan == exact.NAN_WORDS[row.accumulator]


@pytest.mark.parametrize("row", ROWS)
def test_a_step_keeps_no_more_bits_than_the_accumulator_has(row):
    assert row.rule.result_fraction_bits <= exact.LAYOUTS[row.accumulator].fraction


@pytest.mark.parametrize("row", ROWS)
def test_groups_fill_an_instruction(row):
    assert row.rule.instruction_k % row.rule.group == 0


# Rows of the table of recordings: preset, formats, accumulator, group, fraction bits, result bits and rounding,
# order, and where the accumulator joins.
FP8 = ("e4m3", "e5m2")
TABLE = [
    ("v100", ("f16",), "f32", 4, 23, 23, "RZ", "sequential", "first_step"),
    ("v100", ("f16",), "f16", 4, 23, 10, "RNE", "sequential", "first_step"),
    ("ampere", ("f16", "bf16"), "f32", 8, 24, 23, "RZ", "sequential", "first_step"),
    ("ampere", ("f16",), "f16", 8, 24, 10, "RNE", "sequential", "first_step"),
    ("ampere", ("tf32",), "f32", 4, 24, 23, "RZ", "sequential", "first_step"),
    ("ada", ("f16", "bf16"), "f32", 8, 24, 23, "RZ", "sequential", "first_step"),
    ("ada", ("f16",), "f16", 8, 24, 10, "RNE", "sequential", "first_step"),
    ("ada", ("tf32",), "f32", 4, 24, 23, "RZ", "sequential", "first_step"),
    ("ada", FP8, "f32", 16, 13, 13, "RZ", "sequential", "first_step"),
    ("ada", FP8, "f16", 16, 13, 10, "RNE", "sequential", "first_step"),
    ("hopper-mma", ("f16", "bf16"), "f32", 16, 25, 23, "RZ", "sequential", "first_step"),
    ("hopper-mma", ("f16",), "f16", 16, 25, 10, "RNE", "sequential", "first_step"),
    ("hopper-wgmma", FP8, "f32", 32, 13, 13, "RZ", "sequential", "first_step"),
    ("hopper-mma", FP8, "f16", 16, 25, 10, "RNE", "k_mod_4", "after"),
    ("b200-mma", ("f16", "bf16"), "f32", 16, 25, 23, "RZ", "sequential", "first_step"),
    ("b200-mma", ("f16",), "f16", 16, 25, 10, "RNE", "sequential", "first_step"),
    ("b200-mma", FP8, "f16", 16, 25, 10, "RNE", "k_mod_4", "after"),
    ("b200-mma", FP8, "f32", 16, 25, 23, "RZ", "k_mod_4", "after"),
]
TF32_ON_HOPPER = ["hopper-mma", "b200-mma"]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]}-{'-'.join(row[1])}-{row[2]}")
def test_a_preset_covers_a_row_of_the_table_of_recordings(row):
    preset, names, acc, *wanted = row
    for name in names:
        rule = profiles.preset(preset, name, name, acc).rule
        got = [
            rule.group, rule.fraction_bits, rule.result_fraction_bits, rule.result_rounding, rule.order,
            rule.accumulator_joins,
        ]  # fmt: skip
        assert got == wanted, name


@pytest.mark.parametrize("preset", TF32_ON_HOPPER)
def test_tf32_on_hopper_and_blackwell_has_a_group_of_at_least_4_and_25_bits(preset):
    rule = profiles.preset(preset, "tf32", "tf32", "f32").rule
    assert (rule.group >= 4, rule.fraction_bits, rule.result_rounding) == (True, 25, "RZ")


RECORDED = [
    ("V100", {"v100"}), ("A100", {"ampere"}), ("A2", {"ampere"}), ("RTX 1000 Ada", {"ada"}), ("L40S", {"ada"}),
    ("H100", {"hopper-wgmma", "hopper-mma"}), ("H200", {"hopper-wgmma", "hopper-mma"}), ("B200", {"b200-mma"}),
]  # fmt: skip


@pytest.mark.parametrize(("device", "families"), RECORDED)
def test_a_recorded_device_has_profiles_with_its_instructions(device, families):
    found = [p for p in map(profiles.get, profiles.names()) if device in p.recorded_as]
    assert found and all({row.family for row in profile.instructions} == families for profile in found)


@pytest.mark.parametrize("preset", ["ada", "hopper-wgmma", "hopper-mma", "b200-mma"])
def test_mixed_fp8_formats_are_marked_as_assumed(preset):
    rows = [row for row in load.family(preset) if row.formats == FP8]
    assert [row.mixed.confidence for row in rows if row.mixed] == ["assumed"] * len(rows)


def test_a_pair_of_different_16_bit_formats_is_not_modelled():
    with pytest.raises(UnsupportedFeatureError):
        profiles.preset("ada", "f16", "bf16", "f32")


BAD_OVERRIDES = [
    ("gemm.slow_chunks", [0]), ("gemm.slow_chunks", 64), ("gemm.slow_chunks", [64.0]), ("gemm.fast_chunks", [-1]),
    ("gemm.slow_chunks", [True]), ("gemm.k_tile", 0), ("gemm.k_tile", "64"), ("gemm.k_tile", True), ("gemm.splits", 0),
    ("gemm.splits", 1.0), ("gemm.split_scheme", "atomic"), ("gemm.split_layout", "floor"), ("gemm.split_layout", None),
    ("gemm.scale_order", "a"), ("gemm.scale_timing", ""), ("gemm.instruction", "hopper"), ("gemm.nan_f32", -1),
    ("gemm.nan_f32", 1 << 32), ("gemm.wide_overflow", "nan"), ("gemm.fp8_overflow", True), ("gemm.workspace_bytes", 0),
    ("gemm.scale_result_on_wide_output", "apply"),
    ("instruction.group", 0), ("instruction.group", 65), ("instruction.group", "16"), ("instruction.group", True),
    ("instruction.instruction_k", 0), ("instruction.instruction_k", 257), ("instruction.fraction_bits", 0),
    ("instruction.fraction_bits", 29), ("instruction.fraction_bits", 13.0), ("instruction.result_fraction_bits", 0),
    ("instruction.result_fraction_bits", 24), ("instruction.result_rounding", "RTZ"), ("instruction.order", "random"),
    ("instruction.accumulator_joins", "last"), ("instruction.min_exponent", 1), ("instruction.min_exponent", -1001),
    ("instruction.zero_products_align", 1), ("instruction.zero_accumulator_aligns", "yes"), ("instruction.nan", -1),
    ("instruction.overflow", "nan"), ("instruction.underflow_keeps_sign", 0),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), BAD_OVERRIDES)
def test_a_malformed_override_is_named(key, value):
    with pytest.raises(InvalidInputError) as caught:
        profiles.get(OURS).with_overrides({key: value})
    assert caught.value.field == key


@pytest.mark.parametrize("key", ["gemm.chunk", "instruction.k", "slow_chunks", "gemm", "", "device.name"])
def test_an_unknown_override_says_which_there_are(key):
    with pytest.raises(InvalidInputError, match=r"gemm\.slow_chunks.*instruction\.fraction_bits"):
        profiles.get(OURS).with_overrides({key: 1})


def test_an_override_is_marked_as_the_callers():
    changed = profiles.get(OURS).with_overrides({"gemm.slow_chunks": [64], "instruction.fraction_bits": 14})
    rows = [row.facts["fraction_bits"] for row in changed.instructions if row.accumulator == "f32"]
    assert {fact.confidence for fact in (changed.known_gemm_facts["slow_chunks"], *rows)} == {"override"}


def test_an_override_leaves_f16_accumulators_alone():
    """scaled_mm accumulates in f32; 20 fraction bits would be more than f16 has."""
    changed = profiles.get(OURS).with_overrides({"instruction.result_fraction_bits": 20})
    kept = {row.accumulator: row.rule.result_fraction_bits for row in changed.instructions}
    assert kept == {"f32": 20, "f16": 10}


def test_an_override_leaves_the_original_alone():
    before = profiles.get(OURS).digest
    profiles.get(OURS).with_overrides({"gemm.slow_chunks": [64]})
    assert profiles.get(OURS).digest == before


def test_an_override_changes_the_digest():
    assert profiles.get(OURS).with_overrides({"gemm.slow_chunks": [64]}).digest != profiles.get(OURS).digest


def test_no_two_profiles_share_a_digest():
    digests = [profiles.get(name).digest for name in profiles.names()]
    assert len(set(digests)) == len(digests)


def test_every_bound_of_the_schema_is_admitted():
    bounds = {
        "group": (1, 64), "instruction_k": (1, 256), "fraction_bits": (1, 28), "result_fraction_bits": (1, 23),
        "min_exponent": (-1000, 0), "nan": (0x7F800001, (1 << 32) - 1),
    }  # fmt: skip
    for field, values in bounds.items():
        for value in values:
            load.check_instruction_value(field, value, formats.F32, field)


def test_a_profile_splits_no_further_than_a_caller_may():
    with pytest.raises(InvalidInputError, match="from 1 to 1024"):
        profiles.get(OURS).with_overrides({"gemm.splits": 1025})


def test_a_nan_pattern_has_to_be_a_nan():
    for key, value in {"instruction.nan": 0x7F800000, "gemm.nan_16bit": 0x7F80, "gemm.nan_fp8": 0x7E}.items():
        with pytest.raises(InvalidInputError, match="a NaN of"):
            profiles.get(OURS).with_overrides({key: value})


def test_a_result_has_no_more_bits_than_its_accumulator():
    with pytest.raises(InvalidInputError, match="from 1 to 10"):
        load.check_instruction_value("result_fraction_bits", 11, formats.F16, "field")


@pytest.mark.parametrize("name", ["", "h100", "H200", "../devices/h200", "h200.toml"])
def test_an_unknown_profile_names_the_known_ones(name):
    with pytest.raises(InvalidInputError, match="h200"):
        profiles.get(name)


def test_an_unknown_preset_names_the_known_ones():
    with pytest.raises(InvalidInputError, match="hopper-wgmma"):
        profiles.preset("hopper", "e4m3", "e4m3", "f32")


def test_a_profile_passes_through():
    profile = profiles.get(OURS)
    assert profiles.get(profile) is profile


def test_the_environment_names_the_default_profile(monkeypatch):
    monkeypatch.setenv("MMAEMU_PROFILE", "l40s")
    assert profiles.get().name == "l40s"


def test_the_default_profile_exists():
    assert profiles.DEFAULT in profiles.names()


def test_a_profile_of_instructions_only_refuses_matrix_products():
    with pytest.raises(UnsupportedFeatureError) as caught:
        _ = profiles.get("b200").gemm
    assert caught.value.field == "profile"


def test_every_field_of_a_rule_has_a_meaning():
    fields = [f.name for cls in (gemm.GemmRule, instruction.StepRule) for f in dataclasses.fields(cls)]
    meanings = gemm.FIELDS | instruction.FIELDS
    assert [name for name in fields if not meanings.get(name, "").strip()] == []


def spoil(**changes):
    """The Ada table with its first row changed; None takes a field away."""
    table = copy.deepcopy(dict(load.instruction_table("ada")))
    row = table["instruction"][0]
    for field, value in changes.items():
        if value is None:
            del row[field]
        else:
            row[field] = value
    return table


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"group": {"value": 0, "confidence": "recorded", "source": "rec-f16"}}, "instructions/ada.group"),
        ({"group": {"value": 8, "confidence": "certain", "source": "rec-f16"}}, "instructions/ada.group"),
        ({"group": {"value": 8, "confidence": "override", "source": "rec-f16"}}, "instructions/ada.group"),
        ({"group": {"value": 8, "source": "rec-f16"}}, "instructions/ada.group"),
        ({"group": {"value": 8, "confidence": "recorded", "source": "hearsay"}}, "instructions/ada.group"),
        ({"group": {"value": 8, "confidence": "recorded"}}, "instructions/ada.group"),
        ({"nan": None}, "instructions/ada"),
        ({"colour": {"value": 1, "confidence": "recorded", "source": "rec-f16"}}, "instructions/ada"),
        ({"formats": ["f8"]}, "instructions/ada.formats"),
        ({"group": {"confidence": "recorded", "source": "rec-f16"}}, "instructions/ada.group"),
        ({"group": 8}, "instructions/ada.group"),
        ({"formats": None}, "instructions/ada.formats"),
        ({"accumulator": None}, "instructions/ada.accumulator"),
        ({"accumulator": "f64"}, "instructions/ada.accumulator"),
    ],
)  # fmt: skip
def test_a_malformed_instruction_table_is_named(monkeypatch, changes, field):
    table = spoil(**changes)
    monkeypatch.setattr(load, "instruction_table", lambda name: table)
    with pytest.raises(InvalidInputError) as caught:
        load.family.__wrapped__("ada")
    assert caught.value.field == field


@pytest.mark.parametrize("line", ['schema = "mmaemu-gemm/2"', 'name = "other"'])
def test_a_table_of_another_schema_or_name_is_refused(monkeypatch, tmp_path, line):
    name = GEMM_TABLES[0]
    key = line.split()[0]
    lines = (load._DATA / "gemm" / f"{name}.toml").read_text("utf-8").splitlines()
    (tmp_path / "gemm").mkdir()
    spoiled = "\n".join(line if old.startswith(f"{key} =") else old for old in lines)
    (tmp_path / "gemm" / f"{name}.toml").write_text(spoiled, "utf-8")
    monkeypatch.setattr(load, "_DATA", tmp_path)
    with pytest.raises(InvalidInputError) as caught:
        load.gemm_facts.__wrapped__(name)
    assert caught.value.field == f"gemm/{name}"


@pytest.mark.parametrize("name", profiles.names())
def test_recorded_means_recorded_on_this_device(name):
    """A device without recordings of its own may share another's arithmetic, but then it is assumed."""
    profile = profiles.get(name)
    found = {fact.confidence for row in profile.instructions for fact in row.facts.values()}
    assert ("recorded" in found) == bool(profile.recorded_as)
