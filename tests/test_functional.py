# SPDX-License-Identifier: Apache-2.0
"""`mmaemu.functional.scaled_mm`: recipes in every spelling, the bits of `scaled_mm`, and torch's own refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import ScalingType, SwizzleType

import mmaemu
from mmaemu.errors import InvalidInputError, MmaemuError, ReferenceRejectsValueError, UnsupportedFeatureError
from mmaemu.recipes import NAMES
from mmaemu.testing import assert_bitwise_equal

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
M, N, K = 130, 144, 272
NEWER = "h100-pcie-cublaslt12.9"


def operands():
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(M, K, generator=generator).to(E4M3)
    return a, torch.randn(N, K, generator=generator).to(E4M3).t()


def vector(outer, seed=1):
    return (torch.rand(3, outer, generator=torch.Generator().manual_seed(seed)) + 0.5).t()


def square(outer, seed=2):
    """Three K blocks, rounded up to four."""
    return (torch.rand(-(-outer // 128), 4, generator=torch.Generator().manual_seed(seed)) + 0.5).t()


def cut(outer):
    """The same scales without the fourth block, [outer blocks, K blocks]."""
    return square(outer)[:3].t().contiguous()


ONE = torch.tensor(0.75)
# recipe of a, of b, scales for functional.scaled_mm, the same scales for scaled_mm
KINDS: dict[str, tuple[str, str, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]] = {
    "tensor-wise": ("TensorWise", "TensorWise", ONE, ONE, ONE, ONE),
    "row-wise": ("RowWise", "RowWise", *(2 * (torch.rand(M, 1) + 0.5, torch.rand(1, N) + 0.5))),
    "1x128 by 128x128": ("BlockWise1x128", "BlockWise128x128", vector(M), square(N), vector(M), cut(N).t()),
    "128x128 by 1x128": ("BlockWise128x128", "BlockWise1x128", square(M), vector(N), cut(M), vector(N).t()),
    "1x128 by 1x128": ("BlockWise1x128", "BlockWise1x128", vector(M), vector(N), vector(M), vector(N).t()),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fast", [False, True])
def test_the_bits_are_those_of_scaled_mm(kind, fast):
    a, b = operands()
    recipe_a, recipe_b, scale_a, scale_b, v1_a, v1_b = KINDS[kind]
    bias = torch.linspace(-1, 1, N).bfloat16()
    options: dict[str, Any] = {"use_fast_accum": fast, "profile": NEWER}
    got = mmaemu.functional.scaled_mm(a, b, scale_a, recipe_a, scale_b, recipe_b, bias=bias, **options)
    assert got.dtype == torch.bfloat16, "the default, unlike _scaled_mm's"
    assert_bitwise_equal(got, mmaemu.scaled_mm(a, b, v1_a, v1_b, bias, out_dtype=torch.bfloat16, **options))


@pytest.mark.parametrize("spelled", ["enum", "number", "name", "list"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_recipe_is_an_enum_a_number_a_name_or_a_list_of_one(kind, spelled):
    a, b = operands()
    recipe_a, recipe_b, scale_a, scale_b, *_ = KINDS[kind]
    spell = {
        "enum": lambda name: getattr(ScalingType, name), "number": lambda name: NAMES.index(name),
        "name": lambda name: name, "list": lambda name: [getattr(ScalingType, name)],
    }[spelled]  # fmt: skip
    scales = [[scale_a], [scale_b]] if spelled == "list" else [scale_a, scale_b]
    want = mmaemu.functional.scaled_mm(a, b, scale_a, recipe_a, scale_b, recipe_b, profile=NEWER)
    got = mmaemu.functional.scaled_mm(a, b, scales[0], spell(recipe_a), scales[1], spell(recipe_b), profile=NEWER)
    assert_bitwise_equal(got, want)


def test_names_stand_in_the_order_of_torchs_numbers():
    assert {name: getattr(ScalingType, name).value for name in NAMES} == {name: i for i, name in enumerate(NAMES)}


def test_swizzles_and_the_usual_contraction_change_nothing():
    a, b = operands()
    want = mmaemu.functional.scaled_mm(a, b, ONE, "TensorWise", ONE, "TensorWise")
    swizzles = SwizzleType.SWIZZLE_32_4_4, SwizzleType.NO_SWIZZLE
    got = mmaemu.functional.scaled_mm(a, b, ONE, "TensorWise", ONE, "TensorWise", *swizzles, contraction_dim=(1, 0))
    assert_bitwise_equal(got, want)


def test_no_output_type_is_as_type():
    a, b = operands()
    got = mmaemu.functional.scaled_mm(a, b, ONE, "TensorWise", ONE, "TensorWise", output_dtype=None)
    assert got.dtype == E4M3


# What torch does not come to look at where M, N or K is 0.
UNSEEN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "row-wise scales": {"scale_recipe_a": ScalingType.RowWise, "scale_recipe_b": ScalingType.RowWise},
    "block-wise scales": {
        "scale_recipe_a": ScalingType.BlockWise1x128, "scale_recipe_b": ScalingType.BlockWise1x128,
    },
    "microscales": {"scale_recipe_a": ScalingType.BlockWise1x32, "scale_recipe_b": ScalingType.BlockWise1x32},
    "recipes that do not go together": {"scale_recipe_b": ScalingType.RowWise},
    "a half scale": {"scale_b": torch.ones(7).half()},
    "a bias of another size": {"bias": torch.ones(3)},
    "a contraction of three": {"contraction_dim": (1, 0, 2)},
    "fp8 for the output": {"output_dtype": E5M2},
}  # fmt: skip


@pytest.mark.parametrize("shapes", [((0, K), (K, N)), ((M, K), (K, 0)), ((M, 0), (0, N)), ((0, 40), (7, 13))])
@pytest.mark.parametrize("unseen", UNSEEN)
def test_an_empty_size_comes_back_before_anything_is_looked_at(shapes, unseen):
    a, b = (torch.zeros(shape).to(E4M3) for shape in shapes)
    call: dict[str, Any] = {
        "scale_a": torch.ones(7), "scale_recipe_a": ScalingType.TensorWise,
        "scale_b": torch.ones(7), "scale_recipe_b": ScalingType.TensorWise, **UNSEEN[unseen],
    }  # fmt: skip
    assert_bitwise_equal(
        mmaemu.functional.scaled_mm(a, b, **call, profile=NEWER), torch.nn.functional.scaled_mm(a, b, **call)
    )


def test_an_empty_product_has_a_torch_type_that_is_modelled():
    a, b = torch.zeros(0, K).to(E4M3), torch.zeros(K, N).to(E4M3)
    with pytest.raises(UnsupportedFeatureError, match="out_dtype"):
        mmaemu.functional.scaled_mm(a, b, ONE, "TensorWise", ONE, "TensorWise", output_dtype=torch.int32)
    with pytest.raises(UnsupportedFeatureError, match="requires_grad"):
        mmaemu.functional.scaled_mm(a, b, ONE.clone().requires_grad_(), "TensorWise", ONE, "TensorWise")
    with pytest.raises(UnsupportedFeatureError, match="instructions only"):
        mmaemu.functional.scaled_mm(a, b, ONE, "TensorWise", ONE, "TensorWise", profile="a100")


PACKED = torch.zeros(2 * M, K, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
VALUE_ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "a vector": ({"mat_a": torch.zeros(K).to(E4M3)}, "a"),
    "inner sizes": ({"mat_b": torch.zeros(N, 16).to(E4M3).t()}, "b"),
    "bias of another size": ({"bias": torch.ones(3).bfloat16()}, "bias"),
    "K": ({"mat_a": torch.zeros(M, 40).to(E4M3), "mat_b": torch.zeros(N, 40).to(E4M3).t()}, "a"),
    "N": ({"mat_b": torch.zeros(40, K).to(E4M3).t()}, "b"),
    "a type": ({"mat_a": torch.zeros(M, K)}, "a"),
    "e5m2 twice": ({"mat_a": torch.zeros(M, K).to(E5M2), "mat_b": torch.zeros(N, K).to(E5M2).t()}, "a, b"),
    "a float32 bias": ({"bias": torch.ones(N)}, "bias"),
    "bias with a float32 output": ({"bias": torch.ones(N).bfloat16(), "output_dtype": torch.float32}, "bias"),
    "a scale of two numbers": ({"scale_a": torch.ones(2)}, "scale_a"),
    "a half scale": ({"scale_b": torch.ones(()).half()}, "scale_b"),
    "recipes that do not go together": ({"scale_recipe_b": "RowWise"}, "scale_recipe_a, scale_recipe_b"),
    "row scales of another shape": (
        {
            "scale_recipe_a": "RowWise", "scale_recipe_b": "RowWise",
            "scale_a": torch.ones(M), "scale_b": torch.ones(1, N),
        },
        "scale_a",
    ),
    "block scales in the wrong layout": (
        {
            "scale_recipe_a": "BlockWise1x128", "scale_recipe_b": "BlockWise1x128",
            "scale_a": torch.ones(M, 3), "scale_b": vector(N),
        },
        "scale_a",
    ),
    "block scales not rounded up to four": (
        {
            "scale_recipe_a": "BlockWise1x128", "scale_recipe_b": "BlockWise128x128",
            "scale_a": vector(M), "scale_b": torch.ones(2, 3).t(),
        },
        "scale_b",
    ),
    "a contraction of three": ({"contraction_dim": (1, 0, 2)}, "contraction_dim"),
    "a contraction of two sizes": ({"contraction_dim": (0, 1)}, "contraction_dim"),
    "a contraction of b's columns": ({"contraction_dim": (-1, -1)}, "contraction_dim"),
    "no recipe": ({"scale_recipe_a": []}, "scale_recipe_a, scale_recipe_b"),
    "two recipes": (
        {"scale_recipe_a": [ScalingType.TensorWise, ScalingType.TensorWise]},
        "scale_recipe_a, scale_recipe_b",
    ),
    "two scales": ({"scale_a": [ONE, ONE]}, "scale_recipe_a, scale_recipe_b"),
    "blocks of e5m2": (
        {
            "scale_recipe_a": "BlockWise1x128", "scale_recipe_b": "BlockWise1x128",
            "mat_a": torch.zeros(M, K).to(E5M2), "scale_a": vector(M), "scale_b": vector(N),
        },
        "a",
    ),
    "sizes before recipes": (
        {"mat_b": torch.zeros(N, 16).to(E4M3).t(), "scale_recipe_b": "RowWise"},
        "b",
    ),
    "the bias's size before recipes": ({"bias": torch.ones(3).bfloat16(), "scale_recipe_b": "RowWise"}, "bias"),
    "types before recipes": ({"mat_b": torch.zeros(N, K).t(), "scale_recipe_b": "RowWise"}, "b"),
    "recipes before scales": (
        {"scale_recipe_b": "RowWise", "scale_b": torch.ones(2).half()},
        "scale_recipe_a, scale_recipe_b",
    ),
    "4-bit operands": ({"mat_a": PACKED, "mat_b": PACKED[:N].t()}, "a"),
    "4-bit operands with fast accumulation": (
        {"mat_a": PACKED, "mat_b": PACKED[:N].t(), "use_fast_accum": True},
        "use_fast_accum",
    ),
}  # fmt: skip


def refusal(change) -> MmaemuError:
    a, b = operands()
    call: dict[str, Any] = {
        "mat_a": a, "mat_b": b, "scale_a": ONE, "scale_recipe_a": "TensorWise", "scale_b": ONE,
        "scale_recipe_b": "TensorWise", "profile": NEWER,
    }  # fmt: skip
    with pytest.raises(MmaemuError) as caught:
        mmaemu.functional.scaled_mm(**{**call, **change})
    return caught.value


@pytest.mark.parametrize("name", VALUE_ERRORS)
def test_refusals_are_value_errors_that_name_the_field(name):
    change, field = VALUE_ERRORS[name]
    error = refusal(change)
    assert type(error) is ReferenceRejectsValueError and error.field == field and error.got and error.wanted


def spelled_for_torch(name, change):
    """torch takes its enum alone, or a list of its members."""
    recipe = change.get(name, "TensorWise")
    return getattr(ScalingType, recipe) if isinstance(recipe, str) else recipe


# What cuBLASLt wants and torch's kernel for CPUs does not.
FREE_ON_CPUS = {"K", "N", "e5m2 twice", "a float32 bias", "bias with a float32 output"}


@pytest.mark.parametrize("name", VALUE_ERRORS)
def test_torchs_kernel_for_cpus_raises_value_errors_too(name):
    change, _ = VALUE_ERRORS[name]
    a, b = operands()
    recipes = {field: spelled_for_torch(field, change) for field in ("scale_recipe_a", "scale_recipe_b")}
    call: dict[str, Any] = {"mat_a": a, "mat_b": b, "scale_a": ONE, "scale_b": ONE, **change, **recipes}
    if name in FREE_ON_CPUS:
        assert torch.nn.functional.scaled_mm(**call).shape == (call["mat_a"].shape[0], call["mat_b"].shape[1])
    else:
        with pytest.raises((ValueError, IndexError)):
            torch.nn.functional.scaled_mm(**call)


@pytest.mark.parametrize("recipe", ["BlockWise1x32", "BlockWise1x16"])
def test_blackwells_scales_are_not_modelled(recipe):
    error = refusal({"scale_recipe_a": recipe, "scale_recipe_b": recipe})
    assert type(error) is UnsupportedFeatureError and "Blackwell" in str(error)


def test_nvfp4_in_two_levels_is_not_modelled():
    recipe, scales = ["BlockWise1x16", "TensorWise"], [torch.ones(2 * 128 * 36).to(E4M3), ONE]
    change = {"scale_recipe_a": recipe, "scale_recipe_b": recipe, "scale_a": scales, "scale_b": scales}
    error = refusal({**change, "mat_a": PACKED[:M, :264], "mat_b": PACKED[:N, :264].t()})
    assert type(error) is UnsupportedFeatureError and "NVFP4" in str(error)


def test_another_contraction_of_equal_sizes_is_not_modelled():
    error = refusal({"mat_a": torch.zeros(N, K).to(E4M3), "contraction_dim": (0, 1)})
    assert type(error) is UnsupportedFeatureError and error.field == "contraction_dim"


def test_blocks_are_not_modelled_for_a_profile_that_lacks_them():
    change = {"scale_recipe_a": "BlockWise1x128", "scale_recipe_b": "BlockWise1x128", "profile": "l40s"}
    error = refusal({**change, "scale_a": vector(M), "scale_b": vector(N)})
    assert type(error) is UnsupportedFeatureError


def test_row_scales_with_gaps_are_not_modelled():
    """torch lets them pass and its kernels read the gaps."""
    change = {"scale_recipe_a": "RowWise", "scale_recipe_b": "RowWise", "scale_b": torch.ones(1, N)}
    error = refusal({**change, "scale_a": torch.ones(2 * M, 1)[::2]})
    assert type(error) is UnsupportedFeatureError and error.field == "scale_a"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"scale_recipe_a": "PerToken"}, "scale_recipe_a"), ({"scale_recipe_b": 17}, "scale_recipe_b"),
        ({"scale_a": []}, "scale_a"), ({"scale_a": 1.0}, "scale_a"), ({"contraction_dim": (1, 2)}, "contraction_dim"),
        ({"contraction_dim": (True, 0)}, "contraction_dim"),
    ],
)  # fmt: skip
def test_malformed_recipes_and_scales_are_named(change, field):
    error = refusal(change)
    assert type(error) is InvalidInputError and error.field == field
