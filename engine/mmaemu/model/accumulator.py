# SPDX-License-Identifier: Apache-2.0
"""The accumulator between steps: normalise the exact sum of a step and round it to what the hardware keeps.

Between steps an accumulator stays decoded; `write` gives its bits. NaN, infinities and overflow travel as flags that no
later step can take back (reported: RTX 4090).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mmaemu.model import rounding, special
from mmaemu.model.alignment import common_exponent, exact_sum, without_zeros
from mmaemu.model.decode import I32, Decoded, decode, encode
from mmaemu.model.formats import AnyBits, Format
from mmaemu.profiles.instruction import StepRule


@dataclass(frozen=True)
class Accumulator:
    """`value` is finite (0 where flagged); `flags` is None while nothing special has happened."""

    value: Decoded
    flags: special.Flags | None


@dataclass(frozen=True)
class Step:
    """Everything that one step computed, for explain."""

    common_exponent: I32
    sum: NDArray[np.signedinteger]
    result: Accumulator


def read(bits: AnyBits, fmt: Format) -> Accumulator:
    value = decode(bits, fmt)
    return Accumulator(value, special.of_value(value))


def zeros(shape: tuple[int, ...], fmt: Format) -> Accumulator:
    return read(np.zeros(shape, fmt.storage), fmt)


def write(accumulator: Accumulator, fmt: Format, rule: StepRule) -> AnyBits:
    """Bit patterns in `fmt`; the value already has no more bits than the format."""
    return special.write(encode(accumulator.value, fmt), accumulator.flags, fmt, rule.nan)


def step(a: Decoded, b: Decoded, accumulator: Accumulator, fmt: Format, rule: StepRule) -> Step:
    """One fused step: align, add exactly, normalise, round. Terms on axis 0."""
    value = accumulator.value if rule.zero_accumulator_aligns else without_zeros(accumulator.value)
    common = common_exponent(a, b, value, rule)
    exact = exact_sum(a, b, value, common, rule)
    result, overflow = _round(exact, common, fmt, rule)
    flags = special.either(special.of_products(a, b), accumulator.flags)
    if flags is not None and overflow is not None:
        overflow[flags != 0] = 0  # an infinity or NaN stays what it is, whatever the finite terms add up to
    return Step(common, exact, Accumulator(result, special.either(flags, overflow)))


def _round(
    exact: NDArray[np.signedinteger], common: I32, fmt: Format, rule: StepRule
) -> tuple[Decoded, special.Flags | None]:
    """Normalise and round to `result_fraction_bits`; below the format's smallest exponent, to a subnormal."""
    magnitude = np.abs(exact)
    fraction_bits = rule.result_fraction_bits
    # Exact: sums are below 2^53, as sum_dtype's bound shows for every rule that the schema admits.
    top = rounding.exact_bit_length(magnitude).astype(np.int32) - 1
    lsb = common - rule.fraction_bits
    drop = np.maximum(top - fraction_bits, np.int32(fmt.min_exponent - fraction_bits) - lsb)
    if rule.result_rounding == "RZ":
        kept = (magnitude << np.maximum(-drop, 0)) >> np.maximum(drop, 0)
    else:
        kept = rounding.shift_right(magnitude.astype(np.int64), drop.astype(np.int64), "RNE")
        carried = kept >> (fraction_bits + 1)
        kept >>= carried
        drop = drop + carried.astype(np.int32)
    exponent = lsb + drop + fraction_bits
    if rule.zero_accumulator_aligns:
        exponent = np.where(kept == 0, np.int32(fmt.min_exponent), exponent)

    negative = exact < 0
    if not rule.underflow_keeps_sign:
        negative &= kept > 0
    sign = np.where(negative, np.int32(-1), np.int32(1))
    over = exponent > fmt.max_exponent
    flags = None
    if over.any():
        over &= kept > 0
        if rule.overflow == "infinity":
            flags = np.where(over, np.where(negative, special.MINUS_INF, special.PLUS_INF), 0).astype(np.uint8)
            kept = np.where(over, 0, kept)
        else:
            kept = np.where(over, (1 << (fraction_bits + 1)) - 1, kept)
        exponent = np.where(over, np.int32(fmt.max_exponent), exponent)
    return Decoded(sign, kept.astype(np.int32), exponent.astype(np.int32), fraction_bits), flags
