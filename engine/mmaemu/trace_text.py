# SPDX-License-Identifier: Apache-2.0
"""A trace for people: plan, evidence, and each step as a line that can be followed with a pencil."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmaemu.trace import Trace
    from mmaemu.trace_compare import Comparison

_SOURCE_WIDTH = 100
_MOST_PARTS = 6
_WEAKEST_LAST = ("recorded", "reported", "source", "documented", "assumed", "override")


def render(trace: Trace) -> str:
    return "\n".join(_lines(trace))


def render_comparison(comparison: Comparison) -> str:
    return "\n".join(_comparison(comparison))


def _comparison(comparison: Comparison) -> Iterator[str]:
    call, names = comparison.call, comparison.profiles
    yield f"{names[0]} against {names[1]}: {call['m']} x {call['n']}, K = {call['k']}"
    yield ""
    yield "decisions that differ" if comparison.decisions else "no decision differs"
    for decision in comparison.decisions:
        yield f"  {decision['name']}"
        for name, side in zip(names, decision["sides"], strict=True):
            yield f"    {name:<26} {_decided(decision['name'], side)}"
    for cell in comparison.cells:
        yield ""
        yield from _parting(cell, names)


def _decided(name: str, side: dict[str, Any] | None) -> str:
    if side is None:
        return "plays no part"
    value = hex(side["value"]) if "nan" in name else str(side["value"])
    return f"{value} ({side['confidence']}: {_short(side['source'])})"


def _parting(cell: dict[str, Any], names: list[str]) -> Iterator[str]:
    parts = cell["parts"]
    where = f"cell ({cell['row']}, {cell['column']})"
    if parts is None:
        yield f"{where}: every word that both have is the same"
    elif parts["stage"] == "sum":
        first, last = parts["k"]
        yield f"{where}: they part in the sum of k = {first}..{last}"
        for name, word, steps in zip(names, parts["words"], parts["steps"], strict=True):
            yield f"  {name}: {_show(word)}"
            for step in steps:
                grid = f"k = {_ranges(step['k'])} on a grid of 2^{step['grid_exponent']}"
                yield f"    {grid}: {_losses(step)}, {_show(step['result'])}"
    else:
        stages = parts.get("names", ["accumulator"] * 2)
        yield f"{where}: they part {'in the epilogue' if 'names' in parts else 'where the sums are joined'}"
        for name, stage, word in zip(names, stages, parts["words"], strict=True):
            yield f"  {name}: {stage} {_show(word)}"
    for name, word, error in zip(names, cell["out"], cell["errors"], strict=True):
        yield f"  {name + ' returns':<36} {_show(word)}" + ("" if error is None else f", error {_float(error):.6g}")
    if cell["exact"] is not None:
        yield f"  {'exact':<36} {_float(cell['exact']):.17g}"


def _losses(step: dict[str, Any]) -> str:
    """How many terms lost something, and how much in all."""
    lost = [entry["lost"] for entry in step["lost"]]
    lost += [step["accumulator_lost"]] if step["accumulator_lost"] not in (None, [0, 0]) else []
    if not lost:
        return "nothing lost"
    return f"{len(lost)} of the terms lose {sum(map(_float, lost)):.6g}"


def _short(source: str) -> str:
    return source if len(source) <= _SOURCE_WIDTH else source[: _SOURCE_WIDTH - 3] + "..."


def _lines(trace: Trace) -> Iterator[str]:
    call, profile = trace.call, trace.profile
    mode = "fast" if call["use_fast_accum"] else "slow"
    types = f"{call['a']} x {call['b']} -> {call['out_dtype']}"
    bias = f", {call['bias']} bias" if call["bias"] else ""
    yield f"scaled_mm  {call['m']} x {call['n']}, K = {call['k']}, {types}, {mode} accumulation"
    yield f"scales     {call['scaling'].replace('_', ' ')}{bias}"
    yield f"profile    {profile['name']}: {profile['device']}, {profile['library']}"
    if profile["overrides"]:
        yield "overrides  " + ", ".join(f"{key} = {value}" for key, value in profile["overrides"].items())
    note = f" ({call['backend_note']})" if call["backend_note"] else ""
    yield f"engine     mmaemu {trace.engine_version}, backend {call['backend']}{note}"
    yield ""
    yield from _plan(trace.plan)
    for cell in trace.cells:
        yield ""
        yield from _cell(cell)


def _plan(plan: dict[str, Any]) -> Iterator[str]:
    yield f"plan: {plan['instruction']}, {plan['group']} products a step"
    parts = plan["parts"]
    for part in parts[:_MOST_PARTS]:
        if len(parts) > 1:
            (top, bottom), (left, right) = part["rows"], part["columns"]
            yield f"  rows {top}..{bottom}, columns {left}..{right}"
        for split in part["splits"]:
            lengths = [stop - start for start, stop in split["chunks"]]
            chunks = f"{len(lengths)} chunks of {_runs(lengths)}" if len(lengths) > 1 else "one chain"
            yield f"  {'  ' * (len(parts) > 1)}K {split['start']}..{split['stop']}: {chunks}"
        if part["padding"] and part is parts[0]:
            yield f"  with {part['padding']['count']} zeros before k = {part['padding']['at']}, to fill a tile"
    if len(parts) > _MOST_PARTS:
        yield f"  and {len(parts) - _MOST_PARTS} more parts of the result"
    if plan["scheme"]:
        yield f"  split-K partials joined by {plan['scheme']}"
    yield ""
    yield f"how well each decision is known: {_tally(plan['decisions'])}"
    width = max((len(decision["name"]) for decision in plan["decisions"]), default=0)
    for decision in plan["decisions"]:
        value = hex(decision["value"]) if "nan" in decision["name"] else str(decision["value"])
        others = f"; or {', '.join(map(str, decision['candidates']))}" if decision["candidates"] else ""
        source = _short(decision["source"])
        yield f"  {decision['name']:{width}}  {value:>14}  {decision['confidence']:10}  {source}{others}"


def _tally(decisions: list[dict[str, Any]]) -> str:
    """12 in all: 6 recorded, 2 documented, 4 assumed."""
    counts = {name: sum(d["confidence"] == name for d in decisions) for name in _WEAKEST_LAST}
    return f"{len(decisions)} in all: " + ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def _runs(lengths: list[int]) -> str:
    """128, 128, 64 as '2 x 128, 64'."""
    parts: list[tuple[int, int]] = []
    for length in lengths:
        if parts and parts[-1][1] == length:
            parts[-1] = (parts[-1][0] + 1, length)
        else:
            parts.append((1, length))
    return ", ".join(str(length) if count == 1 else f"{count} x {length}" for count, length in parts)


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    yield f"cell ({cell['row']}, {cell['column']}): {_show(cell['out'])}"
    for split in cell["splits"]:
        if len(cell["splits"]) > 1:
            yield f"  split K {split['start']}..{split['stop']}"
        for chunk in split["chunks"]:
            if len(split["chunks"]) > 1:
                yield f"  chunk K {chunk['start']}..{chunk['stop']}, from zero"
            for step in chunk["steps"]:
                yield from _step(step)
            if len(split["chunks"]) > 1:
                yield f"    chunk {_show(chunk['result'])}, float32 sum of chunks {_show(chunk['sum'])}"
        if len(cell["splits"]) > 1:
            yield f"    partial {_show(split['partial'])}"
    for index, total in enumerate(cell["reduction"]):
        yield f"  after split {index}: {_show(total)}"
    yield f"  accumulator {_show(cell['accumulator'])}"
    for step in cell["epilogue"]:
        yield f"  {step['step']:28} {_show(step)}"
    yield from _exact(cell["exact"])


def _step(step: dict[str, Any]) -> Iterator[str]:
    if not step["k"] and step["result"]["bits"] == step["accumulator"]["bits"]:
        return  # padding of the last instruction that changed nothing
    grid = step["grid_exponent"]
    yield f"    step k = {_ranges(step['k'])}: common exponent {step['common_exponent']}, grid 2^{grid}"
    acc = step["accumulator"]
    yield f"      {'accumulator':>19} {acc['bits']}                      kept {acc['kept']:>12}{_lost(acc['lost'])}"
    zeros = 0
    for term in step["terms"]:
        if term["product"] == [0, 0]:
            zeros += 1
            continue
        if term["product"] is None:
            yield f"      k {term['k']:>6}  {term['a']:>8} x {term['b']:<8}  NaN or infinite"
            continue
        product = f"{_float(term['product']):>16.9g}  exponent {term['exponent']:>4}"
        kept = f"kept {term['kept']:>12}{_lost(term['lost'])}"
        yield f"      k {term['k']:>6}  {term['a']:>4} x {term['b']:<4} {product}  {kept}"
    if zeros:
        yield f"      {zeros} zero product{'s' if zeros > 1 else ''}"
    yield f"      sum {step['sum']} * 2^{grid}, kept as {_show(step['rounded'])}"
    if step["result"] != step["rounded"]:
        yield f"      plus the accumulator: {_show(step['result'])}"


def _ranges(ks: list[int]) -> str:
    if not ks:
        return "padding"
    if ks == list(range(ks[0], ks[-1] + 1)):
        return f"{ks[0]}..{ks[-1]}"
    return ", ".join(map(str, ks))


def _lost(lost: list[int] | None) -> str:
    return "" if not lost or lost == [0, 0] else f"  lost {_float(lost):.6g}"


def _exact(exact: dict[str, Any]) -> Iterator[str]:
    if exact["result"] is None:
        yield "  exact: NaN or infinite operands"
        return
    yield f"  exact dot product {_float(exact['dot']):.17g}, exact result {_float(exact['result']):.17g}"
    if exact["error"] is not None:
        relative = exact["relative_error"]
        shown = "" if relative is None else f", relative {relative:.3g}"
        yield f"  error {_float(exact['error']):.6g}{shown}"


def _show(word: dict[str, Any]) -> str:
    value = word["value"]
    return f"{word['bits']} ({value if isinstance(value, str) else format(value, '.9g')})"


def _float(dyadic: list[int]) -> float:
    """Nearest double, for display; beyond its range, infinity or zero."""
    integer, exponent = dyadic
    try:
        return math.ldexp(integer, exponent)
    except OverflowError:
        return math.inf if integer > 0 else -math.inf
