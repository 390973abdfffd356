# SPDX-License-Identifier: Apache-2.0
"""Recordings of real hardware, run again: every recorded output against the same instruction emulated.

Reads the layout `mmaemu-truth/1`: manifest.json beside recordings/*.npz, operands and outputs as bit patterns.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmaemu import api, profiles
from mmaemu.errors import InvalidInputError
from mmaemu.model import formats
from mmaemu.model.formats import AnyBits
from mmaemu.profiles import load

FORMAT = "mmaemu-truth/1"

Mma = Callable[[AnyBits, AnyBits, AnyBits, "Recording"], AnyBits]
"""Runs one recording's operands: (a, b, c, recording) to output words."""


@dataclass(frozen=True)
class Recording:
    """One entry of a manifest."""

    id: str
    device: str
    api: str
    fmt_a: str
    fmt_b: str
    acc: str
    count: int
    path: Path
    sha256: str

    @property
    def preset(self) -> str:
        return preset_of({"device": self.device, "api": self.api})


@dataclass(frozen=True)
class Outcome:
    """What replaying one recording showed."""

    recording: Recording
    outputs: int
    mismatches: int
    first_mismatch: str
    seconds: float


def recordings(folder: Path) -> list[Recording]:
    """The recordings listed in `folder`/manifest.json. InvalidInputError for anything but the known layout."""
    manifest = folder / "manifest.json"
    try:
        table = json.loads(manifest.read_text("utf-8"))
        if table.get("format") != FORMAT:
            raise InvalidInputError.because(str(manifest), got=repr(table.get("format"))[:80], wanted=FORMAT)
        return [_recording(folder, entry) for entry in table["recordings"] if entry["kind"] == "mma"]
    except FileNotFoundError:
        raise InvalidInputError.because(
            "folder", got=str(folder), wanted="a folder of recordings with a manifest.json"
        ) from None
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as broken:
        raise InvalidInputError.because(str(manifest), got=f"{broken!r}"[:120], wanted=f"a {FORMAT} manifest") from None


def preset_of(entry: dict[str, Any]) -> str:
    """The instruction family that a recording's device and api belong to, as the profiles' tables say."""
    families: list[str] = []
    for name in profiles.names():
        profile = profiles.get(name)
        if entry["device"] in profile.recorded_as:
            families += [row.family for row in profile.instructions]
    for family in families:
        if any(entry["api"].startswith(api) for api in load.instruction_table(family)["api"].split(", ")):
            return family
    raise InvalidInputError.because(
        "recording",
        got=f"device {entry['device']!r}, api {entry['api']!r}"[:120],
        wanted="a device that a profile names",
    )


def replay(chosen: list[Recording], mma: Mma) -> Iterator[Outcome]:
    """Run each recording by `mma`, such as `local()`, and compare every output word."""
    for recording in chosen:
        words = _read(recording)
        started = time.perf_counter()
        actual = mma(words["a"], words["b"], words["c"], recording)
        seconds = time.perf_counter() - started
        yield _compare(recording, actual, words["d"], seconds)


def local(backend: str = "auto") -> Mma:
    """Recordings run by a backend of this machine."""

    def run(a: AnyBits, b: AnyBits, c: AnyBits, recording: Recording) -> AnyBits:
        return api.mma(
            a, b, c, recording.fmt_a, recording.fmt_b, preset=recording.preset, acc=recording.acc, backend=backend
        )

    return run


def _compare(recording: Recording, actual: AnyBits, expected: AnyBits, seconds: float) -> Outcome:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise InvalidInputError.because(
            recording.id,
            got=f"{actual.dtype} {actual.shape}",
            wanted=f"{expected.dtype} {expected.shape}, as recorded",
        )
    wrong = np.flatnonzero(actual != expected)
    first = ""
    if len(wrong):
        row, digits = int(wrong[0]), expected.itemsize * 2
        first = f"row {row}: {int(actual[row]):0{digits}X}, recorded {int(expected[row]):0{digits}X}"
    return Outcome(recording, len(expected), len(wrong), first, seconds)


def _read(recording: Recording) -> dict[str, AnyBits]:
    try:
        data = recording.path.read_bytes()
    except FileNotFoundError:
        raise InvalidInputError.because(recording.id, got=f"no file {recording.path}", wanted="its .npz") from None
    digest = hashlib.sha256(data).hexdigest()
    if digest != recording.sha256:
        raise InvalidInputError.because(recording.id, got=f"SHA-256 {digest}", wanted=recording.sha256)
    with np.load(recording.path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in ("a", "b", "c", "d")}


def _recording(folder: Path, entry: dict[str, Any]) -> Recording:
    return Recording(
        id=entry["id"],
        device=entry["device"],
        api=entry["api"],
        fmt_a=formats.get(entry["fmt_a"]).name,
        fmt_b=formats.get(entry["fmt_b"]).name,
        acc=formats.get(entry["acc"]).name,
        count=entry["count"],
        path=folder / entry["file"],
        sha256=entry["sha256"],
    )
