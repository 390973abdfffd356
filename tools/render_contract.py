# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/contract.md, rendered from the checks that validation runs.

python tools/render_contract.py           # rewrite the tables in the page
python tools/render_contract.py --check   # exit 1 if the page is not current
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mmaemu import validation
from mmaemu.checks.finding import Check
from mmaemu.profiles import load

PAGE = Path(__file__).parents[1] / "docs" / "contract.md"
BEGIN, END = "<!-- begin tables -->", "<!-- end tables -->"
VERSIONS = ("torch2.7", "torch2.13")


def render() -> str:
    """All tables as Markdown."""
    return "\n\n".join(
        [
            "### torch._scaled_mm",
            reference_table(),
            "### torch.nn.functional.scaled_mm, before it goes the same way",
            functional_table(),
            "### Not modelled, or malformed in mmaemu's own terms",
            own_table(),
        ]
    )


def reference_table() -> str:
    rows = []
    for number, check in enumerate(validation.REFERENCE_CHECKS, 1):
        exceptions = [exception(check, version) for version in VERSIONS]
        error = "ReferenceRejectsError" if "ValueError" not in exceptions else "ReferenceRejects(Value)Error"
        rows.append([str(number), check.condition, error, *exceptions, check.confidence, when(check)])
    return markdown(["", "has to hold", "mmaemu raises", "torch 2.7", "torch 2.13", "confidence", "looked at"], rows)


def functional_table() -> str:
    rows = [
        [str(number), check.condition, "ReferenceRejectsValueError", "ValueError", check.confidence, when(check)]
        for number, check in enumerate(validation.FUNCTIONAL_CHECKS, 1)
    ]
    return markdown(["", "has to hold", "mmaemu raises", "torch 2.13", "confidence", "looked at"], rows)


def own_table() -> str:
    rows = [[check.condition, "InvalidInputError"] for check in validation.OPTION_CHECKS]
    checks = (*validation.FUNCTIONAL_MODEL_CHECKS, *validation.MODEL_CHECKS)
    rows += [[check.condition, "UnsupportedFeatureError"] for check in checks]
    return markdown(["has to hold", "mmaemu raises"], rows)


def exception(check: Check, version: str) -> str:
    return str(load.contract_facts(version)[check.exception].value) if check.exception else "RuntimeError"


def when(check: Check) -> str:
    """`accumulate` has no outputs and takes any sizes and layouts."""
    notes = ["scaled_mm alone"] if check.whole_call else []
    notes += ["unless M, N or K is 0"] if check.unless_empty else []
    return "; ".join(notes) or "always"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def with_tables(page: str) -> str:
    """The page with its tables replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE.name}: wanted the lines {BEGIN} and {END}, in this order")
    return f"{before}{BEGIN}\n\n{render()}\n\n{END}{after}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Render the tables of docs/contract.md.")
    parser.add_argument("--check", action="store_true", help="exit 1 if the page is not current")
    options = parser.parse_args(arguments)
    page = PAGE.read_text("utf-8")
    current = with_tables(page)
    if options.check and page != current:
        print(f"{PAGE.name} is not current; run: python tools/render_contract.py", file=sys.stderr)
        return 1
    PAGE.write_text(current, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
