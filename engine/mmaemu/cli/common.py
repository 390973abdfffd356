# SPDX-License-Identifier: Apache-2.0
"""What several commands share: call options as flags, reading call files, progress, tables."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmaemu.errors import InvalidInputError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from mmaemu.wire import Call

    Commands = _SubParsersAction[argparse.ArgumentParser]


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Descriptions as written; a flag's help beside it even where the flag is long."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=36, width=110)


def add_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], int], help: str, description: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=help, description=description, formatter_class=Formatter)
    parser.set_defaults(run=run)
    return parser


def add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help="send the work to this service instead of running it here")


def add_call_options(parser: argparse.ArgumentParser) -> None:
    """Flags for the options of a call; each replaces the same option in the input file."""
    group = parser.add_argument_group("options of the call (they replace those in the file)")
    group.add_argument("--profile", help="device and library to emulate; `mmaemu profiles` lists them")
    group.add_argument("--out-dtype", help="float32, bfloat16, float16, float8_e4m3fn or float8_e5m2 (default: a's)")
    fast = group.add_mutually_exclusive_group()
    fast.add_argument("--fast", dest="use_fast_accum", action="store_true", default=None, help="use_fast_accum=True")
    fast.add_argument("--slow", dest="use_fast_accum", action="store_false", help="use_fast_accum=False (default)")
    group.add_argument("--splitk", metavar="S[:SCHEME]", help="split K, such as 4:compute_type")
    group.add_argument("--backend", help="who computes (default auto)")
    group.add_argument(
        "--set",
        dest="overrides",
        metavar="FIELD=VALUE",
        action="append",
        default=[],
        help="replace a profile value, such as gemm.slow_chunks=[32,64]; repeatable",
    )


def call_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that were given as flags."""
    options: dict[str, Any] = {}
    for name in ("profile", "out_dtype", "use_fast_accum", "backend"):
        value = getattr(arguments, name)
        if value is not None:
            options[name] = value
    if arguments.splitk is not None:
        options["splitk"] = _splitk(arguments.splitk)
    if arguments.overrides:
        options["overrides"] = dict(_override(text) for text in arguments.overrides)
    return options


def read_call(op: str, path: Path, arguments: argparse.Namespace) -> Call:
    """The call in a file (safetensors, or JSON by its suffix), with the flags' options on top."""
    from dataclasses import replace

    from mmaemu import wire

    data = path.read_bytes()
    call = wire.call_from_json(op, data) if path.suffix == ".json" else wire.call_from_safetensors(op, data)
    return replace(call, options={**call.options, **call_options(arguments)})


def write_whole(path: Path, data: bytes) -> None:
    """`data` under `path`, or whatever was there before: never a part of it, also where the disk is full."""
    if not path.parent.is_dir() or (path.exists() and not path.is_file()):
        path.write_bytes(data)  # a pipe or a device; of a missing folder, the error names the path that was asked for
        return
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_bytes(data)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _splitk(text: str) -> int | list[Any]:
    count, _, scheme = text.partition(":")
    try:
        return [int(count), scheme] if scheme else int(count)
    except ValueError:
        raise InvalidInputError.because("--splitk", got=repr(text)[:80], wanted="S or S:SCHEME") from None


def _override(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidInputError.because("--set", got=repr(text)[:80], wanted="FIELD=VALUE")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on the terminal's standard error; silent where that is no terminal."""
    from tqdm import tqdm

    with tqdm(desc=label, unit="tile", file=sys.stderr, disable=not sys.stderr.isatty(), leave=False) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns wide enough for their longest cell; those in `right` are flush right."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        aligned = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(aligned).rstrip()

    return "\n".join([line(header), "  ".join("-" * width for width in widths), *map(line, rows)])


def service_url(arguments: argparse.Namespace) -> str | None:
    """--url alone decides: a command that runs here by default does not move because a variable is set."""
    url: str | None = arguments.url
    return url


def mmaemu_environment() -> dict[str, str]:
    """MMAEMU_* variables as set, secrets hidden."""
    secret = ("KEY", "DATABASE")
    return {
        name: "(set)" if any(word in name for word in secret) else value
        for name, value in sorted(os.environ.items())
        if name.startswith("MMAEMU_")
    }
