# SPDX-License-Identifier: Apache-2.0
"""A plan's rules as numbers and C structures, for backends whose kernels are not Python."""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_uint32, c_void_p
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mmaemu.model import chain, epilogue, formats
from mmaemu.model.epilogue import Factors
from mmaemu.model.formats import Format
from mmaemu.plan import Plan
from mmaemu.profiles import GemmRule
from mmaemu.profiles.instruction import StepRule

FORMATS = {fmt: index for index, fmt in enumerate(formats.ALL)}
SCHEMES = {"compute_type": 0, "output_type": 1, "inplace": 2}
ORDERS = {"combined": 0, "a_then_b": 1, "b_then_a": 2}
ALREADY_SCALED, UNSCALED = 3, -1
_NO_BIAS, _SEPARATE, _FUSED = 0, 1, 2


class Rule(ctypes.Structure):
    """A StepRule."""

    _fields_ = [
        *((name, c_int32) for name in (
            "instruction_k", "group", "fraction_bits", "result_fraction_bits", "min_exponent", "nearest", "after",
            "zero_products_align", "zero_accumulator_aligns", "saturates", "underflow_keeps_sign",
        )),
        ("nan", c_uint32),
        ("order", c_void_p),
    ]  # fmt: skip


class Output(ctypes.Structure):
    """What an output's words are beyond its format."""

    _fields_ = [("format", c_int32), ("saturates", c_int32), ("nan", c_uint32)]


def order_of(rule: StepRule) -> NDArray[np.int32]:
    """[instruction_k]: the k of an instruction in the order in which groups take them."""
    return np.array([k for group in chain.instruction_groups(rule) for k in group], np.int32)


def rule_of(rule: StepRule, order: int | None) -> Rule:
    """`order` is the address of `order_of`'s numbers."""
    return Rule(
        rule.instruction_k, rule.group, rule.fraction_bits, rule.result_fraction_bits, rule.min_exponent,
        rule.result_rounding == "RNE", rule.accumulator_joins == "after", rule.zero_products_align,
        rule.zero_accumulator_aligns, rule.overflow == "saturate", rule.underflow_keeps_sign, rule.nan, order,
    )  # fmt: skip


@cache
def output_of(fmt: Format, rule: GemmRule) -> Output:
    return Output(FORMATS[fmt], epilogue.overflow_of(fmt, rule) == "saturate", epilogue.nan_of(fmt, rule))


def partial_order(plan: Plan) -> int:
    """The scales that each split's sum meets before the reduction."""
    return ORDERS[plan.rule.scale_order] if plan.scales_partials else UNSCALED


def epilogue_order(plan: Plan) -> int:
    return ALREADY_SCALED if plan.scales_before_epilogue else ORDERS[plan.rule.scale_order]


def bias_mode(plan: Plan, factors: Factors) -> int:
    if factors.bias is None and not plan.rule.adds_without_bias:
        return _NO_BIAS
    return _FUSED if plan.rule.bias_add == "fused" else _SEPARATE


def has_scale_result(plan: Plan, factors: Factors) -> bool:
    return factors.scale_result is not None and plan.fmt_out in formats.FP8
