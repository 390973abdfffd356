# SPDX-License-Identifier: Apache-2.0
"""`torch.ops.mmaemu.scaled_mm`: the bits of the function, eager and compiled, and what torch asks of an operator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import mmaemu
import mmaemu.torch_ops
from mmaemu.errors import InvalidInputError, ReferenceRejectsError, UnsupportedFeatureError
from mmaemu.testing import assert_bitwise_equal

F8 = torch.float8_e4m3fn
OP = torch.ops.mmaemu.scaled_mm


def operands(m=32, n=48, k=64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(m, k, generator=generator).to(F8)
    b = torch.randn(n, k, generator=generator).to(F8).t()
    return a, b, torch.tensor(0.5), torch.tensor(1.5)


CALLS: dict[str, Any] = {
    "tensor-wise": ({}, {"out_dtype": torch.bfloat16}),
    "torch's own default type": ({}, {}),
    "row-wise with a bias": (
        {"scale_a": torch.rand(32, 1) + 0.5, "scale_b": torch.rand(1, 48) + 0.5, "bias": torch.randn(48).bfloat16()},
        {"out_dtype": torch.bfloat16, "profile": "l40s"},
    ),
    "fast, split": ({}, {"out_dtype": torch.float32, "use_fast_accum": True, "splits": 2, "split_scheme": "inplace"}),
    "scaled result": ({"scale_result": torch.tensor(2.0)}, {"profile": "h200"}),
}


def call(name):
    a, b, scale_a, scale_b = operands()
    tensors, options = CALLS[name]
    given: dict[str, Any] = {"self": a, "mat2": b, "scale_a": scale_a, "scale_b": scale_b, **tensors}
    return list(given.values())[:4], {**{k: v for k, v in given.items() if k in ("bias", "scale_result")}, **options}


def expected(args, options):
    options = dict(options)
    splits, scheme = options.pop("splits", None), options.pop("split_scheme", None)
    return mmaemu.scaled_mm(*args, splitk=(splits, scheme) if splits else None, **options)


@pytest.mark.parametrize("name", CALLS)
def test_the_operator_gives_the_functions_bits(name):
    args, options = call(name)
    assert_bitwise_equal(OP(*args, **options), expected(args, options))


@pytest.mark.parametrize("name", CALLS)
def test_torch_finds_nothing_wrong_with_the_operator(name):
    """All of opcheck but test_schema, which compares tensors by a subtraction that torch lacks for fp8; the next test
    looks at what that one would."""
    args, options = call(name)
    checks = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_static", "test_aot_dispatch_dynamic")
    result = torch.library.opcheck(OP.default, tuple(args), options, test_utils=checks)
    assert set(result.values()) == {"SUCCESS"}


def test_the_operator_neither_changes_nor_returns_its_operands():
    args, options = call("row-wise with a bias")
    before = [tensor.clone() for tensor in args]
    out = OP(*args, **options)
    for tensor, copy in zip(args, before, strict=True):
        assert_bitwise_equal(tensor, copy)
        assert out.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr()


def layer(x, weight, scale):
    """A small fp8 layer as a model has it: quantise, multiply, go on in another type."""
    out = OP((x * 2).to(F8), weight, scale, scale, out_dtype=torch.bfloat16, profile="l40s")
    return out.float().relu() + 1


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # inductor's own imports
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_graph_holds_the_operator_whole(backend):
    _, b, scale, _ = operands()
    x = torch.randn(32, 64)
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    assert_bitwise_equal(compiled(x, b, scale), layer(x, b, scale))


def test_a_compiled_graph_takes_other_numbers_of_rows():
    _, b, scale, _ = operands()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (32, 17, 5):
        x = torch.randn(rows, 64)
        assert_bitwise_equal(compiled(x, b, scale), layer(x, b, scale))


def test_shapes_and_types_are_known_without_data():
    a, b, *scales = (tensor.to("meta") for tensor in operands())
    out = OP(a, b, *scales, out_dtype=torch.float32)
    assert (out.shape, out.dtype, out.device.type) == ((32, 48), torch.float32, "meta")
    assert OP(a, b, *scales).dtype == F8


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"profile": "rtx9999"}, InvalidInputError),
        ({"profile": "a100"}, UnsupportedFeatureError),
        ({"out_dtype": torch.float8_e5m2}, ReferenceRejectsError),
        ({"splits": 2, "split_scheme": "sideways"}, InvalidInputError),
    ],
)
def test_errors_are_those_of_the_function(change, error):
    a, b, scale_a, scale_b = operands()
    with pytest.raises(error):
        OP(a, b, scale_a, scale_b, **change)


def test_an_operand_that_autograd_follows_is_refused():
    a, b, scale_a, scale_b = operands()
    with pytest.raises(UnsupportedFeatureError, match="requires_grad"):
        OP(a, b, scale_a.requires_grad_(), scale_b)
    with torch.no_grad():
        OP(a, b, scale_a, scale_b)


def test_a_vector_is_refused_while_tracing_too():
    a, b, *scales = (tensor.to("meta") for tensor in operands())
    with pytest.raises(ReferenceRejectsError):
        OP(a[0], b, *scales)
