# SPDX-License-Identifier: Apache-2.0
"""torch's own rules for tensors without data against ours: the same calls accepted and rejected, save a written list.

torch checks a call twice: in the kernel that runs it, and in the meta kernel that torch.compile asks. No GPU is needed
for the second, and torch 2.13's is here. It is the looser of the two, and in places the stricter;
`tests/support/contract_differences.py` says where, and a difference that no call shows any more fails as well.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest
import torch
from tests.support.contract_calls import Call, calls, columns, functional_calls, rows
from tests.support.contract_differences import DIFFERENCES, FUNCTIONAL_DIFFERENCES, Applies
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import ScalingType

import mmaemu
from mmaemu import recipes, request, validation
from mmaemu.errors import ReferenceRejectsError, UnsupportedFeatureError

PROFILE = "h100-pcie-cublaslt12.9"
CALLS, FUNCTIONAL_CALLS = 6000, 3000
EACH_FAKE = 20
"""One of so many calls is asked of tensors that pretend to be on a GPU as well."""

# torch reports every refusal of its meta kernels in its log, too.
logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)


def torch_accepts(call: Call, device: str = "meta") -> bool:
    tensors = {name: tensor.torch(device) for name, tensor in call.tensors.items()}
    tensors = {{"a": "self", "b": "mat2"}.get(name, name): tensor for name, tensor in tensors.items()}
    try:
        torch.ops.aten._scaled_mm.default(
            **tensors, out_dtype=_dtype(call), use_fast_accum=call.use_fast_accum
        )  # fmt: skip
    except (RuntimeError, ValueError):
        return False
    return True


def torch_accepts_recipes(call: Call, device: str = "meta") -> bool:
    recipe_a, recipe_b = ([getattr(ScalingType, name).value] for name in call.recipes or ())
    bias = None if call.bias is None else call.bias.torch(device)
    try:
        torch.ops.aten._scaled_mm_v2.default(
            call.a.torch(device), call.b.torch(device), [call.scale_a.torch(device)], recipe_a, [],
            [call.scale_b.torch(device)], recipe_b, [], bias, _dtype(call), [], call.use_fast_accum,
        )  # fmt: skip
    except (RuntimeError, ValueError, IndexError):
        return False
    return True


def _dtype(call: Call) -> Any:
    return None if call.out_dtype is None else getattr(torch, call.out_dtype)


def ours(call: Call, *, meta: bool = False) -> ReferenceRejectsError | None:
    """Our refusal of a tensor's type, shape and strides; None where we accept, or have not modelled what torch
    accepts."""
    specs: dict[str, Any] = {
        name: tensor.torch() if meta else tensor.spec() for name, tensor in call.tensors.items()
    }  # fmt: skip
    try:
        mmaemu.explain(**specs, out_dtype=call.out_dtype, use_fast_accum=call.use_fast_accum, profile=PROFILE)
    except ReferenceRejectsError as error:
        return error
    except UnsupportedFeatureError:
        pass
    return None


def ours_of_recipes(call: Call) -> ReferenceRejectsError | None:
    recipe_a, recipe_b = call.recipes or ("", "")
    made = request.build(
        call.a.spec(), call.b.spec(), call.scale_a.spec(), call.scale_b.spec(),
        None if call.bias is None else call.bias.spec(), None, call.out_dtype, call.use_fast_accum,
        profile=PROFILE, scaling=recipes.kind_of((recipe_a,), (recipe_b,)),
    )  # fmt: skip
    try:
        validation.validate_functional(made)
    except ReferenceRejectsError as error:
        return error
    except UnsupportedFeatureError:
        pass
    return None


class Ledger:
    """Counts verdicts, and the reasons of those that differ."""

    def __init__(self, differences: dict[str, Applies]) -> None:
        self.differences = differences
        self.accepted: Counter[bool] = Counter()
        self.seen: Counter[str] = Counter()
        self.unexplained: list[Any] = []

    def enter(self, call: Call, accepted: bool, error: ReferenceRejectsError | None) -> None:
        self.accepted[accepted] += 1
        if accepted != (error is None):
            reasons = [reason for reason, applies in self.differences.items() if applies(call, error)]
            self.seen.update(reasons[:1])
            if not reasons:
                self.unexplained.append((call, accepted, error))

    def close(self) -> None:
        count = len(self.unexplained)
        assert not self.unexplained, f"{count} calls differ without a reason; the first: {self.unexplained[0]}"
        assert set(self.differences) == set(self.seen), "a listed difference that no call shows is not one any more"
        least = sum(self.accepted.values()) // 10
        assert min(self.accepted.values()) > least, "there should be many good and many bad calls"


def test_torch_and_we_accept_and_refuse_the_same_calls():
    ledger = Ledger(DIFFERENCES)
    for call in calls(CALLS):
        ledger.enter(call, torch_accepts(call), ours(call))
    ledger.close()


def test_torch_and_we_accept_and_refuse_the_same_recipes():
    ledger = Ledger(FUNCTIONAL_DIFFERENCES)
    for call in functional_calls(FUNCTIONAL_CALLS):
        ledger.enter(call, torch_accepts_recipes(call), ours_of_recipes(call))
    ledger.close()


def test_tensors_that_pretend_to_be_on_a_gpu_get_the_same_verdicts():
    plain, named = calls(CALLS)[::EACH_FAKE], functional_calls(FUNCTIONAL_CALLS)[::EACH_FAKE]
    of_meta = [torch_accepts(call) for call in plain] + [torch_accepts_recipes(call) for call in named]
    with FakeTensorMode():
        of_fakes = [torch_accepts(call, "cuda") for call in plain]
        of_fakes += [torch_accepts_recipes(call, "cuda") for call in named]
    assert of_meta == of_fakes


def test_meta_tensors_and_specs_get_our_same_verdicts():
    for call in calls(CALLS)[::EACH_FAKE]:
        assert str(ours(call, meta=True)) == str(ours(call)), call


@pytest.mark.parametrize("size", ["m", "n", "k"])
def test_sizes_of_zero_pass_both(size):
    shape = {"m": 32, "n": 32, "k": 32, size: 0}
    a, b = rows("float8_e4m3fn", shape["m"], shape["k"]), columns("float8_e4m3fn", shape["k"], shape["n"])
    call = Call(a, b, rows("float32"), rows("float32"))
    assert torch_accepts(call) and ours(call) is None
