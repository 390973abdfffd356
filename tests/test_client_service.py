# SPDX-License-Identifier: Apache-2.0
"""The client against the real service, over a socket: what comes back is what a local call gives or raises."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.support.service import running

import mmaemu
import mmaemu.remote
from mmaemu import Bits, Spec, calls, profiles, wire
from mmaemu.errors import (
    BadReplyError,
    InvalidInputError,
    LimitExceededError,
    MmaemuError,
    ReferenceRejectsError,
    ReferenceRejectsValueError,
    RemoteError,
    UnsupportedFeatureError,
)
from mmaemu.remote import AsyncClient, Client
from mmaemu.testing import assert_bitwise_equal

pytestmark = pytest.mark.timeout(120)

ONE = np.float32(1)


@pytest.fixture(scope="module")
def url():
    with running() as address:
        yield address


@pytest.fixture(autouse=True)
def _address(request, monkeypatch):
    for name in [name for name in os.environ if name.startswith("MMAEMU_") and name != "MMAEMU_TRUTH_DIR"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MMAEMU_URL", request.getfixturevalue("url"))


def operands(m=4, k=160, n=32, seed=0):
    """Finite numbers of wide exponents, and one NaN in the first row of a; b column-major."""
    draw = np.random.default_rng(seed)
    a, b = (draw.integers(0, 0x60, shape) | draw.integers(0, 2, shape) << 7 for shape in ((m, k), (n, k)))
    a[:1, :1] = 0x7F
    return Bits("float8_e4m3fn", a.astype(np.uint8)), Bits("float8_e5m2", b.astype(np.uint8).T)


def as_numpy(bits):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return bits.array.view(getattr(ml_dtypes, bits.dtype))


def as_torch(bits):
    torch = pytest.importorskip("torch")
    lying = bits.array.T if bits.array.flags.f_contiguous else bits.array
    tensor = torch.from_numpy(lying.copy()).view(getattr(torch, bits.dtype))
    return tensor.t() if lying is not bits.array else tensor


def as_bits(bits):
    return bits


KINDS = {"bits": as_bits, "numpy": as_numpy, "torch": as_torch}


def scale_like(kind, value):
    if kind == "torch":
        return pytest.importorskip("torch").tensor(value)
    return np.float32(value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("out_dtype", ["float32", "bfloat16", "float8_e4m3fn"])
def test_scaled_mm_gives_the_bits_and_the_kind_of_a_local_call(kind, out_dtype):
    a, b = (KINDS[kind](bits) for bits in operands())
    arguments = (a, b, scale_like(kind, 0.37), scale_like(kind, 1.7))
    local = mmaemu.scaled_mm(*arguments, out_dtype=out_dtype)
    remote = mmaemu.remote.scaled_mm(*arguments, out_dtype=out_dtype)
    assert type(remote) is type(local)
    assert_bitwise_equal(remote, local)


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_can_be_written_to(kind):
    a, b = (KINDS[kind](bits) for bits in operands())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns where memory is read-only
        out = mmaemu.remote.scaled_mm(a, b, scale_like(kind, 1.0), scale_like(kind, 1.0), out_dtype="float32")
    array = out.array if kind == "bits" else out
    array[0, 0] = 1
    assert array[0, 0] == 1


def test_accumulate_gives_the_bits_of_a_local_call():
    a, b = operands()
    local = mmaemu.accumulate(a, b, use_fast_accum=True)
    assert_bitwise_equal(mmaemu.remote.accumulate(a, b, use_fast_accum=True), local)


def rows_and_columns(kind, m=4, n=32):
    draw = np.random.default_rng(3)
    scales = [draw.random(shape, np.float32) + np.float32(0.5) for shape in ((m, 1), (1, n))]
    if kind == "torch":
        return [pytest.importorskip("torch").from_numpy(scale) for scale in scales]
    return scales


def bias_like(kind, n=32):
    words = np.random.default_rng(4).integers(0, 0xFFFF, n, np.uint16)
    return KINDS[kind](Bits("bfloat16", words))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("profile", ["l40s", "h100-pcie-cublaslt12.8", "h100-pcie-cublaslt12.9"])
def test_row_wise_scales_and_a_bias_travel(kind, profile):
    draw = operands()
    a, b = (KINDS[kind](Bits("float8_e4m3fn", bits.array)) for bits in draw)
    arguments = (a, b, *rows_and_columns(kind), bias_like(kind))
    options: dict[str, Any] = {"out_dtype": "bfloat16", "profile": profile}
    local = mmaemu.scaled_mm(*arguments, **options)
    remote = mmaemu.remote.scaled_mm(*arguments, **options)
    assert type(remote) is type(local)
    assert_bitwise_equal(remote, local)


def block_call():
    """1x128 by 128x128 blocks of a [130, 272] by [272, 144] product."""
    draw = np.random.default_rng(5)
    a, b = (Bits("float8_e4m3fn", draw.integers(0, 0x60, shape, np.uint8)) for shape in ((130, 272), (144, 272)))
    scale_a = draw.random((3, 130), np.float32).T
    scale_b = draw.random((2, 3), np.float32).T
    options: dict[str, Any] = {"out_dtype": "float32", "profile": "h100-pcie-cublaslt12.9"}
    return (a, Bits("float8_e4m3fn", b.array.T), scale_a, scale_b), options


def test_block_scales_travel_with_their_layout():
    arguments, options = block_call()
    assert_bitwise_equal(mmaemu.remote.scaled_mm(*arguments, **options), mmaemu.scaled_mm(*arguments, **options))
    a, b, scale_a, scale_b = arguments
    for call in (mmaemu.scaled_mm, mmaemu.remote.scaled_mm):
        with pytest.raises(ReferenceRejectsError, match="strides"):
            call(a, b, np.ascontiguousarray(scale_a), scale_b, **options)


def test_block_scales_in_json_lie_as_torch_wants_them():
    (a, b, scale_a, scale_b), options = block_call()
    words = [Bits("float32", np.ascontiguousarray(scale).view(np.uint32)) for scale in (scale_a, scale_b)]
    tensors = {"a": a, "b_t": Bits(b.dtype, np.ascontiguousarray(b.array.T)), "scale_a": words[0], "scale_b": words[1]}
    body = wire.call_to_json(wire.Call("scaled_mm", tensors, options), "b64")
    reply = httpx.post(
        f"{os.environ['MMAEMU_URL']}/v1/scaled_mm", content=body, headers={"content-type": wire.JSON_TYPE}
    )
    found = wire.reply_from_json(reply.content).tensors["out"]
    want = mmaemu.scaled_mm(a, b, scale_a, scale_b, **options)
    assert_bitwise_equal(found, Bits("float32", want.array))


def test_a_value_error_of_torch_is_one_from_the_service_too():
    a, b = (Bits("float8_e5m2", bits.array) for bits in operands())
    for call in (mmaemu.scaled_mm, mmaemu.remote.scaled_mm):
        with pytest.raises(ReferenceRejectsValueError, match="e5m2") as caught:
            call(a, b, ONE, ONE, profile="h100-pcie-cublaslt12.9")
        assert isinstance(caught.value, ValueError) and isinstance(caught.value, RuntimeError)
        with pytest.raises(ReferenceRejectsError) as caught_old:
            call(a, b, ONE, ONE, profile="h100-pcie-cublaslt12.8")
        assert not isinstance(caught_old.value, ValueError)


def test_out_is_written_here():
    torch = pytest.importorskip("torch")
    a, b = (as_torch(bits) for bits in operands())
    one = torch.tensor(1.0)
    out = torch.zeros(4, 32, dtype=torch.bfloat16)
    assert mmaemu.remote.scaled_mm(a, b, one, one, out=out) is out
    assert_bitwise_equal(out, mmaemu.scaled_mm(a, b, one, one, out_dtype=torch.bfloat16))
    for call in (mmaemu.scaled_mm, mmaemu.remote.scaled_mm):
        with pytest.raises(ReferenceRejectsError, match="out_dtype"):
            call(a, b, one, one, out_dtype=torch.float32, out=out)


BAD: dict[str, dict[str, Any]] = {
    "a bias of another size": {"bias": np.zeros(31, np.float16)},
    "a float32 bias": {"bias": np.zeros(32, np.float32)},
    "row scales of another size": {"scale_a": np.ones((5, 1), np.float32), "scale_b": np.ones((1, 32), np.float32)},
}


@pytest.mark.parametrize("name", BAD)
def test_bad_scales_and_biases_are_refused_alike_and_the_service_goes_on(name):
    a, b = operands()
    call: dict[str, Any] = {"a": a, "b": b, "scale_a": ONE, "scale_b": ONE, "out_dtype": "float16", **BAD[name]}
    messages = []
    for function in (mmaemu.scaled_mm, mmaemu.remote.scaled_mm):
        with pytest.raises(ReferenceRejectsError) as caught:
            function(**call)
        messages.append((caught.value.field, str(caught.value)))
    assert messages[0] == messages[1]
    assert mmaemu.remote.scaled_mm(a, b, ONE, ONE, out_dtype="float16").shape == (4, 32)


def changing(arguments, options, plain):
    """The local result with `options`, seen to differ from the one with `plain`."""
    found = mmaemu.scaled_mm(*arguments, **options)
    assert (found.array != mmaemu.scaled_mm(*arguments, **plain).array).any(), "these operands show no difference"
    return found


@pytest.mark.parametrize(
    "option", [{"splitk": (3, "output_type")}, {"profile": "h100-pcie-cublaslt12.8"}, {"use_fast_accum": True}]
)
def test_an_option_reaches_the_engine(option):
    arguments = (*operands(k=512), ONE, ONE)
    plain: dict[str, Any] = {"profile": "l40s", "out_dtype": "bfloat16"}
    local = changing(arguments, plain | option, plain)
    assert_bitwise_equal(mmaemu.remote.scaled_mm(*arguments, **(plain | option)), local)


def test_overrides_by_name_are_those_of_a_profile():
    arguments = *operands(k=512), ONE, ONE
    overrides = {"gemm.slow_chunks": [32]}
    own = profiles.get("l40s").with_overrides(overrides)
    local = changing(arguments, {"out_dtype": "float32", "profile": own}, {"out_dtype": "float32", "profile": "l40s"})
    named: dict[str, Any] = {"out_dtype": "float32", "profile": "l40s", "overrides": overrides}
    remote = mmaemu.remote.scaled_mm(*arguments, **named)
    assert_bitwise_equal(remote, local)


def test_a_profile_object_travels_with_its_overrides():
    arguments = (*operands(k=512), ONE, ONE)
    own = profiles.get("l40s").with_overrides({"gemm.slow_chunks": (64,)}).with_overrides({"gemm.slow_chunks": (32,)})
    local = changing(arguments, {"out_dtype": "float32", "profile": own}, {"out_dtype": "float32", "profile": "l40s"})
    options: dict[str, Any] = {"out_dtype": "float32", "profile": own}
    assert_bitwise_equal(mmaemu.remote.scaled_mm(*arguments, **options), local)


def test_a_profile_object_that_the_service_does_not_have_is_refused():
    from dataclasses import replace

    a, b = operands()
    foreign = replace(profiles.get("l40s"), note="another content under the same name")
    with pytest.raises(BadReplyError) as caught:
        mmaemu.remote.scaled_mm(a, b, ONE, ONE, out_dtype="float32", profile=foreign)
    assert caught.value.field == "profile"


def test_the_default_profile_is_the_callers_own(monkeypatch):
    a, b = operands()
    monkeypatch.setenv("MMAEMU_PROFILE", "l40s")
    assert mmaemu.remote.explain(a, b, out_dtype="bfloat16").profile["name"] == "l40s"


def test_explain_gives_the_trace_of_a_local_call():
    a, b = operands()
    local = mmaemu.explain(a, b, ONE, ONE, out_dtype="bfloat16", cells=[(1, 2), (0, 31)])
    remote = mmaemu.remote.explain(a, b, ONE, ONE, out_dtype="bfloat16", cells=[(1, 2), (0, 31)])
    assert remote == local


def test_explain_of_shapes_gives_the_plan_of_a_local_call():
    a, b = Spec("float8_e4m3fn", (64, 512)), Spec("float8_e4m3fn", (512, 32), (1, 512))
    assert mmaemu.remote.explain(a, b, out_dtype="bfloat16") == mmaemu.explain(a, b, out_dtype="bfloat16")


def test_explain_of_torch_meta_tensors_gives_the_plan_of_a_local_call():
    torch = pytest.importorskip("torch")
    a = torch.empty(64, 512, dtype=torch.float8_e4m3fn, device="meta")
    b = torch.empty(32, 512, dtype=torch.float8_e4m3fn, device="meta").t()
    scale = torch.empty((), device="meta")
    arguments = (a, b, scale, scale)
    remote = mmaemu.remote.explain(*arguments, out_dtype=torch.bfloat16)
    assert remote == mmaemu.explain(*arguments, out_dtype=torch.bfloat16)


def words(draw, shape, width):
    return np.frombuffer(draw.bytes(int(np.prod(shape)) * width), f"u{width}").reshape(shape)


@pytest.mark.parametrize(
    ("fmt", "width", "acc", "acc_width", "preset"), [("e4m3", 1, "f32", 4, "ada"), ("f16", 2, "f16", 2, "ampere")]
)
def test_mma_gives_the_words_of_dot(fmt, width, acc, acc_width, preset):
    draw = np.random.default_rng(1)
    a, b, c = words(draw, (64, 16), width), words(draw, (64, 16), width), words(draw, (64,), acc_width)
    local = mmaemu.model.dot(a, b, c, fmt, fmt, preset=preset, acc=acc)
    assert_bitwise_equal(mmaemu.remote.mma(a, b, c, fmt, fmt, preset=preset, acc=acc), local)


def test_mma_takes_words_as_tf32():
    draw = np.random.default_rng(2)
    a, b, c = words(draw, (64, 8), 4), words(draw, (64, 8), 4), words(draw, (64,), 4)
    local = mmaemu.model.dot(a, b, c, "tf32", "tf32", preset="ampere")
    assert_bitwise_equal(mmaemu.remote.mma(a, b, c, "tf32", "tf32", preset="ampere"), local)


def test_mma_takes_float32_numbers_as_tf32():
    draw = np.random.default_rng(2)
    a, b, c = words(draw, (64, 8), 4), words(draw, (64, 8), 4), words(draw, (64,), 4)
    local = mmaemu.model.dot(a, b, c, "tf32", "tf32", preset="ampere")
    numbers = a.view(np.float32), b.view(np.float32), c.view(np.float32)
    remote = mmaemu.remote.mma(*numbers, "tf32", "tf32", preset="ampere")
    assert_bitwise_equal(remote, local.view(np.float32))


def test_mma_gives_tensors_back_for_tensors():
    a, b = (Bits("float16", np.full((3, 16), 0x3C00, np.uint16)) for _ in "ab")
    c = Bits("float32", np.zeros(3, np.uint32))
    assert_bitwise_equal(
        mmaemu.remote.mma(a, b, c, preset="ampere"), Bits("float32", np.full(3, 0x41800000, np.uint32))
    )  # 16.0


@pytest.mark.parametrize("op", ["scaled_mm", "explain"])
def test_a_call_from_a_file_is_answered_as_the_engine_answers_it(op):
    a, b = operands()
    one = Bits("float32", np.array(0x3F800000, np.uint32))
    packed = {"a": a, "b_t": Bits(b.dtype, b.array.T), "scale_a": one, "scale_b": one}
    call = wire.Call(op, packed, {"out_dtype": "bfloat16", "profile": "l40s"})
    local = calls.run(call)
    with Client() as client:
        remote = client.send(call)
    assert remote.info == local.info
    assert list(remote.tensors) == list(local.tensors)
    for name, bits in local.tensors.items():
        assert_bitwise_equal(remote.tensors[name], bits)


def bad_calls():
    a, b = operands()
    rows = Bits("float8_e5m2", np.ascontiguousarray(b.array))
    vector = Bits("float8_e4m3fn", np.zeros(160, np.uint8))
    cube = Bits("float8_e4m3fn", np.zeros((2, 4, 160), np.uint8))
    row_scales = np.ones((4, 1), np.float32), np.ones((1, 32), np.float32)
    padded = Bits("float8_e5m2", np.zeros((32, 320), np.uint8)[:, :160].T)
    strided = np.ones((8, 1), np.float32)[::2]
    return {
        "row-major b": ((a, rows, ONE, ONE), {}),
        "column-major a": ((Bits(a.dtype, np.asfortranarray(a.array)), b, ONE, ONE), {}),
        "both e5m2": ((Bits("float8_e5m2", a.array), b, ONE, ONE), {}),
        "a of 1 dimension": ((vector, b, ONE, ONE), {}),
        "b of 3 dimensions": ((a, cube, ONE, ONE), {}),
        "inner sizes": ((a, Bits(b.dtype, b.array[:144]), ONE, ONE), {}),
        "K of 8": ((Bits(a.dtype, a.array[:, :8].copy()), Bits(b.dtype, b.array[:8].T.copy().T), ONE, ONE), {}),
        "bf16 a": ((Bits("bfloat16", np.zeros((4, 160), np.uint16)), b, ONE, ONE), {}),
        "float16 scale": ((a, b, np.float16(1), ONE), {}),
        "scale of 3 numbers": ((a, b, np.ones(3, np.float32), ONE), {}),
        "rows of scales without their axis": ((a, b, np.ones(4, np.float32), np.ones(32, np.float32)), {}),
        "row scales": ((a, b, *row_scales), {}),
        "row scales with gaps": ((a, b, strided, row_scales[1]), {}),
        "padded b is fine but a float32 bias is not": (
            (a, padded, ONE, ONE, Bits("float32", np.zeros(32, np.uint32))),
            {},
        ),
        "bias of 3": ((a, b, ONE, ONE, np.ones(3, np.float16)), {}),
        "scale_result on bfloat16": ((a, b, ONE, ONE, None, ONE), {}),
        "fp64 output": ((a, b, ONE, ONE), {"out_dtype": "float64"}),
        "output that is no type": ((a, b, ONE, ONE), {"out_dtype": object()}),
        "unknown profile": ((a, b, ONE, ONE), {"profile": "gtx480"}),
        "profile without products": ((a, b, ONE, ONE), {"profile": "v100"}),
        "unknown backend": ((a, b, ONE, ONE), {"backend": "abacus"}),
        "splitk of 0": ((a, b, ONE, ONE), {"splitk": 0}),
        "splitk by an unknown scheme": ((a, b, ONE, ONE), {"splitk": (2, "magic")}),
        "use_fast_accum of 1": ((a, b, ONE, ONE), {"use_fast_accum": 1}),
        "python float as scale": ((a, b, 1.0, ONE), {}),
        "a list as a": (([[1.0]], b, ONE, ONE), {}),
        "shapes without data": ((Spec("float8_e4m3fn", (4, 160)), b, ONE, ONE), {}),
        "float64 a": ((np.zeros((4, 160)), b, ONE, ONE), {}),
        "int32 bias": ((a, b, ONE, ONE, np.zeros(32, np.int32)), {}),
    }


@pytest.mark.parametrize("name", bad_calls())
def test_a_refusal_is_the_same_error_as_locally(name):
    arguments, options = bad_calls()[name]
    options = {"out_dtype": "bfloat16", **options}
    with pytest.raises(MmaemuError) as local:
        mmaemu.scaled_mm(*arguments, **options)
    with pytest.raises(MmaemuError) as remote:
        mmaemu.remote.scaled_mm(*arguments, **options)
    assert type(remote.value) is type(local.value)
    assert (remote.value.message, remote.value.details()) == (local.value.message, local.value.details())


def test_a_padded_column_major_b_is_taken_as_it_is():
    a, _ = operands()
    wide = np.random.default_rng(3).integers(0, 256, (32, 320), np.uint8)
    b = Bits("float8_e4m3fn", wide[:, :160].T)
    local = mmaemu.scaled_mm(a, b, ONE, ONE, out_dtype="bfloat16")
    assert_bitwise_equal(mmaemu.remote.scaled_mm(a, b, ONE, ONE, out_dtype="bfloat16"), local)


@pytest.mark.parametrize("shape", [(0, 160, 32), (4, 0, 32), (4, 160, 0)])
def test_empty_sizes_come_back_as_locally(shape):
    a, b = operands(*shape)
    local = mmaemu.scaled_mm(a, b, ONE, ONE, out_dtype="bfloat16")
    assert_bitwise_equal(mmaemu.remote.scaled_mm(a, b, ONE, ONE, out_dtype="bfloat16"), local)


def test_tensors_under_autograd_are_refused_before_anything_is_sent():
    torch = pytest.importorskip("torch")
    a, b = (as_torch(bits) for bits in operands())
    scale = torch.ones((), requires_grad=True)
    with pytest.raises(UnsupportedFeatureError) as local:
        mmaemu.scaled_mm(a, b, scale, scale, out_dtype=torch.bfloat16)
    with pytest.raises(UnsupportedFeatureError) as remote:
        mmaemu.remote.scaled_mm(a, b, scale, scale, out_dtype=torch.bfloat16, url="http://127.0.0.1:9")
    assert remote.value.message == local.value.message


def test_tensors_under_autograd_pass_without_grad_mode():
    torch = pytest.importorskip("torch")
    a, b = (as_torch(bits) for bits in operands())
    scale = torch.ones((), requires_grad=True)
    with torch.no_grad():
        local = mmaemu.scaled_mm(a, b, scale, scale, out_dtype=torch.bfloat16)
        assert_bitwise_equal(mmaemu.remote.scaled_mm(a, b, scale, scale, out_dtype=torch.bfloat16), local)


def test_mma_refuses_autograd():
    torch = pytest.importorskip("torch")
    a = b = torch.ones(2, 16, dtype=torch.float16)
    c = torch.zeros(2, requires_grad=True)
    with pytest.raises(UnsupportedFeatureError, match="^c: got requires_grad"):
        mmaemu.remote.mma(a, b, c, preset="ampere")


def test_a_reference_rejection_is_also_a_runtime_error():
    a, b = operands()
    with pytest.raises(RuntimeError):
        mmaemu.remote.scaled_mm(a, Bits(b.dtype, np.ascontiguousarray(b.array)), ONE, ONE)


def test_more_cells_than_the_service_allows_are_its_refusal():
    a, b = operands()
    cells = [(0, 0)] * (mmaemu.remote.limits()["max_cells"] + 1)
    with pytest.raises(LimitExceededError) as caught:
        mmaemu.remote.explain(a, b, out_dtype="bfloat16", cells=cells)
    assert caught.value.field == "cells"


def test_an_option_that_json_cannot_hold_is_named():
    a, b = operands()
    with pytest.raises(InvalidInputError) as caught:
        mmaemu.remote.scaled_mm(a, b, ONE, ONE, backend={1, 2})  # type: ignore[arg-type]
    assert caught.value.field == "backend"


def test_the_async_client_gives_the_same_bits():
    a, b = operands()

    async def call(address):
        async with AsyncClient(address) as client:
            return await asyncio.gather(
                client.scaled_mm(a, b, ONE, ONE, out_dtype="bfloat16"),
                client.explain(a, b, ONE, ONE, out_dtype="bfloat16", cells=[(0, 0)]),
            )

    out, trace = asyncio.run(call(os.environ["MMAEMU_URL"]))
    assert_bitwise_equal(out, mmaemu.scaled_mm(a, b, ONE, ONE, out_dtype="bfloat16"))
    assert trace == mmaemu.explain(a, b, ONE, ONE, out_dtype="bfloat16", cells=[(0, 0)])


def test_the_async_client_raises_what_a_local_call_raises():
    a, b = operands()
    rows = Bits(b.dtype, np.ascontiguousarray(b.array))

    async def call(address):
        async with AsyncClient(address) as client:
            await client.scaled_mm(a, rows, ONE, ONE)

    with pytest.raises(ReferenceRejectsError):
        asyncio.run(call(os.environ["MMAEMU_URL"]))


def test_the_async_client_works_on_the_application_itself():
    from mmaemu_server.app import create_app
    from mmaemu_server.settings import Settings

    async def call():
        app = create_app(Settings.model_validate({}))
        async with AsyncClient("http://service", transport=httpx.ASGITransport(app)) as client:
            return await client.version()

    assert asyncio.run(call())["engine_version"] == mmaemu.__version__


def test_the_service_tells_its_version():
    assert mmaemu.remote.version()["engine_version"] == mmaemu.__version__


def test_the_service_lists_the_profiles_of_its_engine():
    assert all(name in str(mmaemu.remote.profiles()) for name in profiles.names())


def test_the_service_describes_one_profile():
    assert mmaemu.remote.profile("l40s")["name"] == "l40s"


def test_the_service_does_not_know_a_profile_that_is_none():
    with pytest.raises((InvalidInputError, RemoteError), match="gtx480"):
        mmaemu.remote.profile("gtx480")


@pytest.mark.parametrize("name", ["backends", "limits", "health"])
def test_the_service_describes_itself(name):
    assert getattr(mmaemu.remote, name)()


def test_the_documented_example_prints_what_the_page_shows():
    page = (Path(__file__).parents[1] / "docs/client.md").read_text()
    code, shown = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", page, re.DOTALL)[0]
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.stdout == shown, run.stderr


def test_url_wins_over_the_variable():
    with Client("http://127.0.0.1:9", max_retries=0) as client, pytest.raises(RemoteError):
        client.version()
