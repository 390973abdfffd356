# SPDX-License-Identifier: Apache-2.0
"""Operands for a call that nobody has data for: seeded, and only in the rows and columns that will be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mmaemu.errors import InvalidInputError
from mmaemu.model import formats

if TYPE_CHECKING:
    from mmaemu.bits import Bits

KINDS = ("gauss", "adversarial")
SCALES = ("tensor-wise", "row-wise", "1x128-128x128", "128x128-1x128", "1x128-1x128")
_LARGEST = 1 << 30


def operands(
    shape: tuple[int, int, int], names: Sequence[str], cells: Sequence[Sequence[int]], seed: int, kind: str
) -> dict[str, Bits]:
    """a [M, K] and b_t [N, K]: zero but for the rows and columns of `cells`. A row is the same whatever else is asked.

    gauss: normal numbers of variance 1, rounded to the format. adversarial: any finite code, so that exponents are wide
    and half of the products cancel the other half's.
    """
    from mmaemu.bits import Bits

    m, n, k = shape
    if (m + n) * k > _LARGEST:
        raise InvalidInputError.because("--shape", got=f"{(m + n) * k} elements", wanted=f"at most {_LARGEST}")
    found = {}
    for index, (name, rows, format_name) in enumerate(zip(("a", "b_t"), (m, n), names, strict=True)):
        fmt = formats.get(format_name, "--formats")
        if fmt not in formats.FP8:
            raise InvalidInputError.because("--formats", got=format_name, wanted="e4m3 or e5m2 with --random")
        words = np.zeros((rows, k), np.uint8)
        for row in sorted({cell[index] for cell in cells if 0 <= cell[index] < rows}):
            words[row] = _row(np.random.default_rng([seed, index, row]), k, fmt, kind)
        found[name] = Bits(fmt.torch_name, words)
    return found


def _row(draw: np.random.Generator, k: int, fmt: formats.Format, kind: str) -> Any:
    if kind == "gauss":
        from mmaemu import profiles
        from mmaemu.model.epilogue import convert

        numbers = draw.standard_normal(k).astype(np.float32)
        return convert(numbers.view(np.uint32), fmt, profiles.get(profiles.DEFAULT).gemm)
    largest = fmt.max_finite
    return (draw.integers(0, largest + 1, k) | draw.integers(0, 2, k) << 7).astype(np.uint8)


def scales(shape: tuple[int, int, int], kind: str, seed: int | None) -> dict[str, Bits]:
    """scale_a and scale_b of a kind; ones without a seed."""
    from mmaemu.bits import Bits

    m, n, k = shape
    blocks = -(-k // 128)
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "tensor-wise": ((), ()),
        "row-wise": ((m, 1), (1, n)),
        "1x128-128x128": ((m, blocks), (blocks, -(-n // 128))),
        "128x128-1x128": ((-(-m // 128), blocks), (blocks, n)),
        "1x128-1x128": ((m, blocks), (blocks, n)),
    }
    found: dict[str, Bits] = {}
    for index, (name, size) in enumerate(zip(("scale_a", "scale_b"), shapes[kind], strict=True)):
        values = np.ones(size, np.float32)
        if seed is not None:
            values = np.asarray(np.random.default_rng([seed, 2 + index]).uniform(0.5, 2, size), np.float32)
        found[name] = Bits("float32", values.view(np.uint32))
    return found


def bias(n: int, out_dtype: str | None, seed: int | None) -> Bits:
    """N numbers of the output's type, or bfloat16 for fp8; zeros without a seed."""
    from mmaemu import profiles
    from mmaemu.bits import Bits
    from mmaemu.model.epilogue import convert

    fmt = formats.F16 if out_dtype in ("float16", "f16") else formats.BF16
    values = np.zeros(n, np.float32)
    if seed is not None:
        values = np.random.default_rng([seed, 4]).standard_normal(n).astype(np.float32)
    return Bits(fmt.torch_name, convert(values.view(np.uint32), fmt, profiles.get(profiles.DEFAULT).gemm))
