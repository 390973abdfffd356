# SPDX-License-Identifier: Apache-2.0
"""torch's own rules for tensors without data against ours: the same calls accepted and rejected, save a written list.

torch checks a call twice: in the kernel that runs it, and in the meta kernel that torch.compile asks. No GPU is needed
for the second, and torch 2.13's is here. It is the looser of the two, and in places the stricter; `DIFFERENCES` says
where, and a difference that no call shows any more fails as well.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import ScalingType

import mmaemu
from mmaemu import Spec, recipes, request, validation
from mmaemu.errors import ReferenceRejectsError, UnsupportedFeatureError

PROFILE = "h100-pcie-cublaslt12.9"
E4M3, E5M2, F32, BF16, F16 = "float8_e4m3fn", "float8_e5m2", "float32", "bfloat16", "float16"
CALLS = 4000

# torch reports every refusal of its meta kernels in its log, too.
logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class Tensor:
    """A tensor without data: type, shape, strides in elements."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def fake(self) -> torch.Tensor:
        return torch.empty_strided(self.shape, self.strides, dtype=getattr(torch, self.dtype), device="cuda")

    def spec(self) -> Spec:
        return Spec(self.dtype, self.shape, self.strides)


@dataclass(frozen=True)
class Call:
    a: Tensor
    b: Tensor
    scale_a: Tensor
    scale_b: Tensor
    bias: Tensor | None = None
    scale_result: Tensor | None = None
    out_dtype: str | None = BF16
    changes: tuple[str, ...] = field(default=(), compare=False)


def rows(dtype: str, *shape: int) -> Tensor:
    """A contiguous tensor."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return Tensor(dtype, tuple(shape), tuple(reversed(strides)))


def columns(dtype: str, m: int, n: int) -> Tensor:
    return Tensor(dtype, (m, n), (1, max(m, 1)))


def up(a: int, b: int) -> int:
    return -(-a // b)


def good(pick: random.Random) -> Call:
    m = pick.choice([1, 17, 32, 130, 256])
    n, k = pick.choice([32, 144, 256]), pick.choice([32, 128, 144, 272])
    if pick.random() < 0.1:
        m, n, k = pick.choice([(0, n, k), (m, 0, k), (m, n, 0)])
    a_type, b_type = pick.choice([(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3)])
    blocks = up(k, 128)
    scale_a, scale_b = pick.choice(
        [
            (rows(F32), rows(F32)), (rows(F32, 1), rows(F32, 1, 1)), (rows(F32, m, 1), rows(F32, 1, n)),
            (columns(F32, m, blocks), columns(F32, blocks, up(n, 128))),
            (columns(F32, m, blocks), rows(F32, blocks, n)), (rows(F32, up(m, 128), blocks), rows(F32, blocks, n)),
        ]
    )  # fmt: skip
    return Call(rows(a_type, m, k), columns(b_type, k, n), scale_a, scale_b)


def changed(call: Call, pick: random.Random) -> Call:
    """The call with one thing altered, for better or worse."""
    a, b = call.a, call.b
    if len(a.shape) != 2 or len(b.shape) != 2:
        return call
    (m, k), n = a.shape, b.shape[1]
    dtypes = [E4M3, E5M2, F32, BF16, "int8", "float8_e4m3fnuz"]
    changes: dict[str, Callable[[], Call]] = {
        "a's type": lambda: replace(call, a=replace(a, dtype=pick.choice(dtypes))),
        "b's type": lambda: replace(call, b=replace(b, dtype=pick.choice(dtypes))),
        "a padded": lambda: replace(call, a=replace(a, strides=(k + 16, 1))),
        "b padded": lambda: replace(call, b=replace(b, strides=(1, k + 16))),
        "a column-major": lambda: replace(call, a=columns(a.dtype, m, k)),
        "b row-major": lambda: replace(call, b=rows(b.dtype, k, n)),
        "a without unit stride": lambda: replace(call, a=replace(a, strides=(2 * max(k, 1), 2))),
        "b without unit stride": lambda: replace(call, b=replace(b, strides=(2, 2 * max(k, 1)))),
        "a a vector": lambda: replace(call, a=rows(a.dtype, k)),
        "b of three dimensions": lambda: replace(call, b=rows(b.dtype, k, n, 1)),
        "K of b": lambda: replace(call, b=columns(b.dtype, pick.choice([k + 16, 40]), n)),
        "K of both": lambda: replace(call, a=rows(a.dtype, m, 40), b=columns(b.dtype, 40, n)),
        "N": lambda: replace(call, b=columns(b.dtype, k, pick.choice([24, 40]))),
        "scale types": lambda: replace(
            call, scale_a=replace(call.scale_a, dtype=pick.choice([F16, "float64", "float8_e8m0fnu"]))
        ),
        "both scale types": lambda: replace(
            call,
            scale_a=replace(call.scale_a, dtype="float8_e8m0fnu"),
            scale_b=replace(call.scale_b, dtype="float8_e8m0fnu"),
        ),
        "MX scales": lambda: replace(
            call,
            scale_a=rows("float8_e8m0fnu", up(m, 128) * 128 * up(up(k, 32), 4) * 4),
            scale_b=rows("float8_e8m0fnu", up(n, 128) * 128 * up(up(k, 32), 4) * 4),
        ),
        "scale_a's shape": lambda: replace(call, scale_a=rows(F32, *pick.choice([(m,), (m, 2), (2,), (1, m)]))),
        "scale_b's shape": lambda: replace(call, scale_b=rows(F32, *pick.choice([(n,), (2, n), (n, 1), (1, 1, 1)]))),
        "scales exchanged": lambda: replace(call, scale_a=call.scale_b, scale_b=call.scale_a),
        "strides of scales": lambda: replace(
            call, scale_a=replace(call.scale_a, strides=tuple(2 * stride for stride in call.scale_a.strides))
        ),
        "layout of scale_a": lambda: replace(call, scale_a=rows(F32, *call.scale_a.shape)),
        "bias": lambda: replace(call, bias=rows(pick.choice([BF16, F16, F32]), pick.choice([n, n + 1]))),
        "scale_result": lambda: replace(call, scale_result=rows(pick.choice([F32, F16]), *pick.choice([(), (2,)]))),
        "out_dtype": lambda: replace(call, out_dtype=pick.choice([None, F32, F16, E4M3, E5M2, "int32"])),
    }  # fmt: skip
    name = pick.choice(sorted(changes))
    return replace(changes[name](), changes=(*call.changes, name))


def calls() -> list[Call]:
    pick = random.Random(20261201)
    found = []
    for _ in range(CALLS):
        call = good(pick)
        for _ in range(pick.choice([0, 1, 1, 1, 2])):
            call = changed(call, pick)
        found.append(call)
    return found


def torch_accepts(call: Call) -> bool:
    fakes = {name: tensor.fake() for name, tensor in vars(call).items() if isinstance(tensor, Tensor)}
    fakes = {{"a": "self", "b": "mat2"}.get(name, name): tensor for name, tensor in fakes.items()}
    out_dtype = None if call.out_dtype is None else getattr(torch, call.out_dtype)
    try:
        torch.ops.aten._scaled_mm.default(**fakes, out_dtype=out_dtype)
    except (RuntimeError, ValueError, NotImplementedError):
        return False
    return True


def ours(call: Call) -> ReferenceRejectsError | None:
    """Our rejection; None where we accept or have not modelled, for then torch has to accept."""
    specs: dict[str, Any] = {name: tensor.spec() for name, tensor in vars(call).items() if isinstance(tensor, Tensor)}
    try:
        mmaemu.explain(**specs, out_dtype=call.out_dtype, profile=PROFILE)
    except ReferenceRejectsError as error:
        return error
    except UnsupportedFeatureError:
        pass
    return None


Applies = Callable[[Call, ReferenceRejectsError | None], bool]


def names(*fields: str) -> Applies:
    """Torch's meta kernel accepts; our error is about one of these fields."""
    return lambda call, error: error is not None and error.field in fields


def wants(text: str) -> Applies:
    return lambda call, error: error is not None and text in error.wanted


def got(text: str) -> Applies:
    return lambda call, error: error is not None and text in error.got


def block_scales(call: Call, error: ReferenceRejectsError | None) -> bool:
    """Shapes of blocks, strides that are not torch's."""
    blocks = up(call.a.shape[1], 128)
    shapes = call.scale_a.shape == (call.a.shape[0], blocks) or call.scale_b.shape[:1] == (blocks,)
    return error is not None and error.field == "scale_a, scale_b" and shapes


DIFFERENCES: dict[str, Applies] = {
    "the meta kernel does not compare K of a and b": wants("as a has columns"),
    "the meta kernel does not look at the bias": names("bias"),
    "the meta kernel does not look at scale_result": names("scale_result"),
    "the meta kernel lets e5m2 meet e5m2": names("a, b"),
    "the meta kernel does not know which outputs cuBLASLt has": names("out_dtype"),
    "the meta kernel takes AMD's fnuz types, which die later on CUDA": got("fnuz"),
    "the meta kernel does not look at the strides of block-wise scales": block_scales,
    "the meta kernel does not transpose scale_b, which three dimensions do not survive": lambda call, error: (
        error is not None and error.field == "scale_a, scale_b" and len(call.scale_b.shape) == 3
    ),
    "the real kernel copies an a without unit stride; the meta kernel refuses it": lambda call, error: (
        error is None and 1 not in call.a.strides
    ),
    "the real kernel returns early for an empty product, before it looks at layouts": lambda call, error: (
        error is None and 0 in (*call.a.shape, *call.b.shape)
    ),
    "a single row is row-major whatever its stride; the meta kernel compares strides": lambda call, error: (
        error is None and call.a.shape[0] == 1 and call.a.strides == (1, 1)
    ),
}


def test_torch_and_we_accept_and_reject_the_same_calls():
    seen: Counter[str] = Counter()
    verdicts: Counter[bool] = Counter()
    unexplained = []
    with FakeTensorMode():
        for call in calls():
            accepted, error = torch_accepts(call), ours(call)
            verdicts[accepted] += 1
            if accepted == (error is None):
                continue
            reason = next((reason for reason, applies in DIFFERENCES.items() if applies(call, error)), None)
            if reason is None:
                unexplained.append((call, accepted, error))
            else:
                seen[reason] += 1
    assert not unexplained, f"{len(unexplained)} calls differ without a reason; the first: {unexplained[0]}"
    assert set(DIFFERENCES) == set(seen), "a listed difference that no call shows is not one any more"
    assert min(verdicts.values()) > CALLS // 10, "the grid should hold many good and many bad calls"


RECIPES = {
    "TensorWise": ScalingType.TensorWise,
    "RowWise": ScalingType.RowWise,
    "BlockWise1x128": ScalingType.BlockWise1x128,
    "BlockWise128x128": ScalingType.BlockWise128x128,
}
PAIRS = [("TensorWise", "TensorWise"), ("RowWise", "RowWise"), ("BlockWise1x128", "BlockWise128x128")]
PAIRS += [("BlockWise128x128", "BlockWise1x128"), ("BlockWise1x128", "BlockWise1x128"), ("TensorWise", "RowWise")]


def functional_scale(recipe: str, outer: int, k: int, second: bool) -> Tensor:
    blocks = up(k, 128)
    if recipe == "TensorWise":
        return rows(F32)
    if recipe == "RowWise":
        return rows(F32, 1, outer) if second else rows(F32, outer, 1)
    if recipe == "BlockWise1x128":
        return columns(F32, outer, blocks)
    return columns(F32, up(blocks, 4) * 4, up(outer, 128))


def functional_calls() -> list[tuple[Call, tuple[str, str]]]:
    pick = random.Random(7)
    found = []
    for _ in range(2000):
        pair = pick.choice(PAIRS)
        m, n, k = pick.choice([17, 128, 256]), pick.choice([32, 128, 256]), pick.choice([128, 256, 512])
        call = Call(
            rows(E4M3, m, k), columns(pick.choice([E4M3, E5M2]), k, n),
            functional_scale(pair[0], m, k, False), functional_scale(pair[1], n, k, True),
        )  # fmt: skip
        for _ in range(pick.choice([0, 1, 1])):
            call = changed(call, pick)
        found.append((call, pair))
    return found


def functional_torch_accepts(call: Call, pair: tuple[str, str]) -> bool:
    out_dtype = None if call.out_dtype is None else getattr(torch, call.out_dtype)
    recipe_a, recipe_b = ([RECIPES[name].value] for name in pair)
    try:
        torch.ops.aten._scaled_mm_v2.default(
            call.a.fake(), call.b.fake(), [call.scale_a.fake()], recipe_a, [], [call.scale_b.fake()], recipe_b, [],
            None if call.bias is None else call.bias.fake(), out_dtype,
        )  # fmt: skip
    except (RuntimeError, ValueError, NotImplementedError, IndexError):
        return False
    return True


def functional_ours(call: Call, pair: tuple[str, str]) -> ReferenceRejectsError | None:
    try:
        made = request.build(
            call.a.spec(), call.b.spec(), call.scale_a.spec(), call.scale_b.spec(),
            None if call.bias is None else call.bias.spec(), None, call.out_dtype,
            profile=PROFILE, scaling=recipes.kind_of(*pair),
        )  # fmt: skip
        validation.validate_functional(made)
    except ReferenceRejectsError as error:
        return error
    except UnsupportedFeatureError:
        pass
    return None


FUNCTIONAL_DIFFERENCES: dict[str, Applies] = {
    "the meta kernel does not compare K of a and b": wants("as a has columns"),
    "the meta kernel does not look at the bias": names("bias"),
    "the meta kernel lets e5m2 meet e5m2": names("a, b"),
    "the meta kernel takes AMD's fnuz types, which die later on CUDA": got("fnuz"),
    "layouts are looked at after these checks, with those of _scaled_mm": lambda call, error: (
        error is None and (call.a.strides[-1] != 1 or call.b.strides[0] != 1)
    ),
    "the meta kernel wants every row-wise scale without gaps; the real one would read what lies in them": (
        lambda call, error: error is None and call.scale_a.strides[:1] == (2,)
    ),
    "the meta kernel rounds blocks down where the real one rounds up": lambda call, error: (
        error is None and any(size % 128 for size in (*call.a.shape, call.b.shape[-1]))
    ),
}


def test_torch_and_we_accept_and_reject_the_same_recipes():
    seen: Counter[str] = Counter()
    unexplained = []
    with FakeTensorMode():
        for call, pair in functional_calls():
            accepted, error = functional_torch_accepts(call, pair), functional_ours(call, pair)
            if accepted == (error is None):
                continue
            reason = next((why for why, applies in FUNCTIONAL_DIFFERENCES.items() if applies(call, error)), None)
            if reason is None:
                unexplained.append((call, pair, accepted, error))
            else:
                seen[reason] += 1
    assert not unexplained, f"{len(unexplained)} calls differ without a reason; the first: {unexplained[0]}"
    assert set(FUNCTIONAL_DIFFERENCES) == set(seen), "a listed difference that no call shows is not one any more"


@pytest.mark.parametrize("size", ["m", "n", "k"])
def test_sizes_of_zero_pass_both(size):
    shape = {"m": 32, "n": 32, "k": 32, size: 0}
    call = Call(
        rows(E4M3, shape["m"], shape["k"]), columns(E4M3, shape["k"], shape["n"]), rows(F32), rows(F32)
    )  # fmt: skip
    with FakeTensorMode():
        assert torch_accepts(call)
    assert ours(call) is None
