# SPDX-License-Identifier: Apache-2.0
"""The public names: sorted, complete, and there; and one version everywhere."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

import mmaemu

ROOT = Path(__file__).resolve().parents[1]
PUBLIC = ["mmaemu", "mmaemu.model", "mmaemu.profiles", "mmaemu.remote", "mmaemu_client"]


def imported_names(module_name: str) -> set[str]:
    """The names that the module's source imports for others to use: `import x as x`, `from m import x as x`."""
    source = importlib.import_module(module_name).__file__
    assert source is not None
    aliases = [
        alias
        for node in ast.walk(ast.parse(Path(source).read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    return {alias.name for alias in aliases if alias.asname == alias.name}


@pytest.mark.parametrize("name", PUBLIC)
def test_all_is_sorted(name):
    exported = importlib.import_module(name).__all__
    assert list(exported) == sorted(exported)


@pytest.mark.parametrize("name", PUBLIC)
def test_all_names_nothing_twice(name):
    exported = importlib.import_module(name).__all__
    assert len(exported) == len(set(exported))


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_in_all_is_there(name):
    module = importlib.import_module(name)
    missing = [attribute for attribute in module.__all__ if not hasattr(module, attribute)]
    assert missing == []


@pytest.mark.parametrize("name", PUBLIC)
def test_every_re_exported_name_is_in_all(name):
    assert imported_names(name) - set(importlib.import_module(name).__all__) == set()


def test_dir_lists_the_lazy_names_before_they_are_loaded():
    assert set(mmaemu.__all__) <= set(dir(mmaemu))


def test_an_unknown_name_is_an_attribute_error_that_names_it():
    with pytest.raises(AttributeError, match="'scaled_nm'"):
        mmaemu.scaled_nm  # noqa: B018


def project_table():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_version_is_the_one_in_pyproject():
    assert mmaemu.__version__ == project_table()["version"]


def test_version_is_the_newest_release_of_the_changelog():
    headings = re.findall(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == mmaemu.__version__


def test_changelog_keeps_a_place_for_what_is_not_released():
    first = re.search(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None and first[1] == "Unreleased"


def test_installed_metadata_has_the_same_version():
    assert importlib.metadata.version("mmaemu") == mmaemu.__version__
