# SPDX-License-Identifier: Apache-2.0
"""Every recorded output of real hardware, bit for bit: one case for each recording of MMAEMU_TRUTH_DIR."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support import exact_oracle as exact

import mmaemu
from mmaemu import profiles
from mmaemu.replay import preset_of
from mmaemu.testing import assert_bitwise_equal

pytestmark = pytest.mark.truth


def entries() -> list[dict[str, Any]]:
    """The manifest's recordings, read at collection so that each is a case of its own."""
    folder = os.environ.get("MMAEMU_TRUTH_DIR")
    if not folder:
        return []
    recordings: list[dict[str, Any]] = json.loads((Path(folder) / "manifest.json").read_text("utf-8"))["recordings"]
    return recordings


ENTRIES = entries()
CASES = [pytest.param(entry, id=entry["id"]) for entry in ENTRIES] or [pytest.param({}, id="no recordings here")]


def load(entry, folder):
    """The arrays of a recording, after its digest."""
    path = folder / entry["file"]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == entry["sha256"], f"{entry['id']}: the file is not the one that the manifest lists"
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in ("a", "b", "c", "d")}


@pytest.mark.parametrize("entry", CASES)
@pytest.mark.parametrize("backend", ["reference", "native"])
def test_every_output_of_a_recording_is_reproduced(entry, backend, truth_dir):
    status = mmaemu.backends_status()[backend]
    if not status.available:
        pytest.skip(f"needs the backend {backend}: {status.reason}")
    words = load(entry, truth_dir)
    got = mmaemu.mma(
        words["a"], words["b"], words["c"], entry["fmt_a"], entry["fmt_b"], preset=preset_of(entry), acc=entry["acc"],
        backend=backend,
    )  # fmt: skip
    assert_bitwise_equal(got, words["d"])


@pytest.mark.parametrize("entry", CASES)
def test_the_exact_oracle_reproduces_a_sample_of_each_recording(entry, truth_dir):
    """The oracle that the engine is held to is itself held to the hardware."""
    words = load(entry, truth_dir)
    rule = profiles.preset(preset_of(entry), entry["fmt_a"], entry["fmt_b"], entry["acc"]).rule
    sample = range(0, entry["count"], 50)
    want = [
        exact.dot(words["a"][i], words["b"][i], int(words["c"][i]), entry["fmt_a"], entry["fmt_b"], entry["acc"], rule)
        for i in sample
    ]
    assert_bitwise_equal(np.array(want, words["d"].dtype), words["d"][::50])


@pytest.mark.parametrize("entry", CASES)
def test_a_recording_has_the_shape_that_the_manifest_states(entry, truth_dir):
    words = load(entry, truth_dir)
    shapes = {name: array.shape for name, array in words.items()}
    count, k = entry["count"], entry["K"]
    assert shapes == {"a": (count, k), "b": (count, k), "c": (count,), "d": (count,)}


def test_the_manifest_lists_192000_outputs_of_48_recordings(truth_dir):
    manifest = json.loads((truth_dir / "manifest.json").read_text("utf-8"))
    counts = [entry["count"] for entry in manifest["recordings"]]
    assert (manifest["format"], len(counts), sum(counts)) == ("mmaemu-truth/1", 48, 192_000)


def test_every_preset_is_met_by_a_recording(truth_dir):
    assert {preset_of(entry) for entry in ENTRIES} == set(profiles.preset_names())
