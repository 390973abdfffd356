# SPDX-License-Identifier: Apache-2.0
"""Generated parts of pages: a part stands between two marks that bear its name, and a tool's `main` renders it anew."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """As Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(entry.replace("|", "\\|") for entry in line) + " |" for line in lines)


def renewed(text: str, parts: dict[str, str]) -> str:
    """The page with what stands between the marks of each name replaced."""
    for name, part in parts.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise SystemExit(f"wanted the lines {begin} and {end}, in this order")
        text = f"{before}{begin}\n\n{part}\n\n{end}{after}"
    return text


def main(page: Path, parts: Callable[[], dict[str, str]], command: str, arguments: Sequence[str] | None = None) -> int:
    """Rewrite the page, or with --check say whether it is current. command: what renews it."""
    parser = argparse.ArgumentParser(prog=command, description=f"Render the generated parts of docs/{page.name}.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if the page is not current")
    options = parser.parse_args(arguments)
    text = page.read_text("utf-8")
    current = renewed(text, parts())
    if text == current:
        return 0
    if options.check:
        print(f"{page.name} is not current; run: {command}", file=sys.stderr)
        return 1
    page.write_text(current, "utf-8")
    return 0
