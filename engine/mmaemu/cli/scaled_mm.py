# SPDX-License-Identifier: Apache-2.0
"""`mmaemu scaled-mm`: a call in a file to a result in a file, here or through a service."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from mmaemu.cli.common import (
    add_call_options,
    add_command,
    add_url,
    progress_bar,
    read_call,
    service_url,
    write_whole,
)

if TYPE_CHECKING:
    from mmaemu.cli.common import Commands


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "scaled-mm",
        run,
        help="multiply the tensors of a safetensors file",
        description="Read a call from IN and write its result to OUT, both safetensors (IN may also be .json).\n\n"
        "Tensors of IN: a [M, K]; b [K, N], or b_t [N, K] as column-major b lies in memory; scale_a, scale_b; and\n"
        "scale_result where wanted. Options may be in its metadata (key mmaemu, JSON) or given as flags.\n"
        "OUT holds one tensor, out [M, N]. A progress bar shows on a terminal; Ctrl-C stops between two tiles.\n\n"
        "example:\n"
        "  safetensors.torch.save_file({'a': a, 'b_t': b_t, 'scale_a': sa, 'scale_b': sb}, 'in.safetensors')\n"
        "  mmaemu scaled-mm in.safetensors -o out.safetensors --fast --out-dtype bfloat16",
    )
    parser.add_argument("input", type=Path, metavar="IN", help="the call: .safetensors or .json")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="OUT", help="the result: .safetensors or .json"
    )
    add_call_options(parser)
    add_url(parser)


def run(arguments: argparse.Namespace) -> int:
    from mmaemu import calls, wire

    call = read_call("scaled_mm", arguments.input, arguments)
    url = service_url(arguments)
    if url is None:
        with progress_bar("scaled_mm") as progress:
            reply = calls.run(call, progress=progress)
    else:
        from mmaemu import remote

        with remote.Client(url) as client:
            reply = client.send(call)
    as_json = arguments.output.suffix == ".json"
    data = wire.reply_to_json(reply, "bits") if as_json else wire.reply_to_safetensors(reply)
    write_whole(arguments.output, data)
    out = reply.tensors["out"]
    print(f"{arguments.output}: out {out.dtype} {list(out.shape)}, profile {reply.info.get('profile')}")
    return 0
