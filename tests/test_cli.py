# SPDX-License-Identifier: Apache-2.0
"""The command line on files, here and through a service that `mmaemu serve` started; exit codes; no tracebacks."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import safetensors.torch
import torch
from tests.support.service import running

import mmaemu
from mmaemu import Bits, Trace, profiles, wire
from mmaemu.cli import main
from mmaemu.testing import assert_bitwise_equal

M, N, K = 16, 32, 96


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    for name in ("MMAEMU_URL", "MMAEMU_PROFILE", "MMAEMU_THREADS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def url():
    with running() as address:
        yield address


@pytest.fixture
def operands():
    generator = torch.Generator().manual_seed(3)
    return {
        "a": torch.randn(M, K, generator=generator).to(torch.float8_e4m3fn),
        "b_t": torch.randn(N, K, generator=generator).to(torch.float8_e4m3fn),
        "scale_a": torch.tensor(0.3),
        "scale_b": torch.tensor(0.7),
    }


@pytest.fixture
def call_file(tmp_path, operands):
    """What a torch user saves."""
    path = tmp_path / "in.safetensors"
    safetensors.torch.save_file(operands, path)
    return path


def local(operands, **options):
    return mmaemu.scaled_mm(operands["a"], operands["b_t"].t(), operands["scale_a"], operands["scale_b"], **options)


@pytest.mark.parametrize("service", [False, True], ids=["here", "through the service"])
def test_scaled_mm_writes_the_bits_of_the_library(call_file, operands, tmp_path, service, request, capsys):
    where = ["--url", request.getfixturevalue("url")] if service else []
    out = tmp_path / "out.safetensors"
    flags = ["--fast", "--out-dtype", "bfloat16", "--profile", "l40s", "--splitk", "2:output_type"]
    assert (
        main(["scaled-mm", str(call_file), "-o", str(out), *flags, "--set", "gemm.scale_order=a_then_b", *where]) == 0
    )
    expected = local(
        operands,
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
        splitk=(2, "output_type"),
        profile=profiles.get("l40s").with_overrides({"gemm.scale_order": "a_then_b"}),
    )
    assert_bitwise_equal(safetensors.torch.load_file(out)["out"], expected)
    assert "bfloat16 [16, 32]" in capsys.readouterr().out


def test_options_in_the_file_hold_and_flags_replace_them(operands, tmp_path):
    path, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    options = {"mmaemu": json.dumps({"out_dtype": "float16", "profile": "l40s", "use_fast_accum": True})}
    safetensors.torch.save_file(operands, path, options)
    assert main(["scaled-mm", str(path), "-o", str(out), "--slow"]) == 0
    expected = local(operands, out_dtype=torch.float16, profile="l40s", use_fast_accum=False)
    assert_bitwise_equal(safetensors.torch.load_file(out)["out"], expected)


def test_json_files_work_both_ways(operands, tmp_path):
    path, out = tmp_path / "in.json", tmp_path / "out.json"
    tensors = {name: Bits("e4m3", operands[name].view(torch.uint8).numpy()) for name in ("a", "b_t")}
    scales = {name: Bits("float32", operands[name].numpy().view(np.uint32)) for name in ("scale_a", "scale_b")}
    path.write_bytes(wire.call_to_json(wire.Call("scaled_mm", {**tensors, **scales}, {"out_dtype": "float32"})))
    assert main(["scaled-mm", str(path), "-o", str(out)]) == 0
    found = wire.reply_from_json(out.read_bytes()).tensors["out"]
    assert_bitwise_equal(found, local(operands, out_dtype=torch.float32))


@pytest.mark.parametrize("service", [False, True], ids=["here", "through the service"])
def test_explain_shows_a_cell_of_a_file(call_file, operands, service, request, capsys):
    where = ["--url", request.getfixturevalue("url")] if service else []
    assert main(["explain", str(call_file), "--cell", "3,17", "--out-dtype", "float32", "--json", *where]) == 0
    trace = Trace.from_dict(json.loads(capsys.readouterr().out))
    word = int(local(operands, out_dtype=torch.float32).view(torch.int32)[3, 17]) & 0xFFFFFFFF
    assert trace.cells[0]["out"]["bits"] == f"{word:08X}"


def test_explain_of_a_shape_prints_the_plan(capsys):
    assert main(["explain", "--shape", "64x5760x1920", "--out-dtype", "bfloat16"]) == 0
    text = capsys.readouterr().out
    assert "15 chunks of 15 x 128" in text and "assumed" in text


def test_profiles_lists_every_profile_and_marks_the_default(capsys):
    assert main(["profiles"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in profiles.names())
    assert f"{profiles.DEFAULT} *" in text


@pytest.mark.parametrize("name", profiles.names())
def test_profiles_show_gives_every_value_with_its_source(name, capsys):
    assert main(["profiles", "show", name]) == 0
    text = capsys.readouterr().out
    for row in profiles.get(name).instructions:
        for field, fact in row.facts.items():
            assert field in text and fact.source in text and fact.confidence in text
    assert main(["profiles", "show", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == name


def test_doctor_finds_all_well_and_names_what_is_missing(capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "all is well" in text
    for name, status in mmaemu.backends_status().items():
        assert re.search(rf"{name} +{'yes' if status.available else 'no'} +{re.escape(status.reason)}", text)


def test_doctor_asks_the_service(url, capsys):
    assert main(["doctor", "--url", url]) == 0
    assert mmaemu.__version__ in capsys.readouterr().out.split("\nservice: ")[1]


def test_doctor_reports_a_service_that_is_not_there(capsys, monkeypatch):
    monkeypatch.setenv("MMAEMU_MAX_RETRIES", "0")
    assert main(["doctor", "--url", "http://127.0.0.1:9"]) == 1
    assert "PROBLEM: service http://127.0.0.1:9" in capsys.readouterr().out


def test_doctor_hides_secrets(capsys, monkeypatch):
    monkeypatch.setenv("MMAEMU_API_KEY", "hunter2")
    main(["doctor"])
    text = capsys.readouterr().out
    assert "MMAEMU_API_KEY=(set)" in text and "hunter2" not in text


@pytest.mark.truth
@pytest.mark.parametrize("service", [False, True], ids=["here", "through the service"])
def test_replay_of_all_recordings_has_no_mismatch(truth_dir, service, request, capsys):
    where = ["--url", request.getfixturevalue("url")] if service else []
    assert main(["replay", str(truth_dir), *where]) == 0
    assert "48 recordings, 192,000 outputs, 0 mismatches" in capsys.readouterr().out


BAD = {
    "no command": ([], 2, "usage"),
    "no such file": (["scaled-mm", "nowhere.safetensors", "-o", "x"], 2, "nowhere.safetensors"),
    "a profile that is unknown": (["profiles", "show", "rtx9999"], 2, "rtx9999"),
    "neither a file nor a shape": (["explain"], 2, "--shape"),
    "a shape of two sizes": (["explain", "--shape", "3x4"], 2, "MxNxK"),
    "a shape that torch rejects": (["explain", "--shape", "16x16x17"], 3, "divisible by 16"),
    "e5m2 twice": (["explain", "--shape", "16x16x16", "--formats", "e5m2,e5m2"], 3, "float8_e5m2 twice"),
    "instructions only": (["explain", "--shape", "16x16x16", "--profile", "a100"], 4, "instructions only"),
    "an absent backend": (["explain", "--shape", "16x16x16", "--backend", "cuda"], 5, "cuda"),
    "an override without a value": (["explain", "--shape", "16x16x16", "--set", "gemm.k_tile"], 2, "FIELD=VALUE"),
    "an override of nothing": (["explain", "--shape", "16x16x16", "--set", "gemm.colour=red"], 2, "gemm.colour"),
    "a split without a number": (["explain", "--shape", "16x16x16", "--splitk", "many"], 2, "--splitk"),
    "a cell with one number": (["explain", "--shape", "16x16x16", "--cell", "3"], 2, "--cell"),
    "a folder without recordings": (["replay", "."], 2, "manifest.json"),
    "a port that is none": (["serve", "--port", "no"], 2, "port"),
    "a service that is not there": (
        ["explain", "--shape", "16x16x16", "--url", "http://127.0.0.1:9"],
        6,
        "127.0.0.1:9",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_failing_command_says_why_in_one_line_and_in_its_exit_code(name, capsys, tmp_path, monkeypatch):
    arguments, code, wanted = BAD[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MMAEMU_MAX_RETRIES", "0")
    assert main(arguments) == code
    printed = capsys.readouterr()
    message = printed.err or printed.out
    assert wanted in message and "Traceback" not in message
    assert not printed.err or len(printed.err.splitlines()) == 1


def test_a_damaged_file_is_named_as_such(tmp_path, capsys):
    path = tmp_path / "in.safetensors"
    path.write_bytes(b"\x10\0\0\0\0\0\0\0{not json}")
    assert main(["scaled-mm", str(path), "-o", str(tmp_path / "out")]) == 2
    assert "WireFormatError" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_installed_command_answers_help_and_version():
    for flag, wanted in (("--help", "replay"), ("--version", mmaemu.__version__)):
        done = subprocess.run([sys.executable, "-m", "mmaemu", flag], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and wanted in done.stdout


@pytest.mark.parametrize("command", ["serve", "scaled-mm", "explain", "replay", "profiles", "doctor"])
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0 and "usage: mmaemu " + command in capsys.readouterr().out


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_ctrl_c_ends_a_product_between_two_tiles(tmp_path, backend):
    """Exit code 130, one line, and the file that was there before."""
    if not (status := mmaemu.backends_status()[backend]).available:
        pytest.skip(f"needs the backend {backend}: {status.reason}")
    long = {"native": (4096, 8192, 16384), "reference": (1024, 1024, 4096)}[backend]
    random = np.random.default_rng(0)
    m, n, k = long
    one = Bits("float32", np.array(0x3F800000, np.uint32))
    tensors = {
        "a": Bits("float8_e4m3fn", random.integers(0, 0x70, (m, k), np.uint8)),
        "b_t": Bits("float8_e4m3fn", random.integers(0, 0x70, (n, k), np.uint8)), "scale_a": one, "scale_b": one,
    }  # fmt: skip
    given, result = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    given.write_bytes(wire.call_to_safetensors(wire.Call("scaled_mm", tensors, {"out_dtype": "bfloat16"})))
    result.write_text("as before")
    command = [sys.executable, "-c", PRINTS_PROGRESS, "scaled-mm", str(given), "-o", str(result), "--backend", backend]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "a tile\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "mmaemu: interrupted\n")
    assert result.read_text() == "as before" and sorted(tmp_path.iterdir()) == [given, result]


PRINTS_PROGRESS = """
import contextlib, sys
from mmaemu.cli import main, scaled_mm

@contextlib.contextmanager
def progress_bar(label):
    yield lambda done, total: print("a tile", flush=True)

scaled_mm.progress_bar = progress_bar
sys.exit(main())
"""
"""The command, and a line for each tile, for the test to know that it is at work."""


def test_a_result_that_cannot_be_written_leaves_nothing_behind(tmp_path, capsys):
    given = tmp_path / "in.safetensors"
    one = Bits("float32", np.array(0x3F800000, np.uint32))
    words = Bits("float8_e4m3fn", np.full((16, 16), 0x38, np.uint8))
    call = wire.Call("scaled_mm", {"a": words, "b_t": words, "scale_a": one, "scale_b": one}, {"out_dtype": "bfloat16"})
    given.write_bytes(wire.call_to_safetensors(call))
    assert main(["scaled-mm", str(given), "-o", str(tmp_path / "missing" / "out.safetensors")]) == 2
    assert "missing" in capsys.readouterr().err
    (tmp_path / "folder").mkdir()
    assert main(["scaled-mm", str(given), "-o", str(tmp_path / "folder")]) == 2
    assert "folder" in capsys.readouterr().err
    assert main(["scaled-mm", str(given), "-o", "/dev/null"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "in.safetensors"]
