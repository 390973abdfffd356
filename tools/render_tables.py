# SPDX-License-Identifier: Apache-2.0
"""The fact tables of docs/arithmetic.md, rendered from the profiles that the code reads.

python -m tools.render_tables           # rewrite the tables in the page
python -m tools.render_tables --check   # exit 1 if the page is not current
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from tools import pages

from mmaemu import profiles
from mmaemu.profiles import Fact, Instruction, contract, gemm, instruction, load

PAGE = pages.DOCS / "arithmetic.md"

STEP_FIELDS = (
    "instruction_k",
    "group",
    "order",
    "fraction_bits",
    "result_fraction_bits",
    "result_rounding",
    "accumulator_joins",
)


def parts() -> dict[str, str]:
    """What stands between the marks."""
    tables = [
        "### Steps of each instruction",
        meanings(instruction.FIELDS, STEP_FIELDS),
        step_table(),
        "### Limits, zeros and special values of each instruction",
        meanings(instruction.FIELDS, limit_fields()),
        limit_table(),
        "### Matrix products, one scale for each operand",
        gemm_table("gemm"),
        "### Matrix products, row-wise scales",
        gemm_table("row_wise"),
        "### Matrix products, blocks of 1x128 and 128x128",
        gemm_table("block_wise"),
        "### What torch accepts",
        contract_table(),
    ]
    return {"tables": "\n\n".join(tables)}


def step_table() -> str:
    """How each instruction groups, aligns and rounds: a row per instruction."""
    rows = []
    for family in profiles.preset_names():
        for row in load.family(family):
            cells = [cell(row.facts[field]) for field in STEP_FIELDS]
            rows.append([f"`{family}`", devices(family), f"{operands(row)}{mixed(row)}", row.accumulator, *cells])
    return pages.table(["preset", "profiles", "operands", "accumulator", *(f"`{f}`" for f in STEP_FIELDS)], rows)


def limit_table() -> str:
    """The remaining fields, each distinct value once, with the instructions that have it."""
    holders: dict[tuple[str, str, str], dict[str, list[Instruction]]] = {}
    for field in limit_fields():
        for family in profiles.preset_names():
            for row in load.family(family):
                fact = row.facts[field]
                key = (field, shown_field(field, fact), fact.source)
                holders.setdefault(key, {}).setdefault(family, []).append(row)
    rows = [[f"`{field}`", value, where(found), source] for (field, value, source), found in holders.items()]
    return pages.table(["field", "value", "where", "source"], rows)


def gemm_table(path: str) -> str:
    """What the library does around the instruction, with one column for each distinct table of `path`."""
    return table_of(path, load.gemm_facts, gemm.FIELDS)


def contract_table() -> str:
    """What versions of torch accept, a column each."""
    return table_of("contract", load.contract_facts, contract.FIELDS)


def table_of(key: str, facts_of: Callable[[str], dict[str, Fact]], fields: dict[str, str]) -> str:
    users: dict[str, list[str]] = {}
    for name in profiles.names():
        table = load.device_table(name).get(key)
        if table is not None:
            users.setdefault(table, []).append(name)
    facts = [facts_of(name) for name in users]
    heads = [f"`{table}`: {', '.join(names)}" for table, names in users.items()]
    rows = [
        [f"`{field}`", meaning, *(shown_field(field, found[field]) if field in found else "" for found in facts)]
        for field, meaning in fields.items()
        if any(field in found for found in facts)
    ]
    return pages.table(["field", "meaning", *heads], rows)


def limit_fields() -> tuple[str, ...]:
    return tuple(field for field in instruction.FIELDS if field not in STEP_FIELDS)


def devices(family: str) -> str:
    """Profiles that use an instruction family; those of devices that were not themselves recorded carry a mark."""
    tables = [load.device_table(name) for name in profiles.names()]
    users = [table for table in tables if family in table["instructions"]]
    return ", ".join(table["name"] + ("" if table["recorded_as"] else " *(not recorded itself)*") for table in users)


def operands(row: Instruction) -> str:
    return "/".join(row.formats)


def mixed(row: Instruction) -> str:
    """Whether a and b may be of different formats of the row."""
    if row.mixed is None or len(row.formats) == 1:
        return ""
    confidence = "" if row.mixed.confidence == "recorded" else f" *({row.mixed.confidence})*"
    return f", also mixed{confidence}" if row.mixed.value else ""


def where(found: dict[str, list[Instruction]]) -> str:
    """Families, and the rows of a family where not all of its rows are meant."""
    parts = []
    for family, rows in found.items():
        some = len(rows) < len(load.family(family))
        names = ", ".join(f"{operands(row)} to {row.accumulator}" for row in rows)
        parts.append(f"`{family}` ({names})" if some else f"`{family}`")
    return "; ".join(parts)


def shown_field(field: str, fact: Fact) -> str:
    return cell(fact, hexadecimal=field.startswith("nan"))


def cell(fact: Fact, hexadecimal: bool = False) -> str:
    """The value; its confidence unless recorded; the other candidates."""
    text = f"0x{fact.value:X}" if hexadecimal else plain(fact.value)
    notes: list[str] = [] if fact.confidence == "recorded" else [fact.confidence]
    others = [plain(other) for other in fact.candidates if other != fact.value]
    notes += [f"else {' or '.join(others)}"] if others else []
    return f"{text} *({'; '.join(notes)})*" if notes else text


def plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " then ".join(str(item) for item in value) if value else "none"
    return str(value)


def meanings(fields: dict[str, str], names: Iterable[str]) -> str:
    return "\n".join(f"- `{name}`: {fields[name]}" for name in names)


if __name__ == "__main__":
    sys.exit(pages.main(PAGE, parts, "python -m tools.render_tables"))
