# SPDX-License-Identifier: Apache-2.0
"""Stages 2 and 3 of calls that have been seen before: what differs in values alone has the same verdict and plan."""

from __future__ import annotations

from collections.abc import Hashable

from mmaemu import plan, validation
from mmaemu.plan import Plan
from mmaemu.profiles import Profile
from mmaemu.request import Request
from mmaemu.tensors import Operand

_MOST = 512
"""Plans that are kept; a training step has some tens."""

_plans: dict[Hashable, tuple[Profile, Plan]] = {}


def plan_of(call: Request, *, whole_call: bool = True) -> Plan:
    """The plan of a request that passes `validation.validate`; else what that raises, every time anew."""
    key = (
        id(call.profile), whole_call, call.use_fast_accum, call.out_dtype, call.splitk, call.scaling,
        call.contraction_dim, call.backend,
        *map(_without_values, (call.a, call.b, call.scale_a, call.scale_b, call.bias, call.scale_result, call.out)),
    )  # fmt: skip
    try:
        found = _plans.get(key)
    except TypeError:  # an argument of a type that cannot be looked up, which validation will have a word on
        return _anew(call, whole_call)
    # Profiles are told apart by identity, which is good for as long as this holds on to them.
    if found is None or found[0] is not call.profile:
        found = call.profile, _anew(call, whole_call)
        if len(_plans) >= _MOST:
            _plans.clear()
        _plans[key] = found
    return found[1]


def _anew(call: Request, whole_call: bool) -> Plan:
    validation.validate(call, whole_call=whole_call)
    return plan.make(call)


def _without_values(operand: Operand | None) -> Hashable:
    if operand is None:
        return None
    return (
        operand.dtype, operand.shape, operand.strides, operand.kind, operand.device, operand.requires_grad,
        operand.offset, operand.bits is None,
    )  # fmt: skip
