# SPDX-License-Identifier: Apache-2.0
"""The documentation runs: examples print what the pages say, tables are current, links lead somewhere.

A page is one session: its ```python blocks with >>> run in order and share their names. A block that must not run here
(it needs a service or a GPU) is fenced as ```python norun.
"""

from __future__ import annotations

import doctest
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from tools import pages, render_contract, render_tables

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OPTIONAL = ("torch", "ml_dtypes")
"""Packages that an example may import without every installation having them."""

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)``` *$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced piece of Python of a page."""

    line: int
    info: list[str]
    text: str


def python_blocks(page: str) -> list[Block]:
    found = []
    for match in _FENCE.finditer(page):
        info = match["info"].split()
        if info and info[0] in ("python", "pycon", "py"):
            line = page.count("\n", 0, match.start("body"))
            indent = len(match["indent"])
            text = "".join(row[indent:] or "\n" for row in match["body"].splitlines(keepends=True))
            found.append(Block(line, info, text))
    return found


def session(page: str, name: str) -> doctest.DocTest:
    """The runnable examples of a page, in order, with the line numbers of the page."""
    parser = doctest.DocTestParser()
    examples = []
    for block in python_blocks(page):
        if "norun" not in block.info and ">>>" in block.text:
            for example in parser.get_examples(block.text, name):
                example.lineno += block.line
                examples.append(example)
    return doctest.DocTest(examples, {"__name__": "__main__"}, name, name, 0, None)


def failures(test: doctest.DocTest) -> str:
    """What doctest reports; empty where every example prints what the page says."""
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, out=report.append)
    return "".join(report)


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_examples_of_page_print_what_it_says(page, monkeypatch, tmp_path):
    test = session(page.read_text("utf-8"), page_id(page))
    for package in OPTIONAL:
        if any(re.search(rf"\b{package}\b", example.source) for example in test.examples):
            pytest.importorskip(package)
    for variable in ("MMAEMU_PROFILE", "MMAEMU_URL", "MMAEMU_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    report = failures(test)
    assert not report, report


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_python_without_prompt_is_python(page):
    for block in python_blocks(page.read_text("utf-8")):
        if ">>>" not in block.text:
            compile(block.text, f"{page_id(page)}, line {block.line}", "exec")


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_relative_links_lead_to_files(page):
    targets = [match["target"].partition("#")[0] for match in _LINK.finditer(page.read_text("utf-8"))]
    local = [target for target in targets if target and not re.match(r"[a-z]+:", target)]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_worked_sum_is_among_the_examples_that_run():
    page = (ROOT / "docs" / "arithmetic.md").read_text("utf-8")
    assert any("hopper-wgmma" in example.source for example in session(page, "arithmetic.md").examples)


def test_wrong_output_on_a_page_is_reported_with_its_line():
    page = "# Title\n\n```python\n>>> 1 + 1\n3\n```\n"
    assert "line 4" in failures(session(page, "page.md"))


def test_later_block_sees_names_of_an_earlier_one():
    page = "```python\n>>> x = 2\n```\n\ntext\n\n```python\n>>> x + 1\n3\n```\n"
    assert failures(session(page, "page.md")) == ""


def test_norun_block_does_not_run():
    assert session("```python norun\n>>> 1 / 0\n```\n", "page.md").examples == []


@pytest.mark.parametrize("tool", [render_tables, render_contract])
def test_generated_parts_are_those_of_the_code(tool):
    page = tool.PAGE.read_text("utf-8")
    assert page == pages.renewed(page, tool.parts()), f"run: python -m {tool.__name__}"


def test_every_instruction_and_profile_has_its_place_in_the_fact_tables():
    from mmaemu import profiles

    rendered = render_tables.parts()["tables"]
    missing = [name for name in profiles.preset_names() + profiles.names() if name not in rendered]
    assert missing == []
