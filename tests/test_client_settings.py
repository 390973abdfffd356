# SPDX-License-Identifier: Apache-2.0
"""Where a client takes its settings from, and what it says about bad ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mmaemu.errors import InvalidInputError
from mmaemu_client import settings
from mmaemu_client.settings import resolve

VARIABLES = ("MMAEMU_URL", "MMAEMU_API_KEY", "MMAEMU_TIMEOUT", "MMAEMU_MAX_RETRIES", "MMAEMU_CA_BUNDLE")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_without_an_address_the_error_says_to_set_mmaemu_url():
    with pytest.raises(InvalidInputError, match="Set MMAEMU_URL"):
        resolve()


def test_the_variables_fill_what_no_argument_gives(monkeypatch, tmp_path):
    bundle = tmp_path / "ca.pem"
    bundle.write_text("")
    values = ("http://lab:8642/gpu/", "k-1", "2.5", "7", str(bundle))
    for name, value in zip(VARIABLES, values, strict=True):
        monkeypatch.setenv(name, value)
    found = resolve()
    assert (found.url, found.api_key, found.timeout, found.max_retries, found.ca_bundle) == (
        "http://lab:8642/gpu",
        "k-1",
        2.5,
        7,
        str(bundle),
    )


def test_an_argument_wins_over_its_variable(monkeypatch):
    monkeypatch.setenv("MMAEMU_URL", "http://lab:8642")
    monkeypatch.setenv("MMAEMU_TIMEOUT", "5")
    found = resolve("http://other:1", timeout=3)
    assert (found.url, found.timeout) == ("http://other:1", 3.0)


@pytest.mark.parametrize(
    "url", ["lab:8642", "ftp://lab", "http://", "http://lab:99999", "http://lab?x=1", "http://lab#top", "file:///tmp"]
)
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(InvalidInputError) as caught:
        resolve(url)
    assert caught.value.field == "url"


def test_a_password_in_the_address_is_refused_and_not_repeated():
    with pytest.raises(InvalidInputError) as caught:
        resolve("http://me:hunter2@lab:8642")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MMAEMU_TIMEOUT", "soon"),
        ("MMAEMU_TIMEOUT", "0"),
        ("MMAEMU_TIMEOUT", "inf"),
        ("MMAEMU_MAX_RETRIES", "-1"),
        ("MMAEMU_MAX_RETRIES", "2.5"),
        ("MMAEMU_CA_BUNDLE", "/no/such/file.pem"),
        ("MMAEMU_API_KEY", "two words"),
    ],
)
def test_a_variable_with_a_bad_value_is_named(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidInputError) as caught:
        resolve("http://lab:8642")
    assert caught.value.field == variable


def test_the_key_is_not_shown():
    assert "k-1" not in repr(resolve("http://lab:8642", api_key="k-1"))


def test_the_page_lists_every_variable():
    page = (Path(__file__).parents[1] / "docs/client.md").read_text()
    assert re.findall(r"^\| `(MMAEMU_\w+)` \|", page, re.MULTILINE) == list(VARIABLES)


def test_every_variable_that_the_client_reads_is_tested_here():
    assert set(re.findall(r"MMAEMU_\w+", Path(settings.__file__).read_text())) == set(VARIABLES)
