# SPDX-License-Identifier: Apache-2.0
"""`mmaemu explain` without data, with random data, and with two profiles, as a user types it."""

from __future__ import annotations

import json

import pytest
from tests.support.service import running

from mmaemu.cli import main


def said(capsys, *arguments):
    code = main(["explain", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_plan_counts_how_well_its_decisions_are_known(capsys):
    code, out, _ = said(capsys, "--shape", "64x5760x1920", "--fast", "--out-dtype", "bfloat16")
    assert code == 0 and "how well each decision is known: " in out
    tally, *decisions = out.split("is known: ")[1].splitlines()
    counts = [int(part.split()[0]) for part in tally.split(": ")[1].split(", ")]
    assert sum(counts) == int(tally.split()[0]) == len(decisions)


def test_random_data_gives_a_cell_and_says_that_it_is_random(capsys):
    code, out, _ = said(capsys, "--shape", "32x64x128", "--random", "7", "--out-dtype", "float32")
    assert code == 0 and "cell (0, 0): " in out and "random (gauss, seed 7)" in out
    assert said(capsys, "--shape", "32x64x128", "--random", "7", "--out-dtype", "float32")[1] == out
    assert said(capsys, "--shape", "32x64x128", "--random", "8", "--out-dtype", "float32")[1] != out


def test_a_cell_of_random_data_is_the_same_whatever_else_is_asked(capsys):
    def cell(*arguments):
        out = said(capsys, "--shape", "32x64x128", "--random", "--json", *arguments)[1]
        return next(c for c in json.loads(out)["cells"] if (c["row"], c["column"]) == (3, 5))

    assert cell("--cell", "3,5") == cell("--cell", "1,1", "--cell", "3,5")


@pytest.mark.parametrize("data", ["gauss", "adversarial"])
@pytest.mark.parametrize("formats", ["e4m3,e4m3", "e5m2,e4m3"])
def test_random_data_is_finite_in_every_format(capsys, data, formats):
    out = said(capsys, "--shape", "2x16x512", "--random", "--data", data, "--formats", formats, "--json",
               "--out-dtype", "float32", "--cell", "0,0", "--cell", "1,15")[1]  # fmt: skip
    cells = json.loads(out)["cells"]
    assert len(cells) == 2 and all(cell["exact"]["dot"] is not None for cell in cells)


@pytest.mark.parametrize(
    ("scales", "profile"),
    [
        ("row-wise", "l40s"), ("row-wise", "h200"), ("1x128-128x128", "h100-pcie-cublaslt12.9"),
        ("128x128-1x128", "h100-pcie-cublaslt12.9"), ("1x128-1x128", "h100-pcie-cublaslt12.9"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("random", [(), ("--random",)])
def test_every_kind_of_scales_can_be_looked_at(capsys, scales, profile, random):
    code, out, _ = said(
        capsys, "--shape", "130x272x272", "--scales", scales, "--bias", "--profile", profile, "--out-dtype", "bfloat16",
        *random,
    )  # fmt: skip
    kind = "row wise" if scales == "row-wise" else "block " + scales.replace("-", " ")
    assert code == 0 and f"scales     {kind}, bfloat16 bias" in out and ("cell (0, 0)" in out) == bool(random)


def test_two_profiles_stand_side_by_side(capsys):
    arguments = ("--shape", "32x64x128", "--random", "7", "--out-dtype", "float32", "--compare", "l40s")
    code, out, _ = said(capsys, *arguments)
    assert code == 0
    for wanted in ("h100-pcie-cublaslt12.8 against l40s", "instruction.group", "they part in the sum of k = 0..31"):
        assert wanted in out
    data = json.loads(said(capsys, *arguments, "--json")[1])
    assert data["schema"] == "mmaemu-comparison/1" and data["cells"][0]["parts"]["k"] == [0, 31]


def test_plans_alone_can_be_compared(capsys):
    code, out, _ = said(capsys, "--shape", "64x64x4096", "--compare", "l40s", "--out-dtype", "bfloat16")
    assert code == 0 and "slow_chunks" in out and "cell" not in out


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (("--shape", "32x64"), 2, "--shape"), (("--shape", "32x64x32", "--formats", "e4m3"), 2, "--formats"),
        (("--shape", "32x64x32", "--random", "--formats", "f16,f16"), 2, "--formats"),
        (("--shape", "32x64x32", "--random", "--cell", "99,0"), 2, "cells"),
        (("--shape", "32x64x32", "--compare", "rtx9999"), 2, "profile"),
        (("--shape", "32x64x32", "--compare", "a100"), 4, "profile"),
        (("--shape", "32x64x32", "--scales", "row-wise", "--out-dtype", "float32"), 3, "out_dtype"),
        (("in.safetensors", "--random"), 2, "--random"), (("--random",), 2, "--shape"),
    ],
)  # fmt: skip
def test_bad_flags_are_named(capsys, arguments, code, named):
    got, _, err = said(capsys, *arguments)
    assert got == code and named in err and "Traceback" not in err


@pytest.fixture(scope="module")
def service():
    with running() as address:
        yield address


def test_the_service_explains_and_compares_alike(capsys, service):
    arguments = ("--shape", "130x272x272", "--scales", "row-wise", "--bias", "--random", "3", "--out-dtype", "bfloat16")
    for more in ((), ("--compare", "l40s"), ("--json",)):
        assert said(capsys, *arguments, *more, "--url", service)[1] == said(capsys, *arguments, *more)[1]
