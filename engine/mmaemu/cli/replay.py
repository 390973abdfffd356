# SPDX-License-Identifier: Apache-2.0
"""`mmaemu replay`: hardware recordings run again, here or through a service, one line for each."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mmaemu import replay
from mmaemu.cli.common import add_command, add_url, service_url, table
from mmaemu.errors import InvalidInputError
from mmaemu.replay import Mma, Outcome, Recording

if TYPE_CHECKING:
    from mmaemu.cli.common import Commands
    from mmaemu.model.formats import AnyBits


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "replay",
        run,
        help="run hardware recordings again and compare every word",
        description="Run every recording of a folder (manifest.json, format mmaemu-truth/1) and compare each output\n"
        "word with the hardware's. Exit code 1 if any differs.",
    )
    parser.add_argument("folder", type=Path, help="the folder that holds manifest.json")
    parser.add_argument("--only", metavar="GLOB", help="only recordings whose id matches, such as 'h100.*'")
    parser.add_argument("--backend", help="who computes here (default auto): native or reference")
    parser.add_argument("--json", action="store_true", help="machine-readable")
    add_url(parser)


def run(arguments: argparse.Namespace) -> int:
    from tqdm import tqdm

    chosen = replay.recordings(arguments.folder)
    if arguments.only:
        chosen = [recording for recording in chosen if fnmatch.fnmatchcase(recording.id, arguments.only)]
    if not chosen:
        raise InvalidInputError.because("--only", got=repr(arguments.only), wanted="a pattern that matches a recording")
    url = service_url(arguments)
    if url is not None and arguments.backend is not None:
        raise InvalidInputError.because("--backend", got="--url as well", wanted="one of the two")
    outcomes = []
    progress = tqdm(total=len(chosen), unit="recording", file=sys.stderr, disable=not sys.stderr.isatty(), leave=False)
    with progress as bar, _runner(url, arguments.backend) as mma:
        for outcome in replay.replay(chosen, mma):
            outcomes.append(outcome)
            bar.update()
    print(_json(outcomes) if arguments.json else _text(outcomes, url))
    return 1 if any(outcome.mismatches for outcome in outcomes) else 0


@contextmanager
def _runner(url: str | None, backend: str | None) -> Iterator[Mma]:
    """A backend of this machine; with a url, each recording as one request to that service."""
    if url is None:
        yield replay.local(backend or "auto")
        return
    from mmaemu import remote

    with remote.Client(url) as client:

        def mma(a: AnyBits, b: AnyBits, c: AnyBits, recording: Recording) -> AnyBits:
            words: AnyBits = client.mma(
                a, b, c, recording.fmt_a, recording.fmt_b, preset=recording.preset, acc=recording.acc
            )
            return words

        yield mma


def _text(outcomes: list[Outcome], url: str | None) -> str:
    rows = [
        [o.recording.id, o.recording.preset, str(o.outputs), str(o.mismatches), f"{o.seconds:.3f}", o.first_mismatch]
        for o in outcomes
    ]
    text = table(["recording", "preset", "outputs", "mismatches", "seconds", "first mismatch"], rows, right=(2, 3, 4))
    outputs, wrong = sum(o.outputs for o in outcomes), sum(o.mismatches for o in outcomes)
    seconds = sum(o.seconds for o in outcomes)
    where = f"through {url}" if url else "here"
    return f"{text}\n\n{len(outcomes)} recordings, {outputs:,} outputs, {wrong} mismatches, {seconds:.1f} s {where}"


def _json(outcomes: list[Outcome]) -> str:
    rows = [
        {
            "recording": o.recording.id,
            "preset": o.recording.preset,
            "outputs": o.outputs,
            "mismatches": o.mismatches,
            "first_mismatch": o.first_mismatch,
            "seconds": o.seconds,
        }
        for o in outcomes
    ]
    return json.dumps(rows, indent=2)
