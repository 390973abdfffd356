# SPDX-License-Identifier: Apache-2.0
"""Two traces of one call side by side: which decisions differ, and at which step of a cell the words part.

Devices group K differently, so their steps do not pair up. What can be compared is a running sum over the same k: both
have one after k = 31, whether in one step of 32 or in two of 16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mmaemu.errors import InvalidInputError

if TYPE_CHECKING:
    from mmaemu.trace import Trace

SCHEMA = "mmaemu-comparison/1"
Json = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """What two traces differ in, in JSON's own types; `print(comparison)` shows it for people."""

    schema: str
    profiles: list[str]
    call: Json
    decisions: list[Json]
    """Decisions of unlike value: name, and for each side value, confidence and source, or null where it has none."""
    cells: list[Json]
    """For each cell that both traces hold: row, column, `parts` (where the words part, or null), out, exact, errors."""

    def to_dict(self) -> Json:
        return asdict(self)

    def __str__(self) -> str:
        from mmaemu import trace_text

        return trace_text.render_comparison(self)


def compare(one: Trace, other: Trace) -> Comparison:
    """The comparison of two traces of the same operands. InvalidInputError where sizes or operands differ."""
    for key in ("m", "n", "k", "a", "b"):
        if one.call[key] != other.call[key]:
            raise InvalidInputError.because(
                "traces", got=f"{key} {one.call[key]} and {other.call[key]}", wanted="one call"
            )
    others = {(cell["row"], cell["column"]): cell for cell in other.cells}
    pairs = [
        (cell, others[cell["row"], cell["column"]]) for cell in one.cells if (cell["row"], cell["column"]) in others
    ]
    return Comparison(
        schema=SCHEMA,
        profiles=[one.profile["name"], other.profile["name"]],
        call=one.call,
        decisions=list(_decisions(one.plan["decisions"], other.plan["decisions"])),
        cells=[_cell(*pair) for pair in pairs],
    )


def _decisions(one: list[Json], other: list[Json]) -> Iterator[Json]:
    sides = [{decision["name"]: decision for decision in decisions} for decisions in (one, other)]
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        found = [side.get(name) for side in sides]
        values = [None if decision is None else decision["value"] for decision in found]
        if values[0] != values[1]:
            yield {"name": name, "sides": [_side(decision) for decision in found]}


def _side(decision: Json | None) -> Json | None:
    return None if decision is None else {key: decision[key] for key in ("value", "confidence", "source")}


def _cell(one: Json, other: Json) -> Json:
    return {
        "row": one["row"],
        "column": one["column"],
        "parts": _where_they_part(one, other),
        "out": [one["out"], other["out"]],
        "exact": one["exact"]["result"],
        "errors": [one["exact"]["error"], other["exact"]["error"]],
    }


def _where_they_part(one: Json, other: Json) -> Json | None:
    """The first running sum over the same k, then the first step of the epilogue, whose words differ."""
    sides = [_running_sums(cell) for cell in (one, other)]
    agreed = -1
    for first, last in sorted(set(sides[0]) & set(sides[1]), key=lambda span: (span[1], -span[0])):
        words = [side[first, last]["word"] for side in sides]
        if words[0]["bits"] != words[1]["bits"]:
            steps = [
                [step for step in side[first, last]["steps"] if not step["k"] or max(step["k"]) > agreed]
                for side in sides
            ]
            return {"stage": "sum", "k": [first, last], "words": words, "steps": steps}
        agreed = last
    if one["accumulator"]["bits"] != other["accumulator"]["bits"]:
        return {"stage": "accumulator", "words": [one["accumulator"], other["accumulator"]]}
    for left, right in zip(one["epilogue"], other["epilogue"], strict=False):
        if left["step"] != right["step"] or left["bits"] != right["bits"]:
            return {"stage": "epilogue", "names": [left["step"], right["step"]], "words": [left, right]}
    return None


def _running_sums(cell: Json) -> dict[tuple[int, int], Json]:
    """(first k, last k) -> the word of the sum of these k and the steps that made it. K need not run in order."""
    found: dict[tuple[int, int], Json] = {}
    for split in cell["splits"]:
        seen: list[int] = []
        for number, chunk in enumerate(split["chunks"]):
            inside: list[int] = []
            steps: list[Json] = []
            for step in chunk["steps"]:
                inside += step["k"]
                steps.append(_brief(step))
                if inside:
                    found.setdefault(_span(inside), {"word": step["result"], "steps": list(steps)})
            seen += inside
            if number and seen:
                found.setdefault(_span(seen), {"word": chunk["sum"], "steps": steps})
    return {span: entry for span, entry in found.items() if span != (-1, -1)}


def _span(ks: list[int]) -> tuple[int, int]:
    """Where the k run through without a gap, their ends."""
    first, last = min(ks), max(ks)
    return (first, last) if last - first + 1 == len(ks) else (-1, -1)


def _brief(step: Json) -> Json:
    """What a reader of a comparison needs of a step: its k, its grid, and what did not fit on it."""
    lost = [{"k": term["k"], "lost": term["lost"]} for term in step["terms"] if term["lost"] not in (None, [0, 0])]
    kept = ("k", "common_exponent", "grid_exponent", "sum", "result")
    return {key: step[key] for key in kept} | {"lost": lost, "accumulator_lost": step["accumulator"]["lost"]}
