# SPDX-License-Identifier: Apache-2.0
"""Wire calls on the local engine: the same bits as the functions of the same name, and typed refusals."""

from __future__ import annotations

import numpy as np
import pytest

import mmaemu
from mmaemu import Bits, calls, model, profiles
from mmaemu.backends import registry
from mmaemu.errors import BackendUnavailableError, InvalidInputError, MmaemuError, ReferenceRejectsError
from mmaemu.model import formats
from mmaemu.testing import assert_bitwise_equal
from mmaemu.wire import Call

M, N, K = 3, 32, 160


def words(shape, dtype="float8_e4m3fn", seed=0):
    storage = formats.get(dtype).storage
    drawn = np.random.default_rng(seed).integers(0, 1 << (8 * storage.itemsize), shape, np.uint64)
    return Bits(dtype, drawn.astype(storage))


def scale(word=0x3F000000):
    return Bits("float32", np.array(word, np.uint32))


def gemm(op="scaled_mm", tensors=None, **options):
    own = {"a": words((M, K)), "b_t": words((N, K), seed=1), "scale_a": scale(), "scale_b": scale(0x40400000)}
    own |= tensors or {}
    return Call(op, {name: bits for name, bits in own.items() if bits is not None}, options)


def refusal(call, kind=InvalidInputError):
    with pytest.raises(MmaemuError) as caught:
        calls.run(call)
    assert type(caught.value) is kind
    return caught.value


def local(function, call, **options):
    b = call.tensors["b_t"]
    return function(
        call.tensors["a"],
        Bits(b.dtype, b.array.T),
        scale_a=call.tensors["scale_a"],
        scale_b=call.tensors["scale_b"],
        **options,
    )


@pytest.mark.parametrize(
    "options",
    [
        {"out_dtype": "float32"},
        {"out_dtype": "bfloat16", "use_fast_accum": True},
        {"out_dtype": "float16", "profile": "rtx4060-cublaslt12.8"},
        {"profile": "h200"},
        {"out_dtype": "float32", "splitk": (2, "compute_type")},
    ],
)
def test_scaled_mm_gives_the_bits_of_the_function(options):
    call = gemm(**options)
    assert_bitwise_equal(calls.run(call).tensors["out"], local(mmaemu.scaled_mm, call, **options))


def test_accumulate_gives_the_bits_of_the_function():
    call = gemm("accumulate", use_fast_accum=True)
    assert_bitwise_equal(calls.run(call).tensors["out"], local(mmaemu.accumulate, call, use_fast_accum=True))


def test_accumulate_needs_no_scales():
    call = gemm("accumulate", {"scale_a": None, "scale_b": None})
    assert calls.run(call).tensors["out"].dtype == "float32"


def test_b_given_as_rows_counts_as_column_major():
    transposed = gemm(out_dtype="float32")
    rows = Bits("float8_e4m3fn", np.ascontiguousarray(transposed.tensors["b_t"].array.T))
    call = gemm(tensors={"b_t": None, "b": rows}, out_dtype="float32")
    assert_bitwise_equal(calls.run(call).tensors["out"], calls.run(transposed).tensors["out"])


def test_overrides_change_the_profile_and_its_digest():
    plain, changed = (
        calls.run(gemm(out_dtype="float32", overrides=overrides)) for overrides in ({}, {"gemm.slow_chunks": [32]})
    )
    assert plain.info["profile"] == changed.info["profile"]
    assert plain.info["profile_digest"] != changed.info["profile_digest"]
    wanted = profiles.get().with_overrides({"gemm.slow_chunks": [32]})
    assert changed.info["profile_digest"] == wanted.digest


def test_info_names_what_computed():
    info = calls.run(gemm(profile="h200")).info
    assert info == {
        "engine_version": mmaemu.__version__,
        "profile": "h200",
        "profile_digest": profiles.get("h200").digest,
    }


@pytest.mark.parametrize("word", [0x7FC00000, 0x7F800000, 0xFF800000])
def test_scales_that_are_not_finite_follow_ieee(word):
    call = gemm(tensors={"scale_a": scale(word)}, out_dtype="float32")
    found = calls.run(call).tensors["out"]
    assert_bitwise_equal(found, local(mmaemu.scaled_mm, call, out_dtype="float32"))
    assert ((found.array >> 23) & 0xFF == 0xFF).all()


def mma(count=5, k=32, dtype="float8_e4m3fn", **options):
    tensors = {"a": words((count, k), dtype), "b": words((count, k), dtype, 1), "c": words((count,), "float32", 2)}
    return Call("mma", tensors, {"preset": "hopper-wgmma", **options})


def test_mma_gives_the_words_of_dot():
    call = mma()
    a, b, c = (call.tensors[name].array for name in "abc")
    reply = calls.run(call)
    wanted = model.dot(a, b, c, "e4m3", "e4m3", preset="hopper-wgmma")
    assert_bitwise_equal(reply.tensors["d"], Bits("float32", wanted))
    assert reply.info == {"engine_version": mmaemu.__version__, "preset": "hopper-wgmma"}


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_mma_in_slices_gives_the_same_words(monkeypatch, backend):
    if not (status := mmaemu.backends_status()[backend]).available:
        pytest.skip(f"needs the backend {backend}: {status.reason}")
    module = registry.choose(backend).backend
    whole = calls.run(mma(count=7, backend=backend)).tensors["d"]
    monkeypatch.setattr(module, "DOT_PRODUCTS", 64)
    seen = []
    sliced = calls.run(mma(count=7, backend=backend), progress=lambda done, total: seen.append((done, total)))
    assert_bitwise_equal(sliced.tensors["d"], whole)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize("name", ["b", "c"])
def test_mma_sees_shapes_that_disagree(name):
    call = mma(count=7)
    longer = mma(count=9)
    assert refusal(Call("mma", {**call.tensors, name: longer.tensors[name]}, call.options)).field == name


def test_mma_runs_on_the_backend_that_the_call_names():
    with pytest.raises(BackendUnavailableError):
        calls.run(mma(backend="cuda"))
    with pytest.raises(InvalidInputError, match="backend"):
        calls.run(mma(backend="abacus"))


def test_mma_reads_tf32_from_float32_words():
    call = mma(k=8, dtype="float32", preset="ampere", fmt_a="tf32", fmt_b="tf32")
    a, b, c = (call.tensors[name].array for name in "abc")
    wanted = model.dot(a, b, c, "tf32", "tf32", preset="ampere")
    assert_bitwise_equal(calls.run(call).tensors["d"], Bits("float32", wanted))


def test_explain_of_shapes_alone_gives_the_plan():
    specs = {
        "a": {"dtype": "float8_e4m3fn", "shape": [M, K]},
        "b": {"dtype": "float8_e4m3fn", "shape": [K, N]},
    }
    reply = calls.run(Call("explain", {}, {"specs": specs, "out_dtype": "float32"}))
    assert reply.tensors == {} and reply.info["call"]["k"] == K and reply.info["cells"] == []


def test_explain_gives_the_trace_of_the_function():
    call = gemm("explain", out_dtype="float32", cells=[[0, 1], [2, 31]])
    wanted = local(mmaemu.explain, call, out_dtype="float32", cells=[(0, 1), (2, 31)])
    assert calls.run(call).info == wanted.to_dict()


def test_row_major_b_is_refused_as_the_reference_does():
    call = gemm(tensors={"b_t": None, "b": words((K, N))}, strides={"b": [N, 1]})
    assert refusal(call, ReferenceRejectsError).field == "b"


def test_strides_of_b_t_are_those_of_the_tensor_as_it_came():
    call = gemm(strides={"b_t": [1, N]})
    assert refusal(call, ReferenceRejectsError).field == "b"


def test_b_t_in_rows_is_a_column_major_b():
    call = gemm(out_dtype="float32")
    assert_bitwise_equal(
        calls.run(gemm(out_dtype="float32", strides={"b_t": [K, 1]})).tensors["out"], calls.run(call).tensors["out"]
    )


def test_column_major_a_is_refused_as_the_reference_does():
    assert refusal(gemm(strides={"a": [1, M]}), ReferenceRejectsError).field == "a"


SPEC = {"dtype": "float8_e4m3fn", "shape": [16, 16]}
MALFORMED = {
    "no a": (gemm(tensors={"a": None}), "a"),
    "no b": (gemm(tensors={"b_t": None}), "b"),
    "both b and b_t": (gemm(tensors={"b": words((K, N))}), "b"),
    "no scale_a": (gemm(tensors={"scale_a": None}), "scale_a"),
    "no scale_b": (gemm(tensors={"scale_b": None}), "scale_b"),
    "an unknown profile": (gemm(profile="h9000"), "profile"),
    "a profile that is no name": (gemm(profile=["h200"]), "profile"),
    "overrides that are a list": (gemm(overrides=[1]), "overrides"),
    "an unknown override": (gemm(overrides={"gemm.nothing": 1}), "overrides"),
    "an override out of range": (gemm(overrides={"instruction.fraction_bits": 99}), "instruction.fraction_bits"),
    "an out_dtype that is a number": (gemm(out_dtype=8), "out_dtype"),
    "use_fast_accum that is a number": (gemm(use_fast_accum=1), "use_fast_accum"),
    "splitk that is text": (gemm(splitk="4"), "splitk"),
    "splitk of three": (gemm(splitk=[1, 2, 3]), "splitk"),
    "a splitk scheme that is a list": (gemm(splitk=[2, ["inplace"]]), "splitk"),
    "an unknown splitk scheme": (gemm(splitk=[2, "sideways"]), "splitk"),
    "an unknown backend": (gemm(backend="abacus"), "backend"),
    "a backend that is a number": (gemm(backend=3), "backend"),
    "strides that are a list": (gemm(strides=[1]), "strides"),
    "strides of an unknown tensor": (gemm(strides={"z": [1]}), "strides"),
    "strides of another rank": (gemm(strides={"a": [1]}), "strides.a"),
    "strides that are text": (gemm(strides={"a": ["1", "2"]}), "strides.a"),
    "strides that are no integers": (gemm(strides={"a": [1.5, 1]}), "strides.a"),
    "cells that are numbers": (gemm("explain", cells=[1]), "cells"),
    "a cell outside": (gemm("explain", cells=[[M, 0]]), "cells"),
    "a negative cell": (gemm("explain", cells=[[-1, 0]]), "cells"),
    "specs that are a list": (Call("explain", {}, {"specs": []}), "specs"),
    "specs of a alone": (Call("explain", {}, {"specs": {"a": SPEC}}), "specs"),
    "specs beside tensors": (gemm("explain", specs={"a": SPEC, "b": SPEC}), "specs"),
    "a spec without a shape": (Call("explain", {}, {"specs": {"a": {"dtype": "x"}, "b": SPEC}}), "specs.a"),
    "a spec of a negative size": (
        Call("explain", {}, {"specs": {"a": {**SPEC, "shape": [-1, 1]}, "b": SPEC}}),
        "specs.a.shape",
    ),
    "a spec whose dtype is a number": (
        Call("explain", {}, {"specs": {"a": {**SPEC, "dtype": 8}, "b": SPEC}}),
        "specs.a.dtype",
    ),
    "no preset": (Call("mma", mma().tensors, {}), "preset"),
    "an unknown preset": (mma(preset="abacus"), "preset"),
    "a preset that is a number": (mma(preset=9), "preset"),
    "no c": (Call("mma", {"a": words((1, 4)), "b": words((1, 4))}, {"preset": "ada"}), "c"),
    "an accumulator in bfloat16": (
        Call("mma", {**mma().tensors, "c": words((5,), "bfloat16")}, {"preset": "ada"}),
        "acc",
    ),
    "another accumulator than c": (mma(acc="f16"), "c"),
    "an acc that is a list": (mma(acc=["f32"]), "acc"),
    "another format than a": (mma(fmt_a="e5m2"), "fmt_a"),
    "tf32 from fp8": (mma(fmt_b="tf32"), "fmt_b"),
    "a format that is a number": (mma(fmt_a=4), "fmt_a"),
    "an a of one dimension": (Call("mma", {**mma().tensors, "a": words((5,))}, {"preset": "ada"}), "a"),
    "an unknown operation": (Call("matmul", {}), "op"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_call_is_refused_by_the_field_that_is_wrong(name):
    call, field = MALFORMED[name]
    error = refusal(call)
    assert error.field == field and error.got and error.wanted


def test_an_absent_backend_is_refused_not_replaced():
    assert refusal(gemm(backend="cuda"), BackendUnavailableError).field == "backend"


def test_cost_is_told_from_shapes():
    assert calls.cost(gemm(out_dtype="bfloat16")) == calls.Cost(M * N * K, K, 2 * M * N, 0)
    assert calls.cost(gemm("accumulate")) == calls.Cost(M * N * K, K, 4 * M * N, 0)
    assert calls.cost(gemm("explain", cells=[[0, 0], [0, 1]])) == calls.Cost(2 * K, K, 0, 2)
    assert calls.cost(gemm("explain")) == calls.Cost(K, K, 0, 0)
    assert calls.cost(mma()) == calls.Cost(5 * 32, 32, 20, 0)
    assert calls.cost(gemm(tensors={"a": words((2, 2, 2))})) == calls.Cost(0, 0, 0, 0)


def test_cost_of_an_empty_product_with_a_vast_result_counts_its_bytes():
    empty = Bits("float8_e4m3fn", np.zeros((1 << 30, 0), np.uint8))
    call = gemm(tensors={"a": empty, "b_t": empty}, out_dtype="float32")
    assert calls.cost(call).result_bytes == 4 << 60


def test_explain_needs_no_scales():
    call = gemm("explain", tensors={"scale_a": None, "scale_b": None}, cells=[[0, 0]], out_dtype="float32")
    ones = gemm("explain", tensors={"scale_a": scale(0x3F800000), "scale_b": scale(0x3F800000)}, **call.options)
    assert calls.run(call).info == calls.run(ones).info


def test_the_strides_of_a_reversed_view_are_taken():
    """numpy counts backwards in a[::-1]; torch would copy such an operand, so the bits are those of the copy."""
    backwards = gemm(strides={"a": [-K, 1]}, out_dtype="float32")
    assert_bitwise_equal(calls.run(backwards).tensors["out"], calls.run(gemm(out_dtype="float32")).tensors["out"])
