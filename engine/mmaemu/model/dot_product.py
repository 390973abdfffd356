# SPDX-License-Identifier: Apache-2.0
"""One instruction, bit patterns in and out: D = sum_k A[k] * B[k] + C."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmaemu import profiles
from mmaemu.errors import InvalidInputError
from mmaemu.model import accumulator, chain, formats
from mmaemu.model.formats import AnyBits, Format
from mmaemu.profiles import Instruction
from mmaemu.profiles.instruction import StepRule


@dataclass(frozen=True)
class Dot:
    """The formats and the rule of a list of dot products, checked against their operands."""

    fmt_a: Format
    fmt_b: Format
    fmt_c: Format
    rule: StepRule

    def of_words(self, a: AnyBits, b: AnyBits, c: AnyBits) -> AnyBits:
        """[count] accumulator words of [count, K] operands."""
        start = accumulator.read(c, self.fmt_c)
        left, right = chain.operand(a.T, self.fmt_a, self.rule), chain.operand(b.T, self.fmt_b, self.rule)
        return accumulator.write(chain.run(left, right, start, self.fmt_c, self.rule), self.fmt_c, self.rule)


def dot(
    a: AnyBits,
    b: AnyBits,
    c: AnyBits,
    fmt_a: str,
    fmt_b: str,
    *,
    preset: str | Instruction,
    acc: str = "f32",
) -> AnyBits:
    """The accumulator words a tensor core returns: [count] words of `acc` (uint32 for f32, uint16 for f16).

    NaN results are the preset's one NaN pattern (0x7FFFFFFF, 0x7FFF); Inf - Inf and Inf * 0 are NaN; an exact zero is
    +0, also from C = -0; results at or above 2^128 (2^16 for f16) are infinite although steps truncate.

    a, b: [count, K] bit patterns (uint8 for e4m3 and e5m2, uint16 for f16 and bf16, uint32 for tf32 as stored in f32);
    c: [count] words of `acc`. K may be any positive length: shorter than the instruction is padded with zeros, longer
    runs as a chain of instructions. preset: a family of `mmaemu.profiles.preset_names()`, or an Instruction.

    Raises InvalidInputError for malformed arguments and UnsupportedFeatureError for formats the preset does not model.
    This is the reference, in numpy; `mmaemu.mma` gives the same bits by the fastest backend.
    """
    return checked(a, b, c, fmt_a, fmt_b, preset=preset, acc=acc).of_words(a, b, c)


def checked(
    a: AnyBits, b: AnyBits, c: AnyBits, fmt_a: str, fmt_b: str, *, preset: str | Instruction, acc: str
) -> Dot:  # fmt: skip
    """What `dot` would run on these arguments, or its errors."""
    format_a, format_b = formats.get(fmt_a, "fmt_a"), formats.get(fmt_b, "fmt_b")
    if acc not in ("f32", "f16", "float32", "float16"):
        raise InvalidInputError.because("acc", got=repr(acc)[:80], wanted="f32 or f16")
    format_c = formats.get(acc, "acc")
    _check(a, b, c, format_a, format_b, format_c)
    if isinstance(preset, Instruction):
        instruction = preset
    else:
        instruction = profiles.preset(preset, format_a.name, format_b.name, format_c.name)
    return Dot(format_a, format_b, format_c, instruction.rule)


def _check(a: AnyBits, b: AnyBits, c: AnyBits, fmt_a: Format, fmt_b: Format, fmt_c: Format) -> None:
    for name, array, fmt, rank in (("a", a, fmt_a, 2), ("b", b, fmt_b, 2), ("c", c, fmt_c, 1)):
        if not isinstance(array, np.ndarray) or array.dtype != fmt.storage:
            got = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise InvalidInputError.because(
                name, got=got, wanted=f"a {fmt.storage} array: the bit patterns of {fmt.name}"
            )
        if array.ndim != rank:
            raise InvalidInputError.because(
                name, got=f"shape {array.shape}", wanted="[count, K]" if rank == 2 else "[count]"
            )
    if a.shape != b.shape:
        raise InvalidInputError.because("b", got=f"shape {b.shape}", wanted=f"a's shape {a.shape}")
    if c.shape[0] != a.shape[0]:
        raise InvalidInputError.because("c", got=f"{c.shape[0]} words", wanted=f"{a.shape[0]}, one for each row of a")
    if a.shape[1] == 0:
        raise InvalidInputError.because("a", got="K = 0", wanted="at least one product")
