# SPDX-License-Identifier: Apache-2.0
"""`mmaemu serve`: the service; every setting is a flag and an environment variable."""

from __future__ import annotations

import argparse
import importlib.util
from typing import TYPE_CHECKING

from mmaemu.cli.common import add_command
from mmaemu.errors import BackendUnavailableError, InvalidInputError

if TYPE_CHECKING:
    from mmaemu.cli.common import Commands


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "serve",
        run,
        help="start the HTTP service",
        description="Start the HTTP service. Each flag is also an environment variable: --max-macs is MMAEMU_MAX_MACS.",
    )
    if not installed():
        return  # `run` says what to install
    from mmaemu_server.settings import Settings

    for name, field in Settings.model_fields.items():
        flag = "--" + name.replace("_", "-")
        help_text = f"{field.description} (default {field.default})".replace("%", "%%")
        parser.add_argument(flag, dest=name, metavar="VALUE", help=help_text)


def run(arguments: argparse.Namespace) -> int:
    if not installed():
        raise BackendUnavailableError.because(
            "serve", got="no fastapi, uvicorn or pydantic-settings", wanted="them", hint="pip install 'mmaemu[server]'"
        )
    from pydantic import ValidationError

    from mmaemu_server.serve import serve
    from mmaemu_server.settings import Settings

    given = {name: getattr(arguments, name) for name in Settings.model_fields}
    try:
        settings = Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as bad:
        first = bad.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InvalidInputError.because(field, got=repr(first["input"])[:80], wanted=first["msg"]) from None
    serve(settings)
    return 0


def installed() -> bool:
    """Whether the packages of the server extra are here."""
    return all(importlib.util.find_spec(name) for name in ("fastapi", "uvicorn", "pydantic_settings"))
