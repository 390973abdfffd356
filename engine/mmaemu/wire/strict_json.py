# SPDX-License-Identifier: Apache-2.0
"""JSON as RFC 8259 has it: UTF-8, no name twice, no bare NaN or Infinity, no bottomless nesting."""

from __future__ import annotations

import json
from typing import Any

from mmaemu.errors import WireFormatError

MAX_DEPTH = 32

_NAMES = {bool: "true or false", list: "a list", dict: "an object", type(None): "null"}


def loads(data: bytes | bytearray | memoryview, field: str) -> Any:
    """The value that `data` holds; `field` names it in the WireFormatError."""
    try:
        text = bytes(data).decode("utf-8")
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer)
    except UnicodeDecodeError as error:
        raise wrong(field, f"bytes that are not UTF-8 at offset {error.start}", "JSON in UTF-8") from None
    except json.JSONDecodeError as error:
        raise wrong(field, f"no JSON at line {error.lineno}, column {error.colno}: {error.msg}", "JSON") from None
    except _NotStrictError as error:
        raise wrong(field, str(error), "JSON as RFC 8259 has it", error.hint) from None
    except RecursionError:
        raise wrong(field, "deep nesting", f"at most {MAX_DEPTH} levels") from None
    except ValueError:
        # Python refuses to read integers of thousands of digits.
        raise wrong(field, "a number of thousands of digits", "numbers that fit a double") from None
    if _too_deep(value, MAX_DEPTH):
        raise wrong(field, "deep nesting", f"at most {MAX_DEPTH} levels")
    return value


def wrong(field: str, got: str, wanted: str, hint: str = "") -> WireFormatError:
    """The WireFormatError that says so."""
    error = WireFormatError.because(field, got=got, wanted=wanted, hint=hint)
    assert isinstance(error, WireFormatError)
    return error


def describe(value: Any) -> str:
    """A few words for a value that came in: never its contents where it is large."""
    return _NAMES.get(type(value)) or repr(value)[:80]


class _NotStrictError(Exception):
    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _NotStrictError(f"the name {twice[:60]!r} twice in one object")
    return found


def _constant(name: str) -> Any:
    raise _NotStrictError(f"a bare {name}", f'Inside "values" write it as the string "{name}".')


def _integer(digits: str) -> int | float:
    # As an integer, -0 would lose its sign.
    return -0.0 if digits == "-0" else int(digits)


def _too_deep(value: Any, levels: int) -> bool:
    if not isinstance(value, list | dict):
        return False
    children = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_too_deep(child, levels - 1) for child in children)
