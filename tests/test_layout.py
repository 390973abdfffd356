# SPDX-License-Identifier: Apache-2.0
"""The shape of the source tree: which room imports which, what a bare import loads, how each file begins."""

from __future__ import annotations

import ast
import functools
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {"mmaemu": ROOT / "engine/mmaemu", "mmaemu_client": ROOT / "client/mmaemu_client"}
SOURCES["mmaemu_server"] = ROOT / "server/mmaemu_server"

# Each room, the modules that live in it, and the rooms it may import from. A module belongs to the room with the
# longest matching name. The arithmetic (model) reads the rules that profiles hold and knows nothing of calls or plans;
# a plan is made from a request without looking at values; backends join the two.
ROOMS: dict[str, tuple[list[str], set[str]]] = {
    "errors": (["mmaemu.errors"], set()),
    "formats": (["mmaemu.model.formats", "mmaemu.model.decode", "mmaemu.model.rounding"], {"errors"}),
    "profiles": (["mmaemu.profiles"], {"errors", "formats"}),
    "bits": (["mmaemu.bits", "mmaemu.tensors"], {"errors", "formats"}),
    "model": (["mmaemu.model"], {"errors", "formats", "profiles"}),
    "request": (
        ["mmaemu.request", "mmaemu.scaling", "mmaemu.recipes", "mmaemu.checks", "mmaemu.validation"],
        {"errors", "formats", "profiles", "bits"},
    ),
    "plan": (["mmaemu.plan", "mmaemu.stream_k", "mmaemu.cutlass_sm90"], {"errors", "formats", "profiles", "request"}),
    "backends": (["mmaemu.backends"], {"errors", "formats", "profiles", "plan", "model"}),
    "api": (
        [
            "mmaemu.api",
            "mmaemu.functional",
            "mmaemu.factors",
            "mmaemu.prepared",
            "mmaemu.torch_ops",
            "mmaemu.emulation",
            "mmaemu.trace",
            "mmaemu.trace_cell",
            "mmaemu.trace_compare",
            "mmaemu.trace_text",
        ],
        {"errors", "formats", "profiles", "bits", "model", "request", "plan", "backends"},
    ),
    "testing": (
        ["mmaemu.testing"],
        {"errors", "formats", "profiles", "bits", "model", "request", "plan", "backends", "api"},
    ),
    "wire": (["mmaemu.wire"], {"errors", "formats", "bits"}),
    "calls": (
        ["mmaemu.calls"],
        {"errors", "formats", "profiles", "bits", "model", "request", "backends", "api", "wire"},
    ),
    "client": (["mmaemu_client"], {"errors", "formats", "profiles", "bits", "request", "api", "wire"}),
    "remote": (["mmaemu.remote"], {"client"}),
    "replay": (
        ["mmaemu.replay"],
        {"errors", "formats", "profiles", "bits", "model", "api", "wire", "calls", "remote"},
    ),
    "server": (
        ["mmaemu_server"],
        {"errors", "formats", "profiles", "bits", "model", "request", "plan", "backends", "api", "wire", "calls"},
    ),
    "cli": (
        ["mmaemu.cli", "mmaemu.__main__"],
        {
            "errors",
            "formats",
            "profiles",
            "bits",
            "model",
            "backends",
            "api",
            "wire",
            "calls",
            "remote",
            "replay",
            "server",
        },
    ),
}
FRONT = ["mmaemu", "mmaemu_client", "mmaemu_server"]
"""The packages' own __init__ files: tables of names, checked by what they load instead."""


@functools.cache
def modules() -> dict[str, Path]:
    found = {}
    for package, folder in SOURCES.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join([package, *(part for part in parts if part != "__init__")])] = path
    return found


def room_of(module: str) -> str:
    homes = [(home, room) for room, (prefixes, _) in ROOMS.items() for home in prefixes]
    matching = [(home, room) for home, room in homes if module == home or module.startswith(f"{home}.")]
    return max(matching, key=lambda pair: len(pair[0]), default=("", ""))[1]


def imported_by(module: str) -> Iterator[tuple[str, int]]:
    """Every module of ours that `module` imports, anywhere in its text, with the line."""
    for node in ast.walk(ast.parse(modules()[module].read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: imports are absolute here"
            # `from package import name` may name a module or something inside one.
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules() else str(node.module) for name in below]
        else:
            continue
        yield from ((name, node.lineno) for name in names if name in modules())


@functools.cache
def loaded_by(statement: str) -> set[str]:
    """The modules that a new interpreter holds after `statement`."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def lazy_packages() -> list[str]:
    """The packages whose names load on first use."""
    packages = [name for name, path in modules().items() if path.name == "__init__.py"]
    return sorted(name for name in packages if "def __getattr__" in modules()[name].read_text())


def test_every_module_has_a_room():
    homeless = [name for name in modules() if name not in FRONT and not room_of(name)]
    assert homeless == [], "say in ROOMS which room these live in and what they may import"


def test_imports_follow_the_arrows():
    wrong = []
    for module in modules():
        if module in FRONT:
            continue
        room = room_of(module)
        for name, line in imported_by(module):
            other = room_of(name)
            if name not in FRONT[:1] and other != room and other not in ROOMS[room][1]:
                wrong.append(f"{module}:{line} imports {name}: {room} may not know {other}")
    assert wrong == []


def test_arrows_make_no_circle():
    done: set[str] = set()
    while ready := {room for room, (_, below) in ROOMS.items() if room not in done and below <= done}:
        done |= ready
    assert set(ROOMS) - done == set()


@pytest.mark.parametrize("package", lazy_packages())
def test_a_module_never_hides_an_exported_function(package):
    exported = importlib.import_module(package)
    clashes = [
        name
        for name in getattr(exported, "__all__", [])
        if f"{package}.{name}" in modules() and getattr(exported, name) is not sys.modules.get(f"{package}.{name}")
    ]
    assert clashes == [], "importing the module would replace the function of the same name"


def test_importing_mmaemu_loads_the_errors_and_no_more_of_ours():
    ours = {name for name in loaded_by("import mmaemu") if name.startswith("mmaemu")}
    assert ours == {"mmaemu", "mmaemu.errors"}


@pytest.mark.parametrize("heavy", ["numpy", "torch", "httpx"])
def test_importing_mmaemu_loads_no_heavy_package(heavy):
    assert heavy not in loaded_by("import mmaemu")


@pytest.mark.parametrize("heavy", ["torch", "cupy", "fastapi", "mmaemu.backends"])
def test_importing_remote_loads_only_what_the_wire_needs(heavy):
    assert heavy not in loaded_by("import mmaemu.remote")


@pytest.mark.parametrize("heavy", ["torch", "cupy"])
def test_a_local_product_of_bits_loads_no_torch(heavy):
    call = "import numpy as np, mmaemu; one = mmaemu.Bits('float32', np.array(0x3F800000, np.uint32)); "
    call += "a = mmaemu.Bits('float8_e4m3fn', np.zeros((16, 16), np.uint8)); "
    call += "mmaemu.scaled_mm(a, mmaemu.Bits('float8_e4m3fn', a.array.T), one, one)"
    assert heavy not in loaded_by(call)


def python_files() -> list[Path]:
    folders = ["engine", "client", "server", "tests", "tools", "examples"]
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def test_every_python_file_begins_with_its_licence():
    want = "# SPDX-License-Identifier: Apache-2.0\n"
    bare = [
        str(p.relative_to(ROOT))
        for p in python_files()
        if not p.read_text().startswith((want, f"#!/usr/bin/env python3\n{want}"))
    ]
    assert bare == []


def test_every_shipped_module_says_what_it_is():
    silent = [name for name, path in modules().items() if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def test_development_page_names_paths_that_exist():
    page = (ROOT / "docs/development.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = [word for row in rows for word in row.split("`")[1::2]]
    # "`engine/mmaemu/bits.py`, `tensors.py`": what follows in a cell lies beside the first.
    missing = [word for word in named if not list(ROOT.glob(word)) and not list(ROOT.glob(f"engine/mmaemu/{word}"))]
    assert named and missing == []
