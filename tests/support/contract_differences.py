# SPDX-License-Identifier: Apache-2.0
"""Where torch's rules for tensors without data (its meta kernels) differ from its kernels, which mmaemu follows.

docs/contract.md prints the reasons. A difference applies to a call, and to mmaemu's refusal of it: None where mmaemu
accepts what the meta kernel refuses.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.support.contract_calls import FP4, Call, up

from mmaemu.errors import ReferenceRejectsError

Applies = Callable[[Call, ReferenceRejectsError | None], bool]


def names(*fields: str) -> Applies:
    """We refuse, and name one of these fields."""
    return lambda call, error: error is not None and error.field in fields


def wants(*texts: str) -> Applies:
    return lambda call, error: error is not None and any(text in error.wanted for text in texts)


def got(text: str) -> Applies:
    return lambda call, error: error is not None and text in error.got


def block_shapes(call: Call, error: ReferenceRejectsError | None) -> bool:
    """Shapes of blocks, strides that are not torch's."""
    blocks = up(call.a.shape[1], 128)
    shapes = call.scale_a.shape == (call.a.shape[0], blocks) or call.scale_b.shape[:1] == (blocks,)
    return error is not None and error.field == "scale_a, scale_b" and shapes


def is_empty(call: Call) -> bool:
    return 0 in (*call.a.shape, call.b.shape[-1])


def layouts_pass(call: Call) -> bool:
    """As the meta kernels compare strides."""
    (a_rows, a_columns), (b_rows, b_columns) = call.a.strides, call.b.strides
    a_passes = 0 in call.a.shape or (a_rows > a_columns == 1)
    return a_passes and (0 in call.b.shape or (b_columns > b_rows == 1))


def has_ragged_blocks(call: Call) -> bool:
    sizes = (*call.a.shape, call.b.shape[-1])
    return call.recipes is not None and "128" in "".join(call.recipes) and any(size % 128 for size in sizes)


LOOSER: dict[str, Applies] = {
    "It does not compare K of a and b.": wants("as a has columns"),
    "It does not look at the bias.": names("bias"),
    "It does not look at scale_result.": names("scale_result"),
    "It lets e5m2 meet e5m2.": names("a, b"),
    "It does not know which outputs the library has.": names("out_dtype"),
    "It takes AMD's fnuz types, which die later on CUDA.": got("fnuz"),
    "It does not look at the strides of block-wise scales.": block_shapes,
    "It does not transpose scale_b, which three dimensions do not survive.": lambda call, error: (
        error is not None and error.field == "scale_a, scale_b" and len(call.scale_b.shape) == 3
    ),
    "It lets 4-bit operands accumulate fast.": names("use_fast_accum"),
    "It takes 4-bit operands whatever their scales are.": lambda call, error: (
        error is not None and error.field in ("a", "b") and FP4 in (call.a.dtype, call.b.dtype) and FP4 in error.got
    ),
    "It does not look at the alignment to 16 bytes.": wants("16 bytes apart"),
    "It compares strides with each other, not with sizes: a single row may have too small a one.": wants("a stride of"),
    "It compares strides with each other, not with sizes: columns of b may overlap.": lambda call, error: (
        error is not None and "column-major" in error.wanted and 1 < call.b.strides[1] < call.b.shape[0]
    ),
}
"""What torch's meta kernel accepts and its kernel, or cuBLASLt, refuses."""

STRICTER: dict[str, Applies] = {
    "It refuses an a that is neither row-major nor column-major; the kernel copies it.": lambda call, error: (
        error is None and not layouts_pass(call) and not is_empty(call)
    ),
    "It looks at an empty product too, which the kernel returns before it looks at layouts.": lambda call, error: (
        error is None and not layouts_pass(call) and is_empty(call)
    ),
}
"""What it refuses and the kernel runs."""

DIFFERENCES = LOOSER | STRICTER

FUNCTIONAL_DIFFERENCES: dict[str, Applies] = {
    "It does not compare K of a and b.": wants("as a has columns"),
    "It does not look at the bias.": names("bias"),
    "It lets e5m2 meet e5m2.": names("a, b"),
    "It takes AMD's fnuz types, which die later on CUDA.": got("fnuz"),
    "It lets recipes of 8-bit operands meet 4-bit ones, and those of 128-wide blocks e5m2.": wants(
        "with these recipes"
    ),
    "It lets 4-bit operands accumulate fast.": names("use_fast_accum"),
    "It looks at an empty product too, which the kernel returns at once.": lambda call, error: (
        error is None and is_empty(call)
    ),
    "It looks at layouts at once, the kernel last, with those of `_scaled_mm`.": lambda call, error: (
        error is None and not layouts_pass(call)
    ),
    "It wants row-wise scales without gaps, where the kernel reads what lies in them.": lambda call, error: (
        error is None and call.recipes == ("RowWise", "RowWise") and call.scale_a.strides[:1] == (2,)
    ),
    "It rounds blocks of 128 down, where the kernel rounds them up.": lambda call, error: (
        error is None and has_ragged_blocks(call)
    ),
}
"""Of `torch._scaled_mm_v2`'s meta kernel."""
