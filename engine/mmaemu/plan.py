# SPDX-License-Identifier: Apache-2.0
"""Stage 3: what will be summed in which order. Shapes, formats and the profile decide; values play no part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmaemu import cutlass_sm90, scaling, stream_k
from mmaemu.errors import InvalidInputError
from mmaemu.model import formats
from mmaemu.model.formats import Format
from mmaemu.profiles import Fact, GemmRule, Instruction
from mmaemu.request import Request

Range = tuple[int, int]


@dataclass(frozen=True)
class Split:
    """One range of K that is summed on its own; `chunks` restart from zero and join in float32."""

    start: int
    stop: int
    chunks: tuple[Range, ...]

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """[chunks, 2]: where each starts and stops."""
        return np.array(self.chunks, np.int64)


@dataclass(frozen=True)
class Padding:
    """Zeros between two k of the operands: `count` of them before k = `at`. A tail of K that is processed first has
    them behind it, so that it fills a tile."""

    at: int
    count: int


@dataclass(frozen=True)
class Part:
    """A rectangle of the result whose outputs are summed alike. Splits and chunks count the padded K."""

    rows: Range
    columns: Range
    splits: tuple[Split, ...]
    padding: Padding | None = None


@dataclass(frozen=True)
class Decision:
    """One choice on the way from shapes to bits, and how well it is known."""

    name: str
    value: Any
    confidence: str
    source: str
    candidates: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A matrix product laid out: parts of the result with their splits of K and chunks, the instruction that chains
    each chunk, the epilogue's rules, and every decision that led here.

    Parts cover the result without overlap. `rule.scale_order` is one that the epilogue can follow as it stands.
    """

    m: int
    n: int
    k: int
    fmt_a: Format
    fmt_b: Format
    fmt_out: Format
    scaling: str
    instruction: Instruction
    rule: GemmRule
    parts: tuple[Part, ...]
    scheme: str
    decisions: tuple[Decision, ...]

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits of the first part: of every output, where the parts are one."""
        return self.parts[0].splits

    @property
    def padding(self) -> Padding | None:
        return self.parts[0].padding

    @property
    def scales_partials(self) -> bool:
        """True where scale_a and scale_b apply to split-K partials instead of in the epilogue."""
        return len(self.splits) > 1 and self.rule.scale_timing == "before_reduction" and not self.scales_chunks

    @property
    def scales_chunks(self) -> bool:
        """True where each chunk is scaled as it joins the sum."""
        return self.rule.chunk_join == "scaled_fma"

    @property
    def scales_before_epilogue(self) -> bool:
        """True where both scales are part of the accumulator, and the epilogue must leave them out."""
        return self.scales_partials or self.scales_chunks

    def block_of(self, k: int) -> int:
        """The block of scales that position k lies in."""
        return k // scaling.BLOCK

    @property
    def macs(self) -> int:
        return self.m * self.n * self.k

    def part_of(self, i: int, j: int) -> Part:
        """The part that output (i, j) lies in."""
        return next(
            part for part in self.parts if part.rows[0] <= i < part.rows[1] and part.columns[0] <= j < part.columns[1]
        )

    def only(self, part: Part) -> Plan:
        """The plan of one part as a product of its own."""
        m, n = part.rows[1] - part.rows[0], part.columns[1] - part.columns[0]
        return replace(self, m=m, n=n, parts=(replace(part, rows=(0, m), columns=(0, n)),))


def make(request: Request) -> Plan:
    """The plan of a validated request. UnsupportedFeatureError where the profile does not model it."""
    (m, k), n = request.a.shape, request.b.shape[1]
    kind = scaling.of(request)
    path = scaling.PATHS[kind]
    facts = request.profile.path_facts(path)
    rule = _resolved(request.profile.path(path), kind, m, n)
    fmt_a, fmt_b, fmt_out = (formats.get(name) for name in (request.a.dtype, request.b.dtype, request.out_dtype))
    instruction = request.profile.instruction_of(rule, fmt_a.name, fmt_b.name)
    _, scheme = request.splitk or (0, rule.split_scheme)
    parts = _parts(request, rule, m, n, k)
    _check_blocks(kind, rule, parts)
    decisions = _decisions(request, kind, facts, rule, instruction, parts, fmt_out)
    return Plan(m, n, k, fmt_a, fmt_b, fmt_out, kind, instruction, rule, parts, scheme, decisions)


def _resolved(rule: GemmRule, kind: str, m: int, n: int) -> GemmRule:
    """The rule with a scale order that no longer depends on the call."""
    if rule.scale_order == "cutlass_sm90":
        return replace(rule, scale_order="b_then_a" if cutlass_sm90.transposes(m, n) else "a_then_b")
    if rule.scale_order == "vector_first":
        return replace(rule, scale_order="b_then_a" if kind == scaling.BLOCK_128x128_1x128 else "a_then_b")
    return rule


def _check_blocks(kind: str, rule: GemmRule, parts: Sequence[Part]) -> None:
    """Overrides can ask for what has no meaning: chunk scales without blocks, or a chunk across two blocks."""
    blocks = kind in scaling.BLOCKS_OF_128
    if blocks != (rule.chunk_join == "scaled_fma"):
        wanted = "scaled_fma for block-wise scales, add for all others"
        raise InvalidInputError.because("chunk_join", got=f"{rule.chunk_join} with {kind} scales", wanted=wanted)
    chunks = [chunk for part in parts for split in part.splits for chunk in split.chunks] if blocks else []
    crossing = [chunk for chunk in chunks if chunk[0] // scaling.BLOCK != (chunk[1] - 1) // scaling.BLOCK]
    if crossing or (blocks and any(part.padding for part in parts)):
        got = f"a chunk from {crossing[0][0]} to {crossing[0][1]}" if crossing else "k_residue first"
        raise InvalidInputError.because("chunks", got=got, wanted=f"chunks within blocks of {scaling.BLOCK}")


def _parts(request: Request, rule: GemmRule, m: int, n: int, k: int) -> tuple[Part, ...]:
    lengths = rule.fast_chunks if request.use_fast_accum else rule.slow_chunks
    if request.splitk is not None or rule.split_rule == "fixed":
        count = rule.splits if request.splitk is None else request.splitk[0]
        ranges = split_ranges(k, count, rule.k_tile, rule.split_layout)
        return (_part((0, m), (0, n), ranges, k, rule, lengths),)
    shared = _stream_k(request, rule, m, n, k)
    tile = (rule.tile_m, rule.tile_n)
    return tuple(
        _part(rows, columns, _cut(k, cuts, rule.k_tile), k, rule, lengths)
        for rows, columns, cuts in rectangles(m, n, tile, shared)
    ) or (_part((0, m), (0, n), _cut(k, (), rule.k_tile), k, rule, lengths),)


def _stream_k(request: Request, rule: GemmRule, m: int, n: int, k: int) -> dict[tuple[int, int], stream_k.Cuts]:
    profile = request.profile
    if profile.sm_count is None or 0 in (rule.tile_m, rule.tile_n, rule.ctas_per_sm):
        got = f"stream_k without {'the number of multiprocessors' if profile.sm_count is None else 'a tile'}"
        raise InvalidInputError.because("split_rule", got=got, wanted="tile_m, tile_n, ctas_per_sm and sm_count")
    return stream_k.tile_splits(
        m, n, k,
        sm_count=profile.sm_count, ctas_per_sm=rule.ctas_per_sm, tile=(rule.tile_m, rule.tile_n), k_tile=rule.k_tile,
    )  # fmt: skip


def _part(rows: Range, columns: Range, ranges: Sequence[Range], k: int, rule: GemmRule, lengths: Sequence[int]) -> Part:
    padding = None
    residue = k % rule.k_tile
    if rule.k_residue == "first" and residue and ranges:
        start, _ = ranges[-1]
        padding = Padding(start + residue, rule.k_tile - residue)
        ranges = [*ranges[:-1], (start, k + padding.count)]
    splits = tuple(Split(start, stop, chunk_ranges(start, stop, lengths)) for start, stop in ranges)
    return Part(rows, columns, splits, padding)


def _cut(k: int, cuts: Sequence[int], tile: int) -> list[Range]:
    edges = [0, *(cut * tile for cut in cuts), k]
    return [(start, stop) for start, stop in zip(edges, edges[1:], strict=False) if stop > start]


def rectangles(
    m: int, n: int, tile: tuple[int, int], cuts: Mapping[tuple[int, int], stream_k.Cuts]
) -> list[tuple[Range, Range, stream_k.Cuts]]:
    """The result in as few rectangles of tiles with equal cuts as joining neighbours gives."""
    tiles_m, tiles_n = -(-m // tile[0]), -(-n // tile[1])
    found: list[tuple[Range, Range, stream_k.Cuts]] = []
    open_rows: tuple[int, list[tuple[Range, stream_k.Cuts]]] = (0, [])
    for row in range(tiles_m + 1):
        runs: list[tuple[Range, stream_k.Cuts]] = []
        for column in range(tiles_n if row < tiles_m else 0):
            here = cuts.get((row, column), ())
            if runs and runs[-1][1] == here:
                runs[-1] = ((runs[-1][0][0], column + 1), here)
            else:
                runs.append(((column, column + 1), here))
        first, before = open_rows
        if runs != before:
            rows = (first * tile[0], min(m, row * tile[0]))
            found += [(rows, (start * tile[1], min(n, stop * tile[1])), here) for (start, stop), here in before]
            open_rows = (row, runs)
    return found


def split_ranges(k: int, count: int, tile: int, layout: str) -> list[Range]:
    """K cut in `count` ranges of whole tiles; ranges that would be empty are left out."""
    tiles = -(-k // tile)
    if layout == "ceil":
        lengths = [-(-tiles // count)] * count
    else:
        lengths = [tiles // count + (index < tiles % count) for index in range(count)]
    ranges: list[Range] = []
    start = 0
    for length in lengths:
        stop = min(k, start + length * tile)
        if stop > start:
            ranges.append((start, stop))
        start = stop
    return ranges


def chunk_ranges(start: int, stop: int, lengths: Sequence[int]) -> tuple[Range, ...]:
    """A range of K cut in chunks of the given lengths, the last of them repeating; no lengths is one chunk."""
    ranges: list[Range] = []
    position = start
    while position < stop:
        length = lengths[min(len(ranges), len(lengths) - 1)] if lengths else stop - start
        ranges.append((position, min(stop, position + length)))
        position += length
    return tuple(ranges)


def _decisions(
    request: Request,
    kind: str,
    facts: dict[str, Fact],
    rule: GemmRule,
    instruction: Instruction,
    parts: Sequence[Part],
    fmt_out: Format,
) -> tuple[Decision, ...]:
    """Every choice that this call's bits hang on, and no other."""

    def fact(name: str) -> Decision:
        return _decision(name, facts[name])

    mixed = request.a.dtype != request.b.dtype
    splits = [part.splits for part in parts]
    chunks = fact("fast_chunks" if request.use_fast_accum else "slow_chunks")
    decisions = [fact("instruction"), *_instruction_decisions(instruction, mixed), chunks]
    if any(len(split.chunks) > 1 for part in splits for split in part) or rule.chunk_join != "add":
        decisions.append(fact("chunk_join"))
    if request.a.shape[1] % rule.k_tile:
        decisions.append(fact("k_residue"))
    if request.splitk is not None:
        decisions.append(Decision("splits", list(request.splitk), "override", "set by the caller"))
    elif rule.split_rule == "stream_k":
        decisions += [fact("split_rule"), fact("tile_m"), fact("tile_n"), fact("ctas_per_sm")]
    else:
        decisions += [fact("split_rule"), fact("splits")]
    if any(len(part) > 1 for part in splits):
        decisions += [fact("k_tile"), fact("scale_timing")]
        decisions += [] if rule.split_rule == "stream_k" and request.splitk is None else [fact("split_layout")]
        decisions += [fact("split_scheme")] if request.splitk is None else []
    order = fact("scale_order")
    decisions.append(replace(order, value=rule.scale_order) if order.value != rule.scale_order else order)
    decisions.append(fact("bias_add" if request.bias is not None else "adds_without_bias"))
    if fmt_out in formats.FP8:
        decisions += [fact("fp8_overflow"), fact("nan_fp8")]
    else:
        decisions += [fact("wide_overflow"), fact("nan_f32" if fmt_out is formats.F32 else "nan_16bit")]
        decisions += [fact("scale_result_on_wide_output")] if request.scale_result is not None else []
    return tuple(decisions)


def _decision(name: str, fact: Fact) -> Decision:
    return Decision(name, fact.value, fact.confidence, fact.source, fact.candidates)


def _instruction_decisions(instruction: Instruction, mixed: bool) -> list[Decision]:
    decisions = [_decision(f"instruction.{name}", fact) for name, fact in instruction.facts.items()]
    if mixed and instruction.mixed is not None:
        decisions.append(_decision("instruction.mixed", instruction.mixed))
    return decisions
