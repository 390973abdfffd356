# SPDX-License-Identifier: Apache-2.0
"""Calls that torch accepts, in every layout it takes, and where the result goes; what accumulate takes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.support.small_calls import (
    E4M3,
    E5M2,
    NEWER,
    K,
    M,
    N,
    blocks,
    fp8,
    good_call,
    refusal,
    rows_and_columns,
)

import mmaemu
from mmaemu import Bits, Spec
from mmaemu.errors import (
    InvalidInputError,
    ReferenceRejectsError,
    UnsupportedFeatureError,
)
from mmaemu.testing import assert_bitwise_equal

ACCEPTED = {
    "row-wise scales": rows_and_columns(),
    "row-wise scales with a bias": rows_and_columns(bias=torch.ones(N).bfloat16()),
    "row-wise scales with scale_result, which is ignored": rows_and_columns(scale_result=torch.tensor(2.0)),
    "row-wise scales with an e5m2 a": rows_and_columns(a=fp8(M, K, E5M2)),
    "newer row-wise scales in float32": rows_and_columns(out_dtype=torch.float32, profile=NEWER),
    "newer row-wise scales with an e5m2 b": rows_and_columns(b=fp8(N, K, E5M2).t(), profile=NEWER),
    "newer scale_result with a wide output": {"scale_result": torch.tensor(2.0), "profile": NEWER},
    "a float16 bias for an fp8 output": {"bias": torch.ones(N).half(), "out_dtype": E4M3},
    "a bfloat16 bias for an fp8 output": {"bias": torch.ones(N).bfloat16(), "out_dtype": E4M3},
    "a bias of two dimensions": {"bias": torch.ones(1, N).bfloat16()},
    "blocks of 1x128": blocks(),
    "blocks of 128x128 for b": blocks(scale_b=torch.ones(1, 2).t()),
    "blocks of 128x128 for a": blocks(scale_a=torch.ones(1, 2)),
    "an out of the right shape": {"out": torch.empty(M, N, dtype=torch.bfloat16)},
    "an a and a b that begin at the sixteenth byte": {
        "a": fp8(M, 2 * K)[:, 16 : K + 16],
        "b": fp8(N, 2 * K)[:, 16 : K + 16].t(),
    },
    "a single row cut out of padded ones": {"a": fp8(M, 2 * K)[3:4, :K], "rows": 1},
    "an overlapping a, which torch copies": {"a": fp8(1, 8 * M + K).as_strided((M, K), (8, 1))},
    "an a of one row stretched, which torch copies": {"a": fp8(1, K).expand(M, K)},
    "an out of another shape in any layout": {"out": torch.empty(0, M, dtype=torch.bfloat16).t()},
    "an empty out": {"out": torch.empty(0, dtype=torch.bfloat16)},
    "an out with a padded leading dimension": {"out": torch.empty(M, 2 * N, dtype=torch.bfloat16)[:, :N]},
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_reference_accepts_is_computed(name):
    change = dict(ACCEPTED[name])
    rows = change.pop("rows", M)
    assert mmaemu.scaled_mm(**{**good_call(), **change}).shape == (rows, N)


def test_without_an_out_dtype_the_output_is_of_as_type():
    call = good_call()
    del call["out_dtype"]
    assert mmaemu.scaled_mm(**call).dtype == E4M3
    assert mmaemu.scaled_mm(**{**call, "a": fp8(M, K, E5M2)}).dtype == E5M2


def test_scale_result_changes_nothing_on_the_row_wise_path():
    plain = mmaemu.scaled_mm(**{**good_call(), **rows_and_columns()})
    scaled = mmaemu.scaled_mm(**{**good_call(), **rows_and_columns(scale_result=torch.tensor(3.0))})
    assert_bitwise_equal(scaled, plain)


def test_outs_type_is_the_default_of_out_dtype():
    call = good_call()
    del call["out_dtype"]
    out = torch.empty(M, N, dtype=torch.float32)
    assert mmaemu.scaled_mm(**call, out=out) is out
    assert_bitwise_equal(out, mmaemu.scaled_mm(**call, out_dtype=torch.float32))


def test_an_out_of_another_shape_is_resized_with_torchs_warning():
    out = torch.empty(3, 5, dtype=torch.bfloat16)
    with pytest.warns(UserWarning, match="resized"):
        mmaemu.scaled_mm(**good_call(), out=out)
    assert_bitwise_equal(out, mmaemu.scaled_mm(**good_call()))


def test_an_array_for_out_has_to_fit():
    a, b = Bits("e4m3", np.zeros((M, K), np.uint8)), Bits("e4m3", np.zeros((K, N), np.uint8, order="F"))
    one = np.float32(1)
    with pytest.raises(InvalidInputError, match="out: got shape"):
        mmaemu.scaled_mm(a, b, one, one, out=np.empty((M, M), np.float32))
    out = np.ones((M, N), np.float32)
    assert mmaemu.scaled_mm(a, b, one, one, out=out) is out and not out.any()


def test_autograd_is_refused_only_while_it_records():
    call = good_call()
    call["scale_a"] = torch.tensor(0.5, requires_grad=True)
    with torch.no_grad():
        mmaemu.scaled_mm(**call)
    assert type(refusal({"scale_a": call["scale_a"]})) is UnsupportedFeatureError


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_tensor_wise_scale_is_one_number_of_any_rank(shape):
    mmaemu.scaled_mm(**{**good_call(), "scale_a": torch.ones(shape)})


def test_m_may_be_any_size():
    assert mmaemu.scaled_mm(**{**good_call(), "a": fp8(17, K)}).shape == (17, N)


def test_padded_leading_dimensions_pass():
    padded = {"a": fp8(M, 2 * K)[:, :K], "b": fp8(N, 2 * K)[:, :K].t()}
    assert mmaemu.scaled_mm(**{**good_call(), **padded}).shape == (M, N)


def test_an_a_without_a_unit_stride_is_copied_as_torch_does():
    scattered = fp8(2 * M, 2 * K)[::2, ::2]
    assert mmaemu.scaled_mm(**{**good_call(), "a": scattered}).shape == (M, N)


@pytest.mark.parametrize(("m", "n", "k"), [(0, N, K), (M, 0, K), (M, N, 0)])
def test_an_empty_size_skips_the_layout_checks(m, n, k):
    out = mmaemu.scaled_mm(**{**good_call(), "a": fp8(m, k), "b": fp8(k, n)})
    assert out.shape == (m, n)


def test_numpy_operands_are_checked_by_their_strides():
    a = Bits("e4m3", np.zeros((M, K), np.uint8))
    one = np.float32(1)
    with pytest.raises(ReferenceRejectsError, match="column-major"):
        mmaemu.scaled_mm(a, Bits("e4m3", np.zeros((K, N), np.uint8)), one, one)


def test_stated_strides_stand_for_the_callers_tensor():
    a = Bits("e4m3", np.zeros((M, K), np.uint8))
    b = Bits("e4m3", np.zeros((K, N), np.uint8), strides=(1, K))
    assert mmaemu.scaled_mm(a, b, np.float32(1), np.float32(1)).shape == (M, N)


def test_a_shape_without_data_cannot_be_multiplied():
    with pytest.raises(InvalidInputError, match="without data"):
        mmaemu.scaled_mm(
            Spec("e4m3", (M, K)), Spec("e4m3", (K, N), (1, K)), np.float32(1), np.float32(1), out_dtype="float32"
        )


def test_non_finite_scales_are_legal():
    out = mmaemu.scaled_mm(**{**good_call(), "scale_a": torch.tensor(float("nan")), "out_dtype": torch.float32})
    assert out.isnan().all()


def test_accumulate_takes_any_sizes_and_layouts():
    """A cut-out of a product has the accumulators of the whole."""
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(M, K, generator=generator).to(E4M3)
    b = torch.randn(K, N, generator=generator).to(E4M3)
    whole = mmaemu.accumulate(a, b)
    assert_bitwise_equal(mmaemu.accumulate(a[3:8], b[:, 5:12]), whole[3:8, 5:12])


def test_accumulate_pads_k_with_zeros():
    a, b = fp8(M, 41), fp8(41, N)
    padded = torch.zeros(M, 48).to(E4M3), torch.zeros(48, N).to(E4M3)
    padded[0][:, :41], padded[1][:41] = a, b
    assert_bitwise_equal(mmaemu.accumulate(a, b), mmaemu.accumulate(*padded))


@pytest.mark.parametrize(
    ("a", "b"), [(fp8(M, K), fp8(K + 1, N)), (fp8(M, K, E5M2), fp8(K, N, E5M2)), (torch.ones(M, K), fp8(K, N))]
)
def test_accumulate_still_refuses_what_cannot_be_summed(a, b):
    with pytest.raises(ReferenceRejectsError):
        mmaemu.accumulate(a, b)
