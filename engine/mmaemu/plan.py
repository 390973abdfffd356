# SPDX-License-Identifier: Apache-2.0
"""Stage 3: what will be summed in which order. Shapes, formats and the profile decide; values play no part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
    """A matrix product laid out: splits of K, their chunks, the instruction that chains each chunk, the epilogue's
    rules, and every decision that led here."""

    m: int
    n: int
    k: int
    fmt_a: Format
    fmt_b: Format
    fmt_out: Format
    instruction: Instruction
    rule: GemmRule
    splits: tuple[Split, ...]
    scheme: str
    decisions: tuple[Decision, ...]

    @property
    def scales_partials(self) -> bool:
        """True where scale_a and scale_b apply to split-K partials instead of in the epilogue."""
        return len(self.splits) > 1 and self.rule.scale_timing == "before_reduction"

    @property
    def macs(self) -> int:
        return self.m * self.n * self.k


def make(request: Request) -> Plan:
    """The plan of a validated request. UnsupportedFeatureError where the profile does not model it."""
    (m, k), n = request.a.shape, request.b.shape[1]
    profile = request.profile
    rule, facts = profile.gemm, profile.known_gemm_facts
    fmt_a, fmt_b = formats.get(request.a.dtype), formats.get(request.b.dtype)
    instruction = profile.gemm_instruction(fmt_a.name, fmt_b.name)
    count, scheme = request.splitk or (rule.splits, rule.split_scheme)
    chunks_field = "fast_chunks" if request.use_fast_accum else "slow_chunks"
    lengths = rule.fast_chunks if request.use_fast_accum else rule.slow_chunks
    splits = tuple(
        Split(start, stop, chunk_ranges(start, stop, lengths))
        for start, stop in split_ranges(k, count, rule.k_tile, rule.split_layout)
    )

    def fact(name: str) -> Decision:
        return _decision(name, facts[name])

    decisions = [fact("instruction"), *_instruction_decisions(instruction, mixed=fmt_a != fmt_b), fact(chunks_field)]
    if request.splitk is None:
        decisions.append(fact("splits"))
    else:
        decisions.append(Decision("splits", [count, scheme], "override", "set by the caller"))
    if len(splits) > 1:
        decisions += [fact("k_tile"), fact("split_layout"), fact("scale_timing")]
        decisions += [fact("split_scheme")] if request.splitk is None else []
    decisions.append(fact("scale_order"))
    fmt_out = formats.get(request.out_dtype)
    if fmt_out in formats.FP8:
        decisions += [fact("fp8_overflow"), fact("nan_fp8")]
    else:
        decisions += [fact("wide_overflow"), fact("nan_f32" if fmt_out is formats.F32 else "nan_16bit")]
        decisions += [fact("scale_result_on_wide_output")] if request.scale_result is not None else []
    return Plan(m, n, k, fmt_a, fmt_b, fmt_out, instruction, rule, splits, scheme, tuple(decisions))


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


def _decision(name: str, fact: Fact) -> Decision:
    return Decision(name, fact.value, fact.confidence, fact.source, fact.candidates)


def _instruction_decisions(instruction: Instruction, mixed: bool) -> list[Decision]:
    decisions = [_decision(f"instruction.{name}", fact) for name, fact in instruction.facts.items()]
    if mixed and instruction.mixed is not None:
        decisions.append(_decision("instruction.mixed", instruction.mixed))
    return decisions
