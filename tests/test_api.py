# SPDX-License-Identifier: Apache-2.0
"""scaled_mm and accumulate as users call them: kinds of tensors, defaults, threads, progress, backends."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import mmaemu
from mmaemu import Bits
from mmaemu.backends import reference
from mmaemu.backends.native import library
from mmaemu.backends.registry import choose
from mmaemu.errors import BackendUnavailableError, InvalidInputError
from mmaemu.model import epilogue
from mmaemu.profiles import get
from mmaemu.testing import assert_bitwise_equal

M, N, K = 40, 320, 96


def torch_call(
    dtype: torch.dtype = torch.float8_e4m3fn,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    a = torch.randn(M, K, generator=generator).to(dtype)
    b = torch.randn(N, K, generator=generator).to(torch.float8_e4m3fn).t()
    return a, b, torch.tensor(0.37), torch.tensor(1.9)


def as_numpy(tensor):
    kinds = {torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn, torch.float8_e5m2: ml_dtypes.float8_e5m2}
    if tensor.dtype in kinds:
        return tensor.view(torch.uint8).numpy().view(kinds[tensor.dtype])
    return tensor.numpy()


@pytest.mark.parametrize("out_dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn"])
def test_torch_numpy_and_bits_give_the_same_words_in_their_own_kind(out_dtype):
    call = torch_call()
    from_torch = mmaemu.scaled_mm(*call, out_dtype=getattr(torch, out_dtype))
    a, b, scale_a, scale_b = map(as_numpy, call)
    from_numpy = mmaemu.scaled_mm(a, b, scale_a, scale_b, out_dtype=out_dtype)
    a, b = (Bits("e4m3", tensor.view(torch.uint8).numpy()) for tensor in call[:2])
    from_bits = mmaemu.scaled_mm(a, b, scale_a, scale_b, out_dtype=out_dtype)
    assert isinstance(from_torch, torch.Tensor) and from_torch.dtype == getattr(torch, out_dtype)
    assert isinstance(from_numpy, np.ndarray) and from_numpy.dtype.name == out_dtype
    assert isinstance(from_bits, Bits) and from_bits.dtype == out_dtype
    assert_bitwise_equal(from_torch, from_numpy)
    assert_bitwise_equal(from_bits, from_numpy)


def test_the_output_type_defaults_to_that_of_a():
    assert mmaemu.scaled_mm(*torch_call(torch.float8_e5m2)).dtype == torch.float8_e5m2


def test_scaled_mm_is_accumulate_and_then_the_epilogue():
    a, b, scale_a, scale_b = torch_call()
    acc = mmaemu.accumulate(a, b, use_fast_accum=True)
    words = epilogue.apply(
        acc.view(torch.int32).numpy().view(np.uint32),
        scale_a.numpy().view(np.uint32),
        scale_b.numpy().view(np.uint32),
        out_dtype="bfloat16",
        rule=get().gemm,
    )
    assert_bitwise_equal(
        mmaemu.scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=True),
        Bits("bfloat16", words),
    )


def test_the_result_is_close_to_float32_arithmetic():
    a, b, scale_a, scale_b = torch_call()
    out = mmaemu.scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.float32)
    plain = (a.float() @ b.float()) * scale_a * scale_b
    # 13 fraction bits below the largest of a group of K products.
    torch.testing.assert_close(out, plain, rtol=0, atol=K * 2.0**-13 * float(plain.abs().max()))


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads_and_tiles_change_no_bit(threads, monkeypatch):
    a, b, *_ = torch_call()
    one = mmaemu.accumulate(a, b)
    monkeypatch.setenv("MMAEMU_THREADS", str(threads))
    monkeypatch.setattr(reference, "TILE_M", 7)
    monkeypatch.setattr(reference, "TILE_N", 33)
    assert_bitwise_equal(mmaemu.accumulate(a, b), one)


def test_progress_counts_every_tile():
    a, b, scale_a, scale_b = torch_call()
    seen = []
    mmaemu.scaled_mm(a, b, scale_a, scale_b, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, len(seen)) for done in range(1, len(seen) + 1)] and len(seen) > 1


def test_an_exception_in_progress_stops_the_call():
    class Stop(Exception):
        pass

    def stop(done, total):
        raise Stop

    with pytest.raises(Stop):
        mmaemu.scaled_mm(*torch_call(), progress=stop)


def test_a_profile_from_the_environment_is_used(monkeypatch):
    call = torch_call()
    monkeypatch.setenv("MMAEMU_PROFILE", "l40s")
    assert_bitwise_equal(
        mmaemu.scaled_mm(*call, out_dtype=torch.float32),
        mmaemu.scaled_mm(*call, out_dtype=torch.float32, profile="l40s"),
    )


def test_ada_and_hopper_differ_on_ordinary_data():
    call = torch_call()
    outs = [
        mmaemu.scaled_mm(*call, out_dtype=torch.float32, use_fast_accum=True, profile=profile)
        for profile in ("l40s", "h200")
    ]
    with pytest.raises(AssertionError, match="float32 words differ"):
        assert_bitwise_equal(*outs)


@pytest.mark.parametrize("name", ["native", "cuda"])
def test_an_absent_backend_is_unavailable_and_its_status_says_why(name, monkeypatch):
    monkeypatch.setattr(library, "load", lambda: None)
    status = mmaemu.backends_status()[name]
    assert not status.available and status.reason
    with pytest.raises(BackendUnavailableError, match=name):
        mmaemu.scaled_mm(*torch_call(), backend=name)


def test_auto_runs_an_available_backend():
    assert mmaemu.backends_status()[choose("auto").name].available


def test_operands_are_not_written_to():
    a, b, scale_a, scale_b = torch_call()
    before = a.view(torch.uint8).clone(), b.view(torch.uint8).clone()
    mmaemu.scaled_mm(a, b, scale_a, scale_b)
    assert_bitwise_equal(a.view(torch.uint8).numpy(), before[0].numpy())
    assert_bitwise_equal(b.view(torch.uint8).numpy(), before[1].numpy())


def test_numpy_shifts_past_the_width_leave_nothing():
    """The alignment relies on it: terms far below the grid shift by more than their width."""
    magnitudes = np.full(70, 0x07FFFFFF, np.int32)
    shifted = magnitudes >> np.arange(70, dtype=np.int32)
    assert not shifted[27:].any() and shifted[26] == 1
    assert not (magnitudes >> np.int32(1 << 21)).any()


def test_numbers_in_foreign_byte_order_are_the_same_numbers():
    a, b, *_ = torch_call()
    swapped = np.array(0.37, ">f4")
    assert_bitwise_equal(
        mmaemu.scaled_mm(a, b, swapped, np.float32(2)), mmaemu.scaled_mm(a, b, np.float32(0.37), np.float32(2))
    )


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_a_number_of_threads_that_is_none_is_named(text, monkeypatch):
    monkeypatch.setenv("MMAEMU_THREADS", text)
    with pytest.raises(InvalidInputError, match="MMAEMU_THREADS"):
        mmaemu.scaled_mm(*torch_call())
