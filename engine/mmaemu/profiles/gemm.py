# SPDX-License-Identifier: Apache-2.0
"""What a library's matrix product does around the instruction, as data: the rows of profiles/data/gemm/*.toml.

A profile has one such table for each path through the library: tensor-wise, row-wise and block-wise scales.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from mmaemu.profiles.facts import Fact

SplitScheme = Literal["compute_type", "output_type", "inplace"]
SPLIT_SCHEMES: tuple[str, ...] = ("compute_type", "output_type", "inplace")


@dataclass(frozen=True)
class GemmRule:
    """The plain values that plan, reduction and epilogue read. Field meanings are documented in `FIELDS`."""

    instruction: str
    k_tile: int
    fast_chunks: tuple[int, ...]
    slow_chunks: tuple[int, ...]
    k_residue: Literal["last", "first"]
    chunk_join: Literal["add", "scaled_fma"]
    split_rule: Literal["fixed", "stream_k"]
    splits: int
    split_scheme: SplitScheme
    split_layout: Literal["ceil", "even"]
    scale_timing: Literal["after_reduction", "before_reduction"]
    scale_order: Literal["combined", "a_then_b", "b_then_a", "cutlass_sm90", "vector_first"]
    bias_add: Literal["separate", "fused"]
    adds_without_bias: bool
    scale_result_on_wide_output: Literal["reject", "ignore"]
    wide_overflow: Literal["infinity", "saturate"]
    fp8_overflow: Literal["saturate", "infinity"]
    nan_f32: int
    nan_16bit: int
    nan_fp8: int
    workspace_bytes: int = 0
    tile_m: int = 0
    tile_n: int = 0
    ctas_per_sm: int = 0


FIELDS: dict[str, str] = {
    "instruction": "instruction family that multiplies fp8 operands",
    "k_tile": "unit of K in which split-K ranges are cut",
    "fast_chunks": "use_fast_accum=True: as slow_chunks; empty is one chain over K",
    "slow_chunks": "use_fast_accum=False: K is cut in chunks of these lengths, the last one repeating; each restarts "
    "from zero and joins the sum in float32 RNE",
    "k_residue": "where K % k_tile is processed: last, or first, in a tile of its own that is filled up with zeros",
    "chunk_join": "add: each chunk is added to the sum, float32 RNE; scaled_fma: fma(chunk * first scale, second "
    "scale, sum) with the scales of the chunk's blocks",
    "split_rule": "fixed: `splits` ranges of K; stream_k: CUTLASS 2.x Stream-K, each output tile has ranges of its own",
    "splits": "split-K factor when the caller names none",
    "split_scheme": "how split-K partials are summed when the caller names no scheme",
    "split_layout": "ceil: every range ceil(tiles/S) tiles; even: the first tiles mod S ranges one tile longer",
    "scale_timing": "whether scale_a and scale_b apply after the split-K reduction or to each partial",
    "scale_order": "combined: acc * (scale_a * scale_b); a_then_b: (acc * scale_a) * scale_b; b_then_a; cutlass_sm90: "
    "b_then_a where PyTorch's sm_90 row-wise dispatch transposes, else a_then_b; vector_first: 1x128 before 128x128",
    "bias_add": "separate: the bias is added to the rounded product; fused: the last multiplication and it are one fma",
    "adds_without_bias": "whether +0 is added where the caller gives no bias, which turns -0 into +0",
    "scale_result_on_wide_output": "scale_result with a 16- or 32-bit output: the library rejects or ignores it",
    "wide_overflow": "float16, bfloat16, float32 output too large, or infinite: infinity or the largest finite number",
    "fp8_overflow": "fp8 output too large, or infinite: the largest finite number (saturate), or infinity "
    "(in e4m3, which has none, NaN of the same sign)",
    "nan_f32": "bit pattern of a float32 NaN",
    "nan_16bit": "bit pattern of a float16 or bfloat16 NaN",
    "nan_fp8": "bit pattern of an fp8 NaN",
    "workspace_bytes": "workspace of the library; compute_type split-K needs splits * M * N * 4 bytes of it",
    "tile_m": "rows of an output tile, for stream_k",
    "tile_n": "columns of an output tile, for stream_k",
    "ctas_per_sm": "thread blocks that fit on a multiprocessor at once, for stream_k",
}
"""Meaning of each field, in the order of GemmRule; `mmaemu profiles show` prints it."""

OPTIONAL = ("workspace_bytes", "tile_m", "tile_n", "ctas_per_sm")
"""Fields that a table may leave out, because its path has no use for them; the value is then 0."""

CHOICES: dict[str, tuple[Any, ...]] = {
    "k_residue": ("last", "first"),
    "chunk_join": ("add", "scaled_fma"),
    "split_rule": ("fixed", "stream_k"),
    "split_scheme": SPLIT_SCHEMES,
    "split_layout": ("ceil", "even"),
    "scale_timing": ("after_reduction", "before_reduction"),
    "scale_order": ("combined", "a_then_b", "b_then_a", "cutlass_sm90", "vector_first"),
    "bias_add": ("separate", "fused"),
    "adds_without_bias": (True, False),
    "scale_result_on_wide_output": ("reject", "ignore"),
    "wide_overflow": ("infinity", "saturate"),
    "fp8_overflow": ("saturate", "infinity"),
}

assert tuple(FIELDS) == tuple(f.name for f in fields(GemmRule))


def rule_of(facts: dict[str, Fact]) -> GemmRule:
    values = {name: fact.value for name, fact in facts.items()}
    values["fast_chunks"] = tuple(values["fast_chunks"])
    values["slow_chunks"] = tuple(values["slow_chunks"])
    return GemmRule(**values)
