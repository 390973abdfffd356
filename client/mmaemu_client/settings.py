# SPDX-License-Identifier: Apache-2.0
"""Where the service is and how patient the client is: arguments first, then MMAEMU_* variables, then defaults."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit

from mmaemu.errors import InvalidInputError

T = TypeVar("T")

DEFAULT_TIMEOUT = 600.0
DEFAULT_MAX_RETRIES = 4


@dataclass(frozen=True)
class Settings:
    """One client's settings, already checked. Equal settings can share connections."""

    url: str
    """Without a trailing slash; a path in it is kept, for services behind a proxy's prefix."""
    api_key: str | None = field(default=None, repr=False)
    timeout: float = DEFAULT_TIMEOUT
    """Seconds for one call in all: every attempt, every wait between attempts."""
    max_retries: int = DEFAULT_MAX_RETRIES
    ca_bundle: str | None = None


def resolve(
    url: str | None = None,
    *,
    api_key: str | None = None,
    timeout: float | None = None,
    max_retries: int | None = None,
    ca_bundle: str | None = None,
) -> Settings:
    """The settings of a client given these arguments. InvalidInputError names the argument or variable at fault."""
    return Settings(
        url=_url(url),
        api_key=_api_key(api_key),
        timeout=_pick(timeout, "timeout", "MMAEMU_TIMEOUT", _positive_seconds, DEFAULT_TIMEOUT),
        max_retries=_pick(max_retries, "max_retries", "MMAEMU_MAX_RETRIES", _count, DEFAULT_MAX_RETRIES),
        ca_bundle=_pick(ca_bundle, "ca_bundle", "MMAEMU_CA_BUNDLE", _file, None),
    )


def _pick(argument: object, name: str, variable: str, check: Callable[[object, str], T], default: T) -> T:
    if argument is not None:
        return check(argument, name)
    text = os.environ.get(variable, "")
    return check(text, variable) if text else default


def _url(argument: str | None) -> str:
    url = argument if argument is not None else os.environ.get("MMAEMU_URL", "")
    name = "MMAEMU_URL" if argument is None else "url"
    if not url:
        raise InvalidInputError.because(
            name,
            got="no address",
            wanted="the address of an mmaemu service",
            hint="Set MMAEMU_URL, such as http://127.0.0.1:8642, or pass url=.",
        )
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        usable = usable and not (parts.query or parts.fragment or parts.username or parts.password)
    except (ValueError, AttributeError, TypeError):
        usable = False
    if not usable:
        # The address itself stays out of the message: it may hold a password.
        raise InvalidInputError.because(
            name,
            got="something else",
            wanted="http://HOST[:PORT][/PREFIX] or https://..., without user, query or fragment",
            hint="A key goes into MMAEMU_API_KEY.",
        )
    return url.rstrip("/")


def _api_key(argument: str | None) -> str | None:
    key = argument if argument is not None else os.environ.get("MMAEMU_API_KEY", "")
    if not isinstance(key, str) or not key.isascii() or not key.isprintable() or " " in key:
        name = "MMAEMU_API_KEY" if argument is None else "api_key"
        raise InvalidInputError.because(name, got="another kind of text", wanted="printable ASCII without spaces")
    return key or None


def _positive_seconds(value: object, name: str) -> float:
    wanted = "a positive number of seconds"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidInputError.because(name, got=repr(value)[:80], wanted=wanted)
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InvalidInputError.because(name, got=repr(value)[:80], wanted=wanted)
    return seconds


def _count(value: object, name: str) -> int:
    wanted = "a whole number, 0 or more"
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidInputError.because(name, got=repr(value)[:80], wanted=wanted)
    try:
        count = int(value)
    except ValueError:
        count = -1
    if count < 0:
        raise InvalidInputError.because(name, got=repr(value)[:80], wanted=wanted)
    return count


def _file(value: object, name: str) -> str | None:
    if not isinstance(value, str | os.PathLike) or not os.path.isfile(value):
        raise InvalidInputError.because(name, got=repr(value)[:80], wanted="a readable file of PEM certificates")
    return os.fspath(value)
