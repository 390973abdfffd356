# SPDX-License-Identifier: Apache-2.0
"""What one version of torch accepts, where versions differ, as data: the rows of profiles/data/contracts/*.toml."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from mmaemu.profiles.facts import Fact

SCALE_KINDS = (
    "tensor_wise",
    "row_wise",
    "block_128x128_1x128",
    "block_1x128_128x128",
    "block_1x128_1x128",
    "block_1x32",
    "block_1x16",
)
"""Every way in which torch lets operands be scaled; of two sizes of block, a's comes first."""

EXCEPTIONS = ("RuntimeError", "ValueError")


@dataclass(frozen=True)
class Contract:
    """The plain values that validation reads. Field meanings are documented in `FIELDS`."""

    scale_kinds: tuple[str, ...]
    scales_need_fp8: bool
    scale_kind_error: str
    scale_b_dimensions: int
    e5m2_pair_error: str
    row_wise_kernel: str
    row_wise_outputs: tuple[str, ...]
    row_wise_output_error: str
    row_wise_b_types: tuple[str, ...]


FIELDS: dict[str, str] = {
    "scale_kinds": "scalings that are recognised by the shapes of the scales, in torch's order",
    "scales_need_fp8": "whether scales are recognised beside fp8 operands alone, which are then looked at first",
    "scale_kind_error": "torch's exception for scales that fit none of them",
    "scale_b_dimensions": "the most dimensions that scale_b may have",
    "e5m2_pair_error": "torch's exception for two e5m2 operands",
    "row_wise_kernel": "who computes row-wise products: torch (its own CUTLASS kernels) or cublaslt",
    "row_wise_outputs": "output types with row-wise scales",
    "row_wise_output_error": "torch's exception for another one",
    "row_wise_b_types": "types of b with row-wise scales",
}
"""Meaning of each field, in the order of Contract; `mmaemu profiles show` prints it."""

LISTS: dict[str, tuple[str, ...]] = {
    "scale_kinds": SCALE_KINDS,
    "row_wise_outputs": ("bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2"),
    "row_wise_b_types": ("float8_e4m3fn", "float8_e5m2"),
}
"""Fields that are lists, and what may stand in them."""

CHOICES: dict[str, tuple[Any, ...]] = {
    "scales_need_fp8": (True, False),
    "scale_kind_error": EXCEPTIONS,
    "e5m2_pair_error": EXCEPTIONS,
    "row_wise_kernel": ("torch", "cublaslt"),
    "row_wise_output_error": EXCEPTIONS,
}

assert tuple(FIELDS) == tuple(f.name for f in fields(Contract))


def contract_of(facts: dict[str, Fact]) -> Contract:
    values: dict[str, Any] = {name: fact.value for name, fact in facts.items()}
    return Contract(**values | {name: tuple(values[name]) for name in LISTS})
