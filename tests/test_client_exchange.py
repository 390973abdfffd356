# SPDX-License-Identifier: Apache-2.0
"""What a call becomes before anything is sent, and the retries around it on a clock of our own."""

from __future__ import annotations

import random

import httpx
import numpy as np
import pytest

from mmaemu import Bits, tensors
from mmaemu.errors import RemoteTimeoutError, ServiceBusyError
from mmaemu_client import arguments, exchange
from mmaemu_client.exchange import Answer, Exchange, Failure, Send, Wait, attempts
from mmaemu_client.settings import Settings

CALL: Exchange[bytes] = Exchange("GET", "/", lambda answer: bytes(answer.body))
BUSY = Answer(503, httpx.Headers({"retry-after": "2"}), b"")


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    ours = Clock()
    monkeypatch.setattr(exchange, "time", ours)
    return ours


def test_a_later_try_gets_what_is_left_of_the_deadline(clock):
    conversation = attempts(CALL, Settings("http://lab", timeout=10))
    assert next(conversation) == Send(10)
    clock.now += 6
    step = conversation.send(BUSY)
    assert isinstance(step, Wait)
    clock.now += step.seconds
    last = conversation.send(None)
    assert isinstance(last, Send) and last.timeout == pytest.approx(4 - step.seconds)


def test_a_wait_that_would_pass_the_deadline_is_not_begun(clock):
    conversation = attempts(CALL, Settings("http://lab", timeout=10))
    next(conversation)
    clock.now += 8.5
    with pytest.raises(ServiceBusyError):
        conversation.send(BUSY)


def test_waits_double_up_to_a_limit(clock, monkeypatch):
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    conversation = attempts(CALL, Settings("http://lab", max_retries=8))
    next(conversation)
    waits = []
    for _ in range(8):
        step = conversation.send(Answer(502, httpx.Headers(), b""))
        assert isinstance(step, Wait)
        waits.append(step.seconds)
        conversation.send(None)
    assert waits == [0.25, 0.5, 1, 2, 4, 8, 8, 8]


def test_a_timeout_ends_the_conversation(clock):
    conversation = attempts(CALL, Settings("http://lab"))
    next(conversation)
    with pytest.raises(RemoteTimeoutError):
        conversation.send(Failure(httpx.ReadTimeout("late"), timed_out=True))


def pack(a, b):
    return arguments.pack({"a": tensors.read(a, "a"), "b": tensors.read(b, "b")})


A = Bits("float8_e4m3fn", np.zeros((16, 32), np.uint8))


def test_a_column_major_b_travels_as_it_lies_in_memory():
    b = Bits("float8_e4m3fn", np.zeros((48, 32), np.uint8).T)
    packed = pack(A, b)
    assert list(packed.tensors) == ["a", "b_t"]
    assert np.shares_memory(packed.tensors["b_t"].array, b.array)


def test_a_column_major_torch_tensor_travels_as_it_lies_in_memory():
    torch = pytest.importorskip("torch")
    b = torch.zeros(48, 32, dtype=torch.uint8).view(torch.float8_e4m3fn).t()
    packed = pack(A, b)
    assert packed.tensors["b_t"].array.__array_interface__["data"][0] == b.data_ptr()


def test_wanted_layouts_travel_without_strides():
    assert pack(A, Bits("float8_e4m3fn", np.zeros((48, 32), np.uint8).T)).strides == {}


def test_other_layouts_travel_with_their_strides():
    wide = np.zeros((48, 64), np.uint8)
    packed = pack(Bits("float8_e4m3fn", np.asfortranarray(A.array)), Bits("float8_e4m3fn", wide[:, :32].T))
    assert packed.strides == {"a": [1, 16], "b": [1, 64]}
