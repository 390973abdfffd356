# SPDX-License-Identifier: Apache-2.0
"""Replay: it finds a single wrong word, and refuses a damaged folder by name."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from mmaemu import model, replay
from mmaemu.errors import InvalidInputError


@pytest.fixture
def folder(tmp_path):
    """One recording made by the engine itself: it tests replay, not the arithmetic."""
    random = np.random.default_rng(0)
    a, b = random.integers(0, 0x7F, (2, 50, 32), np.uint8)
    c = random.normal(size=50).astype(np.float32).view(np.uint32)
    write(tmp_path, {"a": a, "b": b, "c": c, "d": model.dot(a, b, c, "e4m3", "e4m3", preset="ada")})
    return tmp_path


def write(folder, arrays, **changes):
    (folder / "recordings").mkdir(exist_ok=True)
    path = folder / "recordings" / "ada.npz"
    np.savez(path, **arrays)
    entry = {
        "id": "ada.e4m3.f32",
        "kind": "mma",
        "device": "RTX 1000 Ada",
        "api": "mma.sync.m16n8k32",
        "fmt_a": "e4m3",
        "fmt_b": "e4m3",
        "acc": "f32",
        "count": len(arrays["d"]),
        "file": "recordings/ada.npz",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        **changes,
    }
    (folder / "manifest.json").write_text(json.dumps({"format": replay.FORMAT, "recordings": [entry]}))


def test_an_equal_recording_has_no_mismatch(folder):
    (outcome,) = replay.replay(replay.recordings(folder), replay.local())
    assert (outcome.outputs, outcome.mismatches, outcome.first_mismatch) == (50, 0, "")


def test_one_wrong_word_is_found_and_shown(folder):
    with np.load(folder / "recordings" / "ada.npz") as arrays:
        changed = dict(arrays)
    changed["d"][17] ^= 0x400
    write(folder, changed)
    (outcome,) = replay.replay(replay.recordings(folder), replay.local())
    assert outcome.mismatches == 1 and outcome.first_mismatch.startswith("row 17: ")


def test_a_changed_file_is_refused_before_it_is_used(folder):
    path = folder / "recordings" / "ada.npz"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(InvalidInputError, match="SHA-256"):
        list(replay.replay(replay.recordings(folder), replay.local()))


def test_a_missing_file_is_named(folder):
    (folder / "recordings" / "ada.npz").unlink()
    with pytest.raises(InvalidInputError, match=r"ada\.npz"):
        list(replay.replay(replay.recordings(folder), replay.local()))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": "other/1"}', '{"format": "mmaemu-truth/1"}'])
def test_a_manifest_of_another_kind_is_refused(folder, text):
    (folder / "manifest.json").write_text(text)
    with pytest.raises(InvalidInputError):
        replay.recordings(folder)


def test_a_folder_without_a_manifest_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"manifest\.json"):
        replay.recordings(tmp_path)


@pytest.mark.parametrize(
    ("device", "api", "preset"),
    [
        ("V100", "wmma", "v100"),
        ("A100", "wmma", "ampere"),
        ("L40S", "mma.sync.m16n8k32", "ada"),
        ("H100", "wgmma.m64nNk32", "hopper-wgmma"),
        ("H200", "mma.sync.m16n8k32", "hopper-mma"),
        ("H100", "wmma", "hopper-mma"),
        ("B200", "mma.sync.m16n8k32", "b200-mma"),
    ],
)
def test_device_and_api_choose_the_preset(device, api, preset):
    assert replay.preset_of({"device": device, "api": api}) == preset


def test_an_unknown_device_is_refused():
    with pytest.raises(InvalidInputError, match="TPU"):
        replay.preset_of({"device": "TPU", "api": "wmma"})


def test_a_device_that_answers_in_another_shape_is_an_error(folder):
    with pytest.raises(InvalidInputError, match="as recorded"):
        list(replay.replay(replay.recordings(folder), lambda a, b, c, recording: c[:3]))
