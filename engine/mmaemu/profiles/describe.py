# SPDX-License-Identifier: Apache-2.0
"""Profiles as JSON: for `mmaemu profiles --json` and the service."""

from __future__ import annotations

from typing import Any

from mmaemu.profiles import contract, gemm, instruction
from mmaemu.profiles.facts import Fact
from mmaemu.profiles.profile import Profile


def summary(profile: Profile) -> dict[str, Any]:
    """A profile's head, as the service's list gives it too."""
    return {
        "name": profile.name,
        "device": profile.device,
        "arch": profile.arch,
        "sm_count": profile.sm_count,
        "library": profile.library,
        "models": models(profile),
        "presets": families(profile),
        "digest": profile.digest,
        "note": profile.note,
    }


def describe(profile: Profile) -> dict[str, Any]:
    """Everything: the head, the matrix-product facts and the instruction rows."""
    return {
        **summary(profile),
        "gemm": _table(profile.gemm_facts, gemm.FIELDS),
        "row_wise": _table(profile.row_wise_facts, gemm.FIELDS),
        "block_wise": _table(profile.block_wise_facts, gemm.FIELDS),
        "contract": _table(profile.contract_facts, contract.FIELDS),
        "instructions": [
            {
                "preset": row.family,
                "formats": list(row.formats),
                "accumulator": row.accumulator,
                "mixed": None if row.mixed is None else _fact(row.mixed),
                "facts": _facts(row.facts, instruction.FIELDS),
            }
            for row in profile.instructions
        ],
    }


def models(profile: Profile) -> list[str]:
    """What can be asked of the profile: products with each kind of scales, and single instructions."""
    found = {
        "scaled_mm": profile.gemm_facts,
        "row-wise": profile.row_wise_facts,
        "block-wise": profile.block_wise_facts,
    }
    return [name for name, facts in found.items() if facts] + ["mma"]


def families(profile: Profile) -> list[str]:
    return list(dict.fromkeys(row.family for row in profile.instructions))


def _table(facts: dict[str, Fact] | None, meanings: dict[str, str]) -> dict[str, Any] | None:
    return None if facts is None else _facts(facts, meanings)


def _facts(facts: dict[str, Fact], meanings: dict[str, str]) -> dict[str, Any]:
    return {name: {**_fact(fact), "meaning": meanings[name]} for name, fact in facts.items()}


def _fact(fact: Fact) -> dict[str, Any]:
    return {
        "value": fact.value,
        "confidence": fact.confidence,
        "source": fact.source,
        "candidates": list(fact.candidates),
    }
