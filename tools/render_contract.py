# SPDX-License-Identifier: Apache-2.0
"""The tables and lists of docs/contract.md, rendered from the checks of validation and the differences under test.

python -m tools.render_contract           # rewrite the tables in the page
python -m tools.render_contract --check   # exit 1 if the page is not current
"""

from __future__ import annotations

import sys

from tests.support import contract_differences as found
from tools import pages

from mmaemu import profiles, validation
from mmaemu.checks.finding import Check
from mmaemu.errors import ReferenceRejectsError, ReferenceRejectsValueError

PAGE = pages.DOCS / "contract.md"

PROFILES = {"torch 2.7": "h100-pcie-cublaslt12.8", "torch 2.13": "h100-pcie-cublaslt12.9"}
"""One device under each version, whose contracts fill the columns."""


def parts() -> dict[str, str]:
    """What stands between the marks of each name."""
    return {
        "scaled_mm": reference_table(),
        "functional": functional_table(),
        "own": own_table(),
        "differences": differences(),
    }


def reference_table() -> str:
    rows = []
    for number, check in enumerate(validation.REFERENCE_CHECKS, 1):
        under = [exception(check, profile) for profile in PROFILES.values()]
        errors = ReferenceRejectsValueError if "ValueError" in under else ReferenceRejectsError
        rows.append([str(number), check.condition, names(check), errors.__name__, *under, sure(check), when(check)])
    return pages.table(
        ["", "has to hold", "field", "mmaemu raises", *PROFILES, "confidence", "looked at"], rows
    )  # fmt: skip


def functional_table() -> str:
    rows = []
    for number, check in enumerate(validation.FUNCTIONAL_CHECKS, 1):
        row = [str(number), check.condition, names(check), ReferenceRejectsValueError.__name__]
        rows.append([*row, exception(check, PROFILES["torch 2.13"]), check.confidence, when(check)])
    return pages.table(["", "has to hold", "field", "mmaemu raises", "torch 2.13", "confidence", "looked at"], rows)


def own_table() -> str:
    rows = [[check.condition, names(check), "InvalidInputError", when(check)] for check in validation.OPTION_CHECKS]
    for check in validation.FUNCTIONAL_MODEL_CHECKS:
        looked_at = f"by torch.nn.functional.scaled_mm alone; {when(check)}"
        rows.append([check.condition, names(check), "UnsupportedFeatureError", looked_at])
    for check in validation.MODEL_CHECKS:
        rows.append([check.condition, names(check), "UnsupportedFeatureError", when(check)])
    return pages.table(["has to hold", "field", "mmaemu raises", "looked at"], rows)


def differences() -> str:
    groups = (
        ("Of `torch._scaled_mm`, it accepts more than the kernel:", found.LOOSER),
        ("Of `torch._scaled_mm`, it refuses more:", found.STRICTER),
        ("Of `torch.nn.functional.scaled_mm`:", found.FUNCTIONAL_DIFFERENCES),
    )
    return "\n\n".join(f"{title}\n\n" + "\n".join(f"- {reason}" for reason in reasons) for title, reasons in groups)


def exception(check: Check, name: str) -> str:
    """torch's exception under the profile's contract; a dash where that torch has no such check."""
    profile = profiles.get(name)
    if check.applies is not None and not check.applies(profile):
        return "-"
    return check.exception_under(profile.contract)


def sure(check: Check) -> str:
    """The check's own confidence, or that of the contract's rows where versions differ in it."""
    if not check.exception_field:
        return check.confidence
    found = []
    for version, name in PROFILES.items():
        facts = profiles.get(name).contract_facts
        assert facts is not None
        found.append((version, facts[check.exception_field].confidence))
    if len({confidence for _, confidence in found}) == 1:
        return found[0][1]
    return ", ".join(f"{confidence} ({version.removeprefix('torch ')})" for version, confidence in found)


def names(check: Check) -> str:
    """`a, b` is one field, `a; b` either."""
    return " or ".join(f"`{field}`" if field.isidentifier() else field for field in check.field.split("; "))


def when(check: Check) -> str:
    """`accumulate` has no outputs and takes any sizes and layouts."""
    notes = ["not by accumulate"] if check.whole_call else []
    notes += ["unless M, N or K is 0"] if check.unless_empty else []
    return "; ".join(notes) or "always"


if __name__ == "__main__":
    sys.exit(pages.main(PAGE, parts, "python -m tools.render_contract"))
