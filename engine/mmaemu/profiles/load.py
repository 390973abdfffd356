# SPDX-License-Identifier: Apache-2.0
"""TOML tables to profiles, with every value checked: a malformed table never reaches the arithmetic."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from mmaemu.errors import InvalidInputError
from mmaemu.model import formats
from mmaemu.model.decode import NAN, decode
from mmaemu.model.formats import Format
from mmaemu.profiles import contract, gemm, instruction
from mmaemu.profiles.facts import CONFIDENCES, Fact
from mmaemu.profiles.instruction import Instruction

_DATA = resources.files("mmaemu.profiles") / "data"

_MAX_FRACTION_BITS = 30
_MAX_GROUP = 64
MAX_SPLITS = 1024

_NAN_FORMATS = {
    "nan_f32": (formats.F32,),
    "nan_16bit": (formats.F16, formats.BF16),
    "nan_fp8": (formats.E4M3, formats.E5M2),
}


def device_names() -> list[str]:
    return sorted(entry.name.removesuffix(".toml") for entry in (_DATA / "devices").iterdir())


def family_names() -> list[str]:
    return sorted(entry.name.removesuffix(".toml") for entry in (_DATA / "instructions").iterdir())


@cache
def device_table(name: str) -> Mapping[str, Any]:
    return _read("devices", name, "mmaemu-profile/1")


@cache
def instruction_table(family: str) -> Mapping[str, Any]:
    return _read("instructions", family, "mmaemu-instructions/1")


@cache
def family(name: str) -> tuple[Instruction, ...]:
    """The rows of one instruction family."""
    table = instruction_table(name)
    return tuple(_instruction(name, row, table["sources"]) for row in table["instruction"])


@cache
def gemm_facts(name: str) -> dict[str, Fact]:
    table = _read("gemm", name, "mmaemu-gemm/1")
    facts = _facts(table["gemm"], table["sources"], tuple(gemm.FIELDS), f"gemm/{name}", gemm.OPTIONAL)
    for field, fact in facts.items():
        check_gemm_value(field, fact.value, f"gemm/{name}.{field}")
    tiles = [field for field in ("tile_m", "tile_n", "ctas_per_sm") if field in facts]
    if facts["split_rule"].value == "stream_k" and len(tiles) < 3:
        got = f"stream_k with {', '.join(tiles) or 'no tile'}"
        raise InvalidInputError.because(f"gemm/{name}.split_rule", got=got, wanted="tile_m, tile_n and ctas_per_sm")
    return facts


@cache
def contract_facts(name: str) -> dict[str, Fact]:
    table = _read("contracts", name, "mmaemu-contract/1")
    facts = _facts(table["contract"], table["sources"], tuple(contract.FIELDS), f"contracts/{name}")
    for field, fact in facts.items():
        check_contract_value(field, fact.value, f"contracts/{name}.{field}")
    return facts


def check_contract_value(field: str, value: Any, where: str) -> None:
    """Raise InvalidInputError unless validation can act on `value`."""
    _check_choice(contract.CHOICES, field, value, where)
    if field == "scale_b_dimensions":
        _check_range(value, 0, 64, where)
    known = contract.LISTS.get(field)
    if known is not None and not (isinstance(value, list | tuple) and all(item in known for item in value)):
        raise InvalidInputError.because(where, got=repr(value)[:80], wanted=f"a list out of {', '.join(known)}")


def check_gemm_value(field: str, value: Any, where: str) -> None:
    """Raise InvalidInputError unless `value` is one that the code can act on."""
    _check_choice(gemm.CHOICES, field, value, where)
    if field in ("fast_chunks", "slow_chunks"):
        if not (isinstance(value, list | tuple) and all(_is_int(v) and v > 0 for v in value)):
            raise InvalidInputError.because(where, got=repr(value)[:80], wanted="a list of positive chunk lengths")
    elif field == "instruction":
        if value not in family_names():
            raise InvalidInputError.because(where, got=repr(value), wanted=f"one of {', '.join(family_names())}")
    elif field == "splits":
        _check_range(value, 1, MAX_SPLITS, where)
    elif field in ("tile_m", "tile_n", "ctas_per_sm"):
        _check_range(value, 1, 1 << 16, where)
    elif field in ("k_tile", "workspace_bytes"):
        _check_range(value, 1, 1 << 40, where)
    elif field in _NAN_FORMATS:
        for fmt in _NAN_FORMATS[field]:
            _check_nan(value, fmt, where)


def check_instruction_value(field: str, value: Any, accumulator: Format, where: str) -> None:
    """Raise InvalidInputError unless `value` keeps the integer arithmetic exact and fits the accumulator's format."""
    _check_choice(instruction.CHOICES, field, value, where)
    if field == "group":
        _check_range(value, 1, _MAX_GROUP, where)
    elif field == "instruction_k":
        _check_range(value, 1, 4 * _MAX_GROUP, where)
    elif field == "fraction_bits":
        # Terms are int32: a product is below 4 * 2^fraction_bits.
        _check_range(value, 1, _MAX_FRACTION_BITS - 2, where)
    elif field == "result_fraction_bits":
        _check_range(value, 1, accumulator.fraction_bits, where)
    elif field == "min_exponent":
        _check_range(value, -1000, 0, where)
    elif field == "nan":
        _check_nan(value, accumulator, where)


def _instruction(family_name: str, row: Mapping[str, Any], sources: Mapping[str, str]) -> Instruction:
    where = f"instructions/{family_name}"
    for key in ("formats", "accumulator"):
        if key not in row:
            raise InvalidInputError.because(f"{where}.{key}", got="nothing", wanted="the name of a format")
    accumulator = formats.get(row["accumulator"], f"{where}.accumulator")
    rest = {key: value for key, value in row.items() if key not in ("formats", "accumulator", "mixed")}
    facts = _facts(rest, sources, tuple(instruction.FIELDS), where)
    for field, fact in facts.items():
        check_instruction_value(field, fact.value, accumulator, f"{where}.{field}")
    names = tuple(formats.get(name, f"{where}.formats").name for name in row["formats"])
    mixed = _fact(row["mixed"], sources, f"{where}.mixed") if "mixed" in row else None
    return Instruction(family_name, names, accumulator.name, facts, mixed)


def _read(folder: str, name: str, schema: str) -> Mapping[str, Any]:
    table = tomllib.loads((_DATA / folder / f"{name}.toml").read_text("utf-8"))
    if table.get("schema") != schema or table.get("name") != name:
        raise InvalidInputError.because(f"{folder}/{name}", got=str(table.get("schema")), wanted=f"{schema} {name}")
    return table


def _facts(
    row: Mapping[str, Any],
    sources: Mapping[str, str],
    wanted: tuple[str, ...],
    where: str,
    optional: tuple[str, ...] = (),
) -> dict[str, Fact]:
    missing, extra = set(wanted) - set(row) - set(optional), set(row) - set(wanted)
    if missing or extra:
        raise InvalidInputError.because(
            where, got=f"missing {sorted(missing)}, extra {sorted(extra)}", wanted="each once"
        )
    return {name: _fact(row[name], sources, f"{where}.{name}") for name in wanted if name in row}


def _fact(entry: Any, sources: Mapping[str, str], where: str) -> Fact:
    if not isinstance(entry, Mapping) or "value" not in entry:
        got = "no value" if isinstance(entry, Mapping) else type(entry).__name__
        raise InvalidInputError.because(where, got=got, wanted="a table with value, confidence and source")
    confidence = entry.get("confidence")
    if confidence not in CONFIDENCES or confidence == "override":
        raise InvalidInputError.because(where, got=f"confidence {confidence!r}", wanted=f"one of {CONFIDENCES[:-1]}")
    if entry.get("source") not in sources:
        raise InvalidInputError.because(where, got=f"source {entry.get('source')!r}", wanted="a key of [sources]")
    return Fact(entry["value"], confidence, sources[entry["source"]], tuple(entry.get("candidates", ())))


def _check_choice(choices: Mapping[str, tuple[Any, ...]], field: str, value: Any, where: str) -> None:
    if field in choices and not any(
        value is choice or (type(value) is str and value == choice) for choice in choices[field]
    ):
        wanted = "one of " + ", ".join(str(choice) for choice in choices[field])
        raise InvalidInputError.because(where, got=repr(value)[:80], wanted=wanted)


def _check_range(value: Any, low: int, high: int, where: str) -> None:
    if not _is_int(value) or not low <= value <= high:
        raise InvalidInputError.because(where, got=repr(value)[:80], wanted=f"an integer from {low} to {high}")


def _check_nan(value: Any, fmt: Format, where: str) -> None:
    _check_range(value, 0, (1 << fmt.storage_bits) - 1, where)
    if decode(np.array([value], fmt.storage), fmt).kinds[0] != NAN:
        raise InvalidInputError.because(where, got=hex(value), wanted=f"a NaN of {fmt.torch_name}")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
