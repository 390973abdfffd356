# SPDX-License-Identifier: Apache-2.0
"""`mmaemu explain`: the plan of a call with its evidence, and the steps of chosen cells."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from mmaemu.cli.common import add_call_options, add_command, add_url, call_options, read_call, service_url
from mmaemu.errors import InvalidInputError

if TYPE_CHECKING:
    from mmaemu.cli.common import Commands
    from mmaemu.wire import Call


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "explain",
        run,
        help="show how a result comes about, step by step, and how well each rule is known",
        description="Show the plan of a call, how well each decision is known, and every step of the chosen cells.\n\n"
        "examples:\n"
        "  mmaemu explain --shape 64x5760x1920 --fast --out-dtype bfloat16     the plan alone\n"
        "  mmaemu explain in.safetensors --cell 3,17                           one cell, term by term",
    )
    parser.add_argument("input", type=Path, nargs="?", metavar="IN", help="the call, as for scaled-mm")
    parser.add_argument("--shape", metavar="MxNxK", help="in place of IN: the plan of a product of this size")
    parser.add_argument("--formats", default="e4m3,e4m3", metavar="A,B", help="with --shape (default e4m3,e4m3)")
    parser.add_argument("--cell", action="append", default=[], metavar="I,J", help="row and column; repeatable")
    parser.add_argument("--json", action="store_true", help="machine-readable")
    add_call_options(parser)
    add_url(parser)


def run(arguments: argparse.Namespace) -> int:
    from mmaemu import calls
    from mmaemu.trace import Trace

    call = _call(arguments)
    url = service_url(arguments)
    if url is None:
        reply = calls.run(call)
    else:
        from mmaemu import remote

        with remote.Client(url) as client:
            reply = client.send(call)
    print(json.dumps(reply.info, indent=2) if arguments.json else Trace.from_dict(reply.info))
    return 0


def _call(arguments: argparse.Namespace) -> Call:
    from dataclasses import replace

    from mmaemu import wire

    if (arguments.input is None) == (arguments.shape is None):
        raise InvalidInputError.because(
            "IN, --shape", got="both" if arguments.input else "neither", wanted="an input file or a shape"
        )
    cells = [_cell(text) for text in arguments.cell]
    if arguments.input is not None:
        call = read_call("explain", arguments.input, arguments)
        return replace(call, options={**call.options, "cells": cells}) if cells else call
    m, n, k = _shape(arguments.shape)
    formats = arguments.formats.split(",")
    if len(formats) != 2:
        raise InvalidInputError.because("--formats", got=repr(arguments.formats)[:80], wanted="two, such as e4m3,e5m2")
    specs = {"a": {"dtype": formats[0], "shape": [m, k]}, "b": {"dtype": formats[1], "shape": [k, n]}}
    return wire.Call("explain", {}, {**call_options(arguments), "specs": specs, "cells": cells})


def _cell(text: str) -> list[int]:
    try:
        row, column = (int(part) for part in text.split(","))
    except ValueError:
        raise InvalidInputError.because("--cell", got=repr(text)[:80], wanted="I,J, such as 3,17") from None
    return [row, column]


def _shape(text: str) -> tuple[int, int, int]:
    try:
        m, n, k = (int(part) for part in text.lower().split("x"))
    except ValueError:
        raise InvalidInputError.because("--shape", got=repr(text)[:80], wanted="MxNxK, such as 64x5760x1920") from None
    return m, n, k
