# SPDX-License-Identifier: Apache-2.0
"""safetensors files: what we write others read, what others write we read, and nothing malformed gets through."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmaemu import Bits, wire
from mmaemu.errors import InvalidInputError, WireFormatError
from mmaemu.model import formats
from mmaemu.testing import assert_bitwise_equal
from mmaemu.wire import read_safetensors, write_safetensors

FORMATS = [formats.E4M3, formats.E5M2, formats.F16, formats.BF16, formats.F32]
ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def file(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def refusal(data):
    with pytest.raises(WireFormatError) as caught:
        read_safetensors(data)
    return caught.value


@st.composite
def tensors(draw):
    fmt = draw(st.sampled_from(FORMATS))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    words = np.random.default_rng(draw(st.integers(0, 2**32))).integers(0, 1 << fmt.storage_bits, shape)
    return Bits(fmt.torch_name, np.asarray(words, fmt.storage))


files = st.dictionaries(st.text(max_size=8).filter(lambda name: name != "__metadata__"), tensors(), max_size=4)


@settings(deadline=None)
@given(files, st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3))
def test_what_is_written_is_read(found, metadata):
    again, notes = read_safetensors(write_safetensors(found, metadata))
    assert set(again) == set(found) and notes == metadata
    for name in found:
        assert_bitwise_equal(again[name], found[name])


@settings(deadline=None)
@given(files.filter(bool), st.data())
def test_a_damaged_file_raises_nothing_but_wire_format_errors(found, data):
    good = bytearray(write_safetensors(found, {"mmaemu": "{}"}))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    good = good[: data.draw(st.integers(0, len(good)))] if data.draw(st.booleans()) else good
    try:
        read_safetensors(good)
    except WireFormatError as error:
        assert error.field


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_raise_nothing_but_wire_format_errors(data):
    with pytest.raises(WireFormatError):
        read_safetensors(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.sampled_from(["dtype", "shape", "data_offsets"]), json_values)
def test_any_json_in_a_header_raises_nothing_but_wire_format_errors(member, value):
    try:
        found, _ = read_safetensors(file({"a": {**ONE, member: value}}, b"\0" * 4))
    except WireFormatError as error:
        assert error.field.startswith("a")
    else:
        assert found["a"].array.nbytes == 4


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_the_safetensors_package_reads_what_we_write(fmt):
    torch = pytest.importorskip("torch")
    loaded = pytest.importorskip("safetensors.torch")
    words = np.random.default_rng(0).integers(0, 1 << fmt.storage_bits, (3, 5)).astype(fmt.storage)
    data = write_safetensors(
        {"a": Bits(fmt.torch_name, words), "b": Bits("float8_e5m2", np.ones(7, np.uint8))}, {"k": "v"}
    )
    theirs = loaded.load(data)
    assert theirs["a"].dtype == getattr(torch, fmt.torch_name)
    assert_bitwise_equal(theirs["a"], Bits(fmt.torch_name, words))


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_we_read_what_the_safetensors_package_writes(fmt):
    torch = pytest.importorskip("torch")
    package = pytest.importorskip("safetensors.torch")
    words = np.random.default_rng(1).integers(0, 1 << fmt.storage_bits, (4, 3)).astype(fmt.storage)
    signed = torch.from_numpy(words.view(f"i{fmt.itemsize}" if fmt.itemsize > 1 else "u1"))
    data = package.save(
        {"z": signed.view(getattr(torch, fmt.torch_name)), "half": torch.ones(3, dtype=torch.float16)}, {"format": "pt"}
    )
    ours, metadata = read_safetensors(data)
    assert metadata == {"format": "pt"}
    assert_bitwise_equal(ours["z"], Bits(fmt.torch_name, words))


def test_tensors_are_views_of_the_file():
    data = bytearray(write_safetensors({"a": Bits("float32", np.zeros(2, np.uint32))}, {}))
    words = read_safetensors(data)[0]["a"].array
    data[-8:-4] = b"\1\0\0\0"
    assert words[0] == 1


@settings(deadline=None)
@given(files)
def test_every_written_tensor_starts_aligned_to_its_words(found):
    data = write_safetensors(found, {})
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    assert all(header[name]["data_offsets"][0] % bits.array.itemsize == 0 for name, bits in found.items())


def test_a_column_major_tensor_is_written_row_by_row():
    words = np.arange(6, dtype=np.uint8).reshape(2, 3)
    data = write_safetensors({"a": Bits("float8_e4m3fn", np.asfortranarray(words))}, {})
    assert data[-6:] == bytes(range(6))


def test_a_tensor_that_lies_unaligned_is_read_right():
    header = {
        "b": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]},
        "a": {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]},
    }
    words = read_safetensors(file(header, b"\x38\x00\x00\x80\x3f"))[0]["a"].array
    assert words.flags.aligned and words[0] == 0x3F800000


def test_a_header_in_another_order_than_the_data_is_read():
    header = {"b": {**ONE, "data_offsets": [4, 8]}, "a": ONE}
    assert read_safetensors(file(header, b"\1\0\0\0\2\0\0\0"))[0]["b"].array[0] == 2


MALFORMED = {
    "nothing": (b"", "header"),
    "short length": (b"\1\0\0", "header"),
    "header longer than the file": ((99).to_bytes(8, "little") + b"{}", "header"),
    "header above its limit": ((2 << 20).to_bytes(8, "little") + b"{}", "header"),
    "no JSON": (file(b"{nonsense}"), "header"),
    "not UTF-8": (file(b'{"\xff": 1}'), "header"),
    "a list": (file(b"[]"), "header"),
    "a space before the brace": (file(b" {}"), "header"),
    "a name twice": (file(b'{"a": 1, "a": 2}'), "header"),
    "bare NaN": (file(b'{"a": NaN}'), "header"),
    "bottomless nesting": (file(b'{"a":' + b"[" * 100_000), "header"),
    "deep nesting": (file(b'{"a":' + b"[" * 40 + b"]" * 40 + b"}"), "header"),
    "a huge number": (file(b'{"a": ' + b"9" * 5000 + b"}"), "header"),
    "metadata that is no object": (file({"__metadata__": []}), "__metadata__"),
    "metadata that is no string": (file({"__metadata__": {"k": 1}}), "__metadata__.k"),
    "an entry that is no object": (file({"a": 1}), "a"),
    "an unknown member": (file({"a": {**ONE, "extra": 1}}, b"\0" * 4), "a"),
    "a missing member": (file({"a": {"dtype": "F32", "shape": [1]}}, b"\0" * 4), "a"),
    "an unknown type": (file({"a": {**ONE, "dtype": "F4"}}, b"\0" * 4), "a.dtype"),
    "a type without a format": (file({"a": {**ONE, "dtype": "U32"}}, b"\0" * 4), "a.dtype"),
    "a type that is a list": (file({"a": {**ONE, "dtype": ["F32"]}}, b"\0" * 4), "a.dtype"),
    "a negative size": (file({"a": {**ONE, "shape": [-1]}}, b"\0" * 4), "a.shape"),
    "a size that is true": (file({"a": {**ONE, "shape": [True]}}, b"\0" * 4), "a.shape"),
    "too many dimensions": (file({"a": {**ONE, "shape": [1] * 9}}, b"\0" * 4), "a.shape"),
    "sizes beyond any memory": (file({"a": {**ONE, "shape": [0, 2**62], "data_offsets": [0, 0]}}), "a.shape"),
    "offsets that are no pair": (file({"a": {**ONE, "data_offsets": [0]}}, b"\0" * 4), "a.data_offsets"),
    "a short tensor": (file({"a": {**ONE, "data_offsets": [0, 3]}}, b"\0" * 3), "a.data_offsets"),
    "a long tensor": (file({"a": {**ONE, "data_offsets": [0, 8]}}, b"\0" * 8), "a.data_offsets"),
    "a backward tensor": (file({"a": {**ONE, "data_offsets": [4, 0]}}, b"\0" * 4), "a.data_offsets"),
    "overlapping tensors": (file({"a": ONE, "b": {**ONE, "data_offsets": [2, 6]}}, b"\0" * 6), "b.data_offsets"),
    "the same bytes twice": (file({"a": ONE, "b": ONE}, b"\0" * 4), "b.data_offsets"),
    "a gap between tensors": (file({"a": ONE, "b": {**ONE, "data_offsets": [8, 12]}}, b"\0" * 12), "b.data_offsets"),
    "a gap before the first": (file({"a": {**ONE, "data_offsets": [4, 8]}}, b"\0" * 8), "a.data_offsets"),
    "truncated data": (file({"a": ONE}, b"\0" * 3), "a.data_offsets"),
    "bytes after the last tensor": (file({"a": ONE}, b"\0" * 5), "data"),
    "bytes and no tensor": (file({}, b"\0"), "data"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_is_refused_by_the_field_that_is_wrong(name):
    data, field = MALFORMED[name]
    error = refusal(data)
    assert error.field == field and error.got and error.wanted


def test_a_refusal_does_not_quote_the_file():
    error = refusal(file({"a": {**ONE, "dtype": "x" * 10_000}}, b"\0" * 4))
    assert len(error.message) < 400


def test_tf32_has_no_name_on_the_wire():
    with pytest.raises(InvalidInputError) as caught:
        write_safetensors({"a": Bits("tf32", np.zeros(1, np.uint32))}, {})
    assert caught.value.field == "a"


def test_a_header_above_the_limit_is_not_written():
    with pytest.raises(InvalidInputError):
        write_safetensors({}, {"k": "x" * (2 << 20)})


def test_reading_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_safetensors(write_safetensors({"a": Bits("float16", np.zeros((2, 0), np.uint16))}, {}))


def test_the_content_type_is_the_registered_shape():
    assert wire.CONTENT_TYPE == "application/vnd.safetensors"
