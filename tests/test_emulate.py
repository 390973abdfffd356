# SPDX-License-Identifier: Apache-2.0
"""`mmaemu.emulate`: whoever calls torch's scaled products inside it gets the profile's bits, and nobody else does."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.nn import functional
from torch.nn.functional import ScalingType

import mmaemu
from mmaemu.errors import InvalidInputError, ReferenceRejectsError, UnsupportedFeatureError
from mmaemu.testing import assert_bitwise_equal

F8, BF16 = torch.float8_e4m3fn, torch.bfloat16
ADA, HOPPER = "l40s", "h100-pcie-cublaslt12.8"
M, N, K = 40, 48, 320


def operands(seed=0):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(M, K, generator=generator).to(F8)
    return a, torch.randn(N, K, generator=generator).to(F8).t()


def rows_and_columns(seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(M, 1, generator=generator) + 0.5, torch.rand(1, N, generator=generator) + 0.5


SCALES = {"tensor-wise": (torch.tensor(0.3), torch.tensor(1.7)), "row-wise": rows_and_columns()}
RECIPES = {"tensor-wise": ScalingType.TensorWise, "row-wise": ScalingType.RowWise}


@pytest.mark.parametrize("profile", [ADA, HOPPER, "h100-pcie-cublaslt12.9"])
@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("bias", [None, torch.linspace(-2, 2, N).to(BF16)], ids=["no bias", "bias"])
def test_torch_returns_the_emulated_bits(profile, kind, fast, bias):
    a, b = operands()
    scale_a, scale_b = SCALES[kind]
    want = mmaemu.scaled_mm(a, b, scale_a, scale_b, bias, out_dtype=BF16, use_fast_accum=fast, profile=profile)
    out = torch.empty(M, N, dtype=BF16)
    with mmaemu.emulate(profile) as emulation:
        assert_bitwise_equal(torch._scaled_mm(a, b, scale_a, scale_b, bias, out_dtype=BF16, use_fast_accum=fast), want)
        written = torch._scaled_mm(a, b, scale_a, scale_b, bias=bias, out_dtype=BF16, use_fast_accum=fast, out=out)
        recipe = RECIPES[kind]
        v2 = functional.scaled_mm(a, b, scale_a, recipe, scale_b, recipe, bias=bias, use_fast_accum=fast)
    assert written is out
    assert_bitwise_equal(out, want)
    assert_bitwise_equal(v2, want)
    assert emulation.calls == 3


def test_scale_result_and_torchs_default_type_travel():
    a, b = operands()
    scale, result = torch.tensor(0.3), torch.tensor(0.125)
    want = mmaemu.scaled_mm(a, b, scale, scale, None, result, profile=ADA)
    with mmaemu.emulate(ADA):
        got = torch._scaled_mm(a, b, scale, scale, scale_result=result)
    assert got.dtype == F8
    assert_bitwise_equal(got, want)


def test_block_scales_go_by_recipe_and_by_shape():
    a, b = operands()
    vector = (torch.rand(3, M) + 0.5).t()
    square = torch.rand(1, 4).t() + 0.5
    profile = "h100-pcie-cublaslt12.9"
    want = mmaemu.scaled_mm(a, b, vector, square[:3], out_dtype=BF16, profile=profile)
    with mmaemu.emulate(profile):
        got = functional.scaled_mm(a, b, vector, ScalingType.BlockWise1x128, square, ScalingType.BlockWise128x128)
        assert_bitwise_equal(got, want)
        assert_bitwise_equal(torch._scaled_mm(a, b, vector, square[:3], out_dtype=BF16), want)


def test_everything_else_is_torchs_own():
    x = torch.randn(5, 7)
    plain = x @ x.t(), torch.nn.functional.gelu(x), x.to(F8)
    with mmaemu.emulate(ADA) as emulation:
        inside = x @ x.t(), torch.nn.functional.gelu(x), x.to(F8)
    for one, other in zip(plain, inside, strict=True):
        assert_bitwise_equal(one, other)
    assert emulation.calls == 0


def test_outside_the_block_torch_is_itself_again():
    a, b = operands()
    scale = torch.tensor(0.3)
    before = torch._scaled_mm(a, b, scale, scale, out_dtype=torch.float32)
    with mmaemu.emulate(ADA):
        inside = torch._scaled_mm(a, b, scale, scale, out_dtype=torch.float32)
    after = torch._scaled_mm(a, b, scale, scale, out_dtype=torch.float32)
    assert_bitwise_equal(after, before)
    with pytest.raises(AssertionError):
        assert_bitwise_equal(inside, before)


def test_the_block_ends_with_an_error_too():
    a, b = operands()
    with pytest.raises(ReferenceRejectsError), mmaemu.emulate(ADA):
        torch._scaled_mm(a, b, torch.ones(2), torch.ones(2))
    assert torch._scaled_mm(a, b, torch.tensor(1.0), torch.tensor(1.0), out_dtype=BF16).shape == (M, N)


def test_the_innermost_block_decides():
    a, b = operands()
    scale = torch.tensor(0.3)
    want = {name: mmaemu.scaled_mm(a, b, scale, scale, out_dtype=torch.float32, profile=name) for name in (ADA, HOPPER)}
    with mmaemu.emulate(ADA) as outer:
        first = torch._scaled_mm(a, b, scale, scale, out_dtype=torch.float32)
        with mmaemu.emulate(HOPPER) as inner:
            second = torch._scaled_mm(a, b, scale, scale, out_dtype=torch.float32)
        third = torch._scaled_mm(a, b, scale, scale, out_dtype=torch.float32)
    assert_bitwise_equal(first, want[ADA])
    assert_bitwise_equal(second, want[HOPPER])
    assert_bitwise_equal(third, want[ADA])
    assert (outer.calls, inner.calls) == (2, 1)


def test_threads_are_emulated_each_for_itself():
    a, b = operands()
    scale = torch.tensor(0.3)
    want = mmaemu.scaled_mm(a, b, scale, scale, out_dtype=torch.float32, profile=ADA)
    plain = torch._scaled_mm(a, b, scale, scale, out_dtype=torch.float32)
    shared = mmaemu.emulate(ADA)
    found: dict[str, list[torch.Tensor]] = {"inside": [], "beside": []}

    def inside():
        with shared:
            for _ in range(5):
                found["inside"].append(torch._scaled_mm(a, b, scale, scale, out_dtype=torch.float32))

    def beside():
        found["beside"].append(torch._scaled_mm(a, b, scale, scale, out_dtype=torch.float32))

    with shared:
        threads = [threading.Thread(target=work) for work in (inside, inside, inside, beside)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found["inside"]) == 15 and shared.calls == 15
    for out in found["inside"]:
        assert_bitwise_equal(out, want)
    assert_bitwise_equal(found["beside"][0], plain)


def test_the_log_tells_what_was_multiplied():
    a, b = operands()
    with mmaemu.emulate(ADA, log=True) as emulation:
        scale_a, scale_b = rows_and_columns()
        torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=BF16, use_fast_accum=True)
        functional.scaled_mm(a, b, torch.ones(()), ScalingType.TensorWise, torch.ones(()), ScalingType.TensorWise)
    first, second = emulation.log
    assert (first.m, first.n, first.k, first.a, first.out_dtype) == (M, N, K, "float8_e4m3fn", "bfloat16")
    assert (first.scale_a, first.scale_b, first.use_fast_accum, first.bias) == ((M, 1), (1, N), True, False)
    assert [call.function for call in (first, second)] == ["_scaled_mm", "_scaled_mm_v2"]
    assert {call.profile for call in emulation.log} == {ADA}


def test_without_a_log_nothing_is_kept():
    a, b = operands()
    with mmaemu.emulate(ADA) as emulation:
        torch._scaled_mm(a, b, torch.ones(()), torch.ones(()), out_dtype=BF16)
    assert (emulation.calls, emulation.log) == (1, [])


class Product(torch.autograd.Function):
    """How training libraries call it: inside a function with a derivative of its own."""

    @staticmethod
    def forward(ctx, x, weight):
        return torch._scaled_mm(x.to(F8), weight, torch.ones(()), torch.ones(()), out_dtype=BF16)

    @staticmethod
    def backward(ctx, grad):
        return grad.float().sum(1, keepdim=True).expand(M, K), None


def test_autograd_functions_around_the_call_work():
    _, b = operands()
    x = torch.randn(M, K, requires_grad=True)
    with mmaemu.emulate(ADA) as emulation:
        Product.apply(x, b).float().sum().backward()
    assert emulation.calls == 1 and x.grad is not None and x.grad.shape == (M, K)


def test_an_operand_that_requires_grad_is_refused_outside_of_no_grad():
    a, b = operands()
    scale = torch.tensor(0.3, requires_grad=True)
    with mmaemu.emulate(ADA):
        with pytest.raises(UnsupportedFeatureError, match="requires_grad"):
            torch._scaled_mm(a, b, scale, scale, out_dtype=BF16)
        with torch.no_grad():
            torch._scaled_mm(a, b, scale, scale, out_dtype=BF16)


def test_a_compiled_function_is_emulated_too():
    a, b = operands()
    scale = torch.tensor(0.3)

    def layer(x):
        return torch._scaled_mm(x, b, scale, scale, out_dtype=torch.float32) + 1

    compiled = torch.compile(layer, backend="aot_eager")
    compiled(a)
    with mmaemu.emulate(ADA) as emulation:
        got = compiled(a)
        want = layer(a)
    assert emulation.calls == 2
    assert_bitwise_equal(got, want)


def test_tracing_with_fake_tensors_is_left_to_torch():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), mmaemu.emulate(ADA) as emulation:
        a, b = torch.empty(M, K, dtype=F8), torch.empty(N, K, dtype=F8).t()
        assert torch._scaled_mm(a, b, torch.ones(()), torch.ones(()), out_dtype=BF16).shape == (M, N)
    assert emulation.calls == 0


@pytest.mark.parametrize(("profile", "error"), [("a100", UnsupportedFeatureError), ("rtx9999", InvalidInputError)])
def test_a_profile_without_products_is_refused_at_once(profile, error):
    with pytest.raises(error):
        mmaemu.emulate(profile)
