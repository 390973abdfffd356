# SPDX-License-Identifier: Apache-2.0
"""The whole story on one screen: read, check, plan, multiply, finish. A line a stage."""

from __future__ import annotations

from typing import Any

import numpy as np

from mmaemu import factors, prepared, request, tensors
from mmaemu.backends import execute, registry
from mmaemu.backends.interface import Progress
from mmaemu.model import dot_product
from mmaemu.model.formats import AnyBits
from mmaemu.profiles import Instruction, Profile
from mmaemu.request import Request, Splitk


def scaled_mm(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    *,
    profile: str | Profile | None = None,
    splitk: int | Splitk | None = None,
    backend: str = "auto",
    out: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """What `torch._scaled_mm` returns on the profile's GPU, bit for bit: [M, N] of `out_dtype`.

    NaN results are the one NaN of the output type (float32 0x7FFFFFFF, 16-bit 0x7FFF, fp8 0x7F). fp8 outputs saturate,
    the others overflow to infinity. K = 0 gives zeros and ignores scales and bias; M or N = 0 an empty result.

    a: [M, K] row-major, b: [K, N] column-major, float8_e4m3fn or float8_e5m2 (not e5m2 twice), K and N multiples of
    16. scale_a, scale_b: one float32 each (tensor-wise), (M, 1) and (1, N) (row-wise), or under a profile of torch 2.13
    blocks of 128: (M, K/128) or (M/128, K/128), and (K/128, N) or (K/128, N/128). bias: N numbers of float16 or
    bfloat16. scale_result: one float32, for fp8 outputs. Operands are torch tensors, numpy and ml_dtypes arrays, or
    Bits; the result comes back as `a` went in. out_dtype defaults to out's type, else to a's, as torch's does.

    profile: a name of `mmaemu.profiles.names()` or a Profile (default MMAEMU_PROFILE, else `profiles.DEFAULT`).
    splitk: (S, scheme) or S in place of the library's own choice. out: written and returned; a torch tensor of another
    shape is resized, with torch's warning where it was not empty. threads: default MMAEMU_THREADS, else all. progress:
    called with (tiles done, tiles in all).

    Raises ReferenceRejectsError where torch or cuBLASLt would refuse, UnsupportedFeatureError where mmaemu has not
    modelled the call, BackendUnavailableError where this machine cannot run it, InvalidInputError for arguments that
    are malformed in mmaemu's own terms.
    """
    call = request.build(
        a, b, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum,
        profile=profile, splitk=splitk, backend=backend, out=out,
    )  # fmt: skip
    return run(call, out, threads=threads, progress=progress)


def run(call: Request, out: Any = None, *, threads: int | None = None, progress: Progress | None = None) -> Any:
    """`scaled_mm` of a request."""
    layout = prepared.plan_of(call)
    backend = registry.choose(call.backend).backend
    words = execute.multiply(
        backend, call.a.data, call.b.data, factors.of(call), layout, threads=threads, progress=progress
    )
    if out is not None:
        return tensors.fill(out, words, call.out_dtype)
    return tensors.give_back(words, call.out_dtype, call.a)


def accumulate(
    a: Any,
    b: Any,
    *,
    use_fast_accum: bool = False,
    scale_a: Any = None,
    scale_b: Any = None,
    out_dtype: Any = "float32",
    profile: str | Profile | None = None,
    splitk: int | Splitk | None = None,
    backend: str = "auto",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """The float32 accumulators before the epilogue, [M, N]: `scaled_mm` up to its scales.

    Operands and errors as in `scaled_mm`, but any sizes and any layouts will do: rows and columns of a recorded product
    may be cut out, and a K that is no multiple of the instruction's is padded with zeros, as hardware pads. Row-wise
    scales choose the sums of the row-wise kernels, block-wise ones are part of the sum; otherwise the scales count only
    for split-K under a profile that scales partials, out_dtype only for split-K schemes that keep partials in the
    output type.
    """
    one = np.ones((), np.float32)
    call = request.build(
        a, b, one if scale_a is None else scale_a, one if scale_b is None else scale_b, None, None, out_dtype,
        use_fast_accum, profile=profile, splitk=splitk, backend=backend,
    )  # fmt: skip
    layout = prepared.plan_of(call, whole_call=False)
    engine = registry.choose(call.backend).backend
    words = execute.accumulate(
        engine, call.a.data, call.b.data, factors.of(call), layout, threads=threads, progress=progress
    )
    return tensors.give_back(words, "float32", call.a)


def mma(
    a: AnyBits,
    b: AnyBits,
    c: AnyBits,
    fmt_a: str,
    fmt_b: str,
    *,
    preset: str | Instruction,
    acc: str = "f32",
    backend: str = "auto",
    threads: int | None = None,
    progress: Progress | None = None,
) -> AnyBits:
    """What one tensor-core instruction returns for each row: [count] words of a[i] . b[i] + c[i].

    Arguments, bits and errors are those of `mmaemu.model.dot`, which is the reference; this takes the fastest backend.
    backend, threads, progress: as in `scaled_mm`.
    """
    how = dot_product.checked(a, b, c, fmt_a, fmt_b, preset=preset, acc=acc)
    return registry.choose(backend).backend.dot(a, b, c, how, threads=threads, progress=progress)
