# SPDX-License-Identifier: Apache-2.0
"""Generated calls of scaled_mm, by types, shapes and strides alone: good ones, and such with a few things altered."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from mmaemu import Spec

E4M3, E5M2, E8M0, FP4 = "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2"
F32, BF16, F16 = "float32", "bfloat16", "float16"


@dataclass(frozen=True)
class Tensor:
    """A tensor without data: type, shape, strides in elements."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def torch(self, device: str = "meta") -> Any:
        import torch

        return torch.empty_strided(self.shape, self.strides, dtype=getattr(torch, self.dtype), device=device)

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
    use_fast_accum: bool = False
    recipes: tuple[str, str] | None = None
    changes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}


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


def microscales(dtype: str, outer: int, k: int, width: int) -> Tensor:
    return rows(dtype, up(outer, 128) * 128 * up(up(k, width), 4) * 4)


def good(pick: random.Random) -> Call:
    m = pick.choice([1, 17, 32, 130, 256])
    n, k = pick.choice([16, 32, 144, 256]), pick.choice([16, 32, 128, 144, 272])
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
    return Call(rows(a_type, m, k), columns(b_type, k, n), scale_a, scale_b, use_fast_accum=pick.random() < 0.5)


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
        "a padded": lambda: replace(call, a=replace(a, strides=(k + pick.choice([8, 16]), 1))),
        "b padded": lambda: replace(call, b=replace(b, strides=(1, k + pick.choice([8, 16])))),
        "a overlapping": lambda: replace(call, a=replace(a, strides=(pick.choice([1, 8, 16]), 1))),
        "b overlapping": lambda: replace(call, b=replace(b, strides=(1, pick.choice([1, 8, 16])))),
        "a column-major": lambda: replace(call, a=columns(a.dtype, m, k)),
        "b row-major": lambda: replace(call, b=rows(b.dtype, k, n)),
        "a without unit stride": lambda: replace(call, a=replace(a, strides=(2 * max(k, 1), 2))),
        "b without unit stride": lambda: replace(call, b=replace(b, strides=(2, 2 * max(k, 1)))),
        "a a vector": lambda: replace(call, a=rows(a.dtype, k)),
        "b of three dimensions": lambda: replace(call, b=rows(b.dtype, k, n, 1)),
        "K of b": lambda: replace(call, b=columns(b.dtype, pick.choice([k + 16, 40]), n)),
        "K of both": lambda: replace(call, a=rows(a.dtype, m, 40), b=columns(b.dtype, 40, n)),
        "N": lambda: replace(call, b=columns(b.dtype, k, pick.choice([24, 40]))),
        "a scale's type": lambda: replace(
            call, scale_a=replace(call.scale_a, dtype=pick.choice([F16, "float64", E8M0]))
        ),
        "both scales' types": lambda: replace(
            call, scale_a=replace(call.scale_a, dtype=E8M0), scale_b=replace(call.scale_b, dtype=E8M0)
        ),
        "MXFP8": lambda: replace(call, scale_a=microscales(E8M0, m, k, 32), scale_b=microscales(E8M0, n, k, 32)),
        "NVFP4": lambda: replace(
            call, a=replace(a, dtype=FP4), b=replace(b, dtype=FP4),
            scale_a=microscales(E4M3, m, 2 * k, 16), scale_b=microscales(E4M3, n, 2 * k, 16),
        ),
        "4-bit operands": lambda: replace(
            call, a=replace(a, dtype=FP4), b=replace(b, dtype=pick.choice([FP4, b.dtype]))
        ),
        "scale_a's shape": lambda: replace(call, scale_a=rows(F32, *pick.choice([(m,), (m, 2), (2,), (1, m)]))),
        "scale_b's shape": lambda: replace(call, scale_b=rows(F32, *pick.choice([(n,), (2, n), (n, 1), (1, 1, 1)]))),
        "scales exchanged": lambda: replace(call, scale_a=call.scale_b, scale_b=call.scale_a),
        "strides of scale_a": lambda: replace(
            call, scale_a=replace(call.scale_a, strides=tuple(2 * stride for stride in call.scale_a.strides))
        ),
        "layout of scale_a": lambda: replace(call, scale_a=rows(F32, *call.scale_a.shape)),
        "bias": lambda: replace(call, bias=rows(pick.choice([BF16, F16, F32]), pick.choice([n, n + 1]))),
        "scale_result": lambda: replace(call, scale_result=rows(pick.choice([F32, F16]), *pick.choice([(), (2,)]))),
        "out_dtype": lambda: replace(call, out_dtype=pick.choice([None, F32, F16, E4M3, E5M2, "int32"])),
    }  # fmt: skip
    name = pick.choice(sorted(changes))
    return replace(changes[name](), changes=(*call.changes, name))


def calls(count: int) -> list[Call]:
    pick = random.Random(20261201)
    found = []
    for _ in range(count):
        call = good(pick)
        for _ in range(pick.choice([0, 1, 1, 1, 2])):
            call = changed(call, pick)
        found.append(call)
    return found


PAIRS = [("TensorWise", "TensorWise"), ("RowWise", "RowWise"), ("BlockWise1x128", "BlockWise128x128")]
PAIRS += [("BlockWise128x128", "BlockWise1x128"), ("BlockWise1x128", "BlockWise1x128"), ("TensorWise", "RowWise")]


def functional_scale(recipe: str, outer: int, k: int, second: bool) -> Tensor:
    """A scale as torch.nn.functional.scaled_mm takes it."""
    blocks = up(k, 128)
    if recipe == "TensorWise":
        return rows(F32)
    if recipe == "RowWise":
        return rows(F32, 1, outer) if second else rows(F32, outer, 1)
    if recipe == "BlockWise1x128":
        return columns(F32, outer, blocks)
    return columns(F32, up(blocks, 4) * 4, up(outer, 128))


def functional_calls(count: int) -> list[Call]:
    pick = random.Random(7)
    found = []
    for _ in range(count):
        pair = pick.choice(PAIRS)
        m, n, k = pick.choice([17, 128, 256]), pick.choice([32, 128, 256]), pick.choice([128, 256, 512])
        if pick.random() < 0.05:
            m, n, k = pick.choice([(0, n, k), (m, 0, k), (m, n, 0)])
        call = Call(
            rows(pick.choice([E4M3, E4M3, E5M2]), m, k), columns(pick.choice([E4M3, E4M3, E5M2]), k, n),
            functional_scale(pair[0], m, k, False), functional_scale(pair[1], n, k, True),
            recipes=pair, use_fast_accum=pick.random() < 0.5,
        )  # fmt: skip
        for _ in range(pick.choice([0, 1, 1])):
            call = changed(call, pick)
        found.append(call)
    return found
