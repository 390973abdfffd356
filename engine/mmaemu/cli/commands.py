# SPDX-License-Identifier: Apache-2.0
"""Argument parsing, and errors to exit codes: no traceback reaches a user."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import mmaemu
from mmaemu import errors
from mmaemu.cli import doctor, explain, profiles, replay, scaled_mm, serve
from mmaemu.cli.common import Formatter

EXIT_CODES: dict[type[errors.MmaemuError], int] = {
    errors.ReferenceRejectsError: 3,
    errors.UnsupportedFeatureError: 4,
    errors.BackendUnavailableError: 5,
    errors.RemoteError: 6,
    errors.InvalidInputError: 2,
}

_EPILOG = """exit codes:
  0  done; for replay, no mismatches
  1  replay or doctor found something wrong
  2  bad arguments or input files
  3  torch or cuBLASLt would refuse the call
  4  mmaemu has not modelled the call
  5  this machine lacks something; the message names it
  6  the service could not answer
  130  interrupted

environment: MMAEMU_URL, MMAEMU_PROFILE, MMAEMU_THREADS; `mmaemu doctor` shows what is set.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 2
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except errors.MmaemuError as error:
        print(f"mmaemu: {type(error).__name__}: {error}", file=sys.stderr)
        return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1)
    except KeyboardInterrupt:
        print("mmaemu: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of a pipe such as `| head` has gone; what is left to say has no one to hear it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"mmaemu: {error.filename or 'file'}: {error.strerror}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mmaemu",
        description="What bits would this NVIDIA GPU have returned? Tensor-core products, emulated bit for bit.",
        epilog=_EPILOG,
        formatter_class=Formatter,
    )
    parser.add_argument("--version", action="version", version=f"mmaemu {mmaemu.__version__}")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")
    for module in (serve, scaled_mm, explain, replay, profiles, doctor):
        module.add(commands)
    return parser
