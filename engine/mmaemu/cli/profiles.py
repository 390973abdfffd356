# SPDX-License-Identifier: Apache-2.0
"""`mmaemu profiles`: which devices there are, and every number of one with its source."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mmaemu import profiles
from mmaemu.cli.common import add_command, table
from mmaemu.profiles import Fact, Profile, contract, gemm, instruction
from mmaemu.profiles.describe import describe, families, models, summary

if TYPE_CHECKING:
    from mmaemu.cli.common import Commands


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "profiles",
        run,
        help="list the devices, or show every number of one with its source",
        description="List the profiles, or show one: every value with its confidence and source.\n\n"
        "confidence: recorded (reproduces hardware words that we hold), reported (hardware words published by\n"
        "others), source (read in public code), documented (said by the vendor), assumed (likeliest candidate).",
    )
    parser.add_argument("action", nargs="?", choices=["list", "show"], default="list")
    parser.add_argument("name", nargs="?", help="the profile to show")
    parser.add_argument("--json", action="store_true", help="machine-readable")


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "show":
        profile = profiles.get(arguments.name)
        print(json.dumps(describe(profile), indent=2) if arguments.json else "\n".join(_show(profile)))
        return 0
    listed = [profiles.get(name) for name in profiles.names()]
    if arguments.json:
        print(json.dumps([summary(profile) for profile in listed], indent=2))
        return 0
    rows = [
        [
            profile.name + (" *" if profile.name == profiles.default_name() else ""),
            profile.device,
            profile.arch,
            ", ".join(models(profile)),
            ", ".join(families(profile)),
        ]
        for profile in listed
    ]
    print(table(["profile", "device", "arch", "models", "instruction presets"], rows))
    print(
        "\n* the default; MMAEMU_PROFILE changes it. `mmaemu profiles show NAME` prints every number with its source."
    )
    return 0


def _show(profile: Profile) -> Iterator[str]:
    yield f"{profile.name}: {profile.device} ({profile.arch}), {profile.library}"
    if profile.note:
        yield profile.note
    if profile.gemm_facts is not None:
        yield "\nscaled_mm, one scale for each operand"
        yield _fact_table(profile.gemm_facts, gemm.FIELDS)
    if profile.row_wise_facts is not None:
        yield "\nscaled_mm, row-wise scales"
        yield _fact_table(profile.row_wise_facts, gemm.FIELDS)
    if profile.block_wise_facts is not None:
        yield "\nscaled_mm, block-wise scales"
        yield _fact_table(profile.block_wise_facts, gemm.FIELDS)
    if profile.contract_facts is not None:
        yield "\nwhat torch accepts"
        yield _fact_table(profile.contract_facts, contract.FIELDS)
    for row in profile.instructions:
        yield f"\n{row.family}: {' or '.join(row.formats)}, {row.accumulator} accumulator"
        extra = {} if row.mixed is None else {"mixed": row.mixed}
        yield _fact_table({**row.facts, **extra}, {**instruction.FIELDS, "mixed": "a and b of different formats"})


def _fact_table(facts: dict[str, Fact], meanings: dict[str, str]) -> str:
    rows = []
    for name, fact in facts.items():
        value = hex(fact.value) if name.startswith("nan") else str(fact.value)
        others = f" [or {', '.join(map(str, fact.candidates))}]" if fact.candidates else ""
        rows.append([f"  {name}", value, fact.confidence, fact.source + others])
        rows.append(["", "", "", f"  = {meanings[name]}"])
    return table(["  value of", "is", "confidence", "source"], rows)
