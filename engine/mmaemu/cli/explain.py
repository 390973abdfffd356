# SPDX-License-Identifier: Apache-2.0
"""`mmaemu explain`: the plan of a call with its evidence, and the steps of chosen cells."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmaemu.cli import random_call
from mmaemu.cli.common import add_call_options, add_command, add_url, call_options, read_call, service_url
from mmaemu.errors import InvalidInputError

if TYPE_CHECKING:
    from mmaemu.bits import Bits
    from mmaemu.cli.common import Commands
    from mmaemu.trace import Trace
    from mmaemu.trace_compare import Comparison
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
        "  mmaemu explain --shape 64x5760x1920 --random                        and a cell of random operands\n"
        "  mmaemu explain --shape 32x64x128 --random 7 --compare l40s          where two devices part\n"
        "  mmaemu explain in.safetensors --cell 3,17                           one cell, term by term",
    )
    parser.add_argument("input", type=Path, nargs="?", metavar="IN", help="the call, as for scaled-mm")
    parser.add_argument("--cell", action="append", default=[], metavar="I,J", help="row and column; repeatable")
    parser.add_argument(
        "--compare", metavar="PROFILE", help="a second profile: what differs, and where a cell's words part"
    )
    parser.add_argument("--json", action="store_true", help="machine-readable")
    made = parser.add_argument_group("in place of IN: a product of some size")
    made.add_argument("--shape", metavar="MxNxK", help="its sizes")
    made.add_argument("--formats", default="e4m3,e4m3", metavar="A,B", help="its operands (default e4m3,e4m3)")
    made.add_argument("--scales", choices=random_call.SCALES, default="tensor-wise", help="(default tensor-wise)")
    made.add_argument("--bias", action="store_true", help="with a bias")
    made.add_argument(
        "--random",
        type=int,
        nargs="?",
        const=0,
        metavar="SEED",
        help="with random operands, and cell 0,0 if none is named",
    )
    made.add_argument("--data", choices=random_call.KINDS, default="gauss", help="which random numbers (default gauss)")
    add_call_options(parser)
    add_url(parser)


def run(arguments: argparse.Namespace) -> int:
    from mmaemu.trace import Trace

    call = _call(arguments)
    trace = Trace.from_dict(_ask(call, arguments))
    if arguments.compare is None:
        _say(trace, arguments)
        return 0
    from mmaemu.trace_compare import compare

    other = replace(call, options={**call.options, "profile": arguments.compare})
    _say(compare(trace, Trace.from_dict(_ask(other, arguments))), arguments)
    return 0


def _ask(call: Call, arguments: argparse.Namespace) -> dict[str, Any]:
    """The trace of a call, from the engine or the service."""
    url = service_url(arguments)
    if url is None:
        from mmaemu import calls

        return calls.run(call).info
    from mmaemu import remote

    with remote.Client(url) as client:
        return client.send(call).info


def _say(found: Trace | Comparison, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json.dumps(found.to_dict(), indent=2))
        return
    print(found)
    if arguments.random is not None:
        seed, kind = arguments.random, arguments.data
        print(f"\nThe operands are random ({kind}, seed {seed}); rows and columns that no cell needs are zero.")


def _call(arguments: argparse.Namespace) -> Call:
    if (arguments.input is None) == (arguments.shape is None):
        raise InvalidInputError.because(
            "IN, --shape", got="both" if arguments.input else "neither", wanted="an input file or a shape"
        )
    cells = [_cell(text) for text in arguments.cell]
    if arguments.input is not None:
        if arguments.random is not None:
            raise InvalidInputError.because("--random", got="an input file beside it", wanted="--shape")
        call = read_call("explain", arguments.input, arguments)
        return replace(call, options={**call.options, "cells": cells}) if cells else call
    return _made_call(arguments, cells)


def _made_call(arguments: argparse.Namespace, cells: list[list[int]]) -> Call:
    from mmaemu import wire

    m, n, k = _shape(arguments.shape)
    formats = arguments.formats.split(",")
    if len(formats) != 2:
        raise InvalidInputError.because("--formats", got=repr(arguments.formats)[:80], wanted="two, such as e4m3,e5m2")
    options = call_options(arguments)
    seed = arguments.random
    tensors: dict[str, Bits] = {}
    if arguments.scales != "tensor-wise" or seed is not None:
        tensors |= random_call.scales((m, n, k), arguments.scales, seed)
    if arguments.bias:
        tensors["bias"] = random_call.bias(n, arguments.out_dtype, seed)
    if seed is None:
        specs = {"a": {"dtype": formats[0], "shape": [m, k]}, "b": {"dtype": formats[1], "shape": [k, n]}}
        return wire.Call("explain", tensors, {**options, "specs": specs, "cells": cells})
    cells = cells or [[0, 0]]
    tensors |= random_call.operands((m, n, k), formats, cells, seed, arguments.data)
    return wire.Call("explain", tensors, {**options, "cells": cells})


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
