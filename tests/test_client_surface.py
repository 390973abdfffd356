# SPDX-License-Identifier: Apache-2.0
"""The names of mmaemu.remote: the same at run time and for type checkers, and cheap to import."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_type

import pytest

import mmaemu
import mmaemu.remote
import mmaemu_client

HEAVY = ("torch", "cupy", "ml_dtypes", "mmaemu.api", "mmaemu.backends", "mmaemu.plan", "mmaemu.model.dot_product")


def test_importing_remote_loads_neither_torch_nor_the_arithmetic():
    code = f"import sys, mmaemu.remote; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_remote_exports_the_names_of_the_client_package():
    assert mmaemu.remote.__all__ == mmaemu_client.__all__
    assert all(getattr(mmaemu.remote, name) is getattr(mmaemu_client, name) for name in mmaemu_client.__all__)


def test_exported_names_are_sorted():
    assert mmaemu.remote.__all__ == sorted(mmaemu.remote.__all__)


def test_a_type_checker_sees_the_names_that_run_time_has():
    tree = ast.parse(Path(mmaemu.remote.__file__).read_text())
    imported = [
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "mmaemu_client"
        for alias in node.names
    ]
    public = [name for name, value in vars(mmaemu.remote).items() if not name.startswith("_") and name != "annotations"]
    assert sorted(imported) == sorted(public) == mmaemu.remote.__all__


@pytest.mark.parametrize("name", ["scaled_mm", "accumulate", "explain"])
def test_a_remote_call_takes_the_arguments_of_the_local_one(name):
    local = dict(inspect.signature(getattr(mmaemu, name)).parameters)
    remote = dict(inspect.signature(getattr(mmaemu.remote, name)).parameters)
    for here_alone in ("progress", "threads"):
        local.pop(here_alone, None)
    added = {key: remote.pop(key) for key in ("overrides", "url")}
    assert {key: (p.kind, p.default) for key, p in remote.items()} == {
        key: (p.kind, p.default) for key, p in local.items()
    }
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in added.values())


@pytest.mark.parametrize("name", [name for name in mmaemu_client.__all__ if name[0].islower()])
def test_a_client_method_takes_the_arguments_of_the_function(name):
    function = dict(inspect.signature(getattr(mmaemu.remote, name)).parameters)
    function.pop("url")
    method = inspect.signature(getattr(mmaemu.remote.Client("http://lab:8642"), name)).parameters
    assert {key: (p.kind, p.default) for key, p in method.items()} == {
        key: (p.kind, p.default) for key, p in function.items()
    }


if TYPE_CHECKING:
    # For mypy and pyright alone: a method of both clients keeps its result's type, awaitable in the async one.
    def types_of_methods(client: mmaemu.remote.Client, async_client: mmaemu.remote.AsyncClient) -> None:
        assert_type(client.explain(1, 2, cells=[(0, 0)]), mmaemu.Trace)
        assert_type(async_client.explain(1, 2, cells=[(0, 0)]), Awaitable[mmaemu.Trace])
        assert_type(async_client.scaled_mm(1, 2, 3, 4), Awaitable[Any])
        assert_type(mmaemu.remote.explain(1, 2), mmaemu.Trace)
        client.scaled_mm(1, 2, 3)  # type: ignore[call-arg]
