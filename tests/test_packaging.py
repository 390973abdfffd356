# SPDX-License-Identifier: Apache-2.0
"""The wheel: it holds the three packages and their data, and runs on the base dependencies alone.

The thin environment is a virtual environment whose site-packages links to exactly what `pip install mmaemu` brings,
taken from the environment of the tests, so that nothing is fetched.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ["engine/mmaemu", "client/mmaemu_client", "server/mmaemu_server"]

# (N, K) ones times 2.0: every word of the result is K * 2.0 * 1.0 = 32.0.
PRODUCT = """
import numpy as np, mmaemu, sys
bits = lambda word, dtype, shape: mmaemu.Bits(dtype, np.full(shape, word, f"u{1 if 'float8' in dtype else 4}"))
a, b = bits(0x40, "float8_e4m3fn", (16, 16)), bits(0x38, "float8_e4m3fn", (16, 16))
one = bits(0x3F800000, "float32", ())
out = mmaemu.scaled_mm(a, mmaemu.Bits(b.dtype, b.array.T), one, one, out_dtype="float32", profile="l40s")
assert "torch" not in sys.modules
print(f"{out.array[15, 15]:08X}", out.array.shape)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, text=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def thin(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The python of an environment that holds the wheel and the base dependencies."""
    folder = tmp_path_factory.mktemp("thin")
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for source in needed_by(base_requirements(), seen=set()):
        if not (site / source.name).exists():
            (site / source.name).symlink_to(source)
    return folder / "bin/python"


def base_requirements() -> list[str]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(table["project"]["dependencies"])


def needed_by(requirements: list[str], seen: set[str]) -> Iterator[Path]:
    """The entries of site-packages that these requirements and theirs consist of."""
    for requirement in map(Requirement, requirements):
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if requirement.name in seen or not wanted:
            continue
        seen.add(requirement.name)
        distribution = importlib.metadata.distribution(requirement.name)
        tops = {file.parts[0] for file in distribution.files or [] if file.parts[0] != ".."}
        yield from (Path(str(distribution.locate_file(top))) for top in tops - {"__pycache__"})
        yield from needed_by(distribution.requires or [], seen)


def run(python: Path, code: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MMAEMU"))}
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, env=clean, cwd=python.parent)


def test_wheel_holds_every_file_of_the_three_packages(names):
    wanted = {
        str(path.relative_to((ROOT / package).parent))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".pyc", ".tmp")
    }
    assert wanted - names == set()


def test_wheel_holds_nothing_but_the_packages_and_their_metadata(names):
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"mmaemu", "mmaemu_client", "mmaemu_server"}


@pytest.mark.parametrize("package", ["mmaemu", "mmaemu_client", "mmaemu_server"])
def test_wheel_says_that_it_is_typed(names, package):
    assert f"{package}/py.typed" in names


def test_wheel_carries_the_licence(names):
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_base_dependencies_are_the_thin_ones():
    # anyio is httpx's own already; the client names it because it imports it.
    assert {Requirement(text).name for text in base_requirements()} - {"anyio"} == {"numpy", "httpx", "tqdm"}


needs_a_compiler = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("c++", "g++", "clang++")), reason="needs a C++ compiler"
)


@needs_a_compiler
def test_wheel_carries_the_compiled_kernels_and_is_bound_to_a_platform_alone(wheel, names):
    assert "mmaemu/backends/native/kernels.so" in names
    assert "-py3-none-" in wheel.name and not wheel.name.endswith("-any.whl")


@needs_a_compiler
def test_the_kernels_of_the_wheel_run_without_a_compiler(thin):
    code = "import os; os.environ['PATH'] = ''; import mmaemu; s = mmaemu.backends_status()['native']; print(s)"
    assert "available=True" in run(thin, code).stdout


@pytest.fixture(scope="module")
def plain_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What comes of the same tree where there is no compiler."""
    folder = tmp_path_factory.mktemp("plain")
    tree = folder / "tree"
    skip = shutil.ignore_patterns("kernels.so", "__pycache__")
    for name in ("engine", "client", "server"):
        shutil.copytree(ROOT / name, tree / name, ignore=skip)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    environment = {**os.environ, "CXX": "/nonexistent/c++"}
    said = subprocess.run(build, cwd=tree, check=True, capture_output=True, text=True, env=environment)
    assert "without its compiled kernels" in said.stdout + said.stderr
    return next(folder.glob("*.whl"))


def test_without_a_compiler_the_wheel_is_built_all_the_same(plain_wheel):
    assert plain_wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(plain_wheel) as archive:
        assert "mmaemu/backends/native/kernels.so" not in archive.namelist()


def test_without_kernels_the_reference_runs_and_the_status_says_what_to_do(plain_wheel, thin, tmp_path):
    with zipfile.ZipFile(plain_wheel) as archive:
        archive.extractall(tmp_path)
    first = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    result = run(thin, first + PRODUCT + "print(mmaemu.backends_status()['native'].reason)")
    assert result.stdout.startswith("42000000 (16, 16)\nnot compiled: install a C++ compiler"), result.stderr


def test_thin_install_multiplies_without_torch(thin):
    result = run(thin, PRODUCT)
    assert result.stdout == "42000000 (16, 16)\n", result.stderr


def test_thin_install_imports_every_public_name_that_needs_no_torch(thin):
    code = "import mmaemu; print([n for n in mmaemu.__all__ if n != 'emulate' and not hasattr(mmaemu, n)])"
    result = run(thin, code)
    assert result.stdout == "[]\n", result.stderr


@pytest.mark.parametrize("use", ["mmaemu.emulate", "__import__('mmaemu.torch_ops')"])
def test_thin_install_says_what_torchs_side_needs(thin, use):
    code = f"import mmaemu\ntry: {use}\nexcept mmaemu.BackendUnavailableError as error: print(error)"
    result = run(thin, code)
    assert "pip install 'mmaemu[torch]'" in result.stdout, result.stderr


def test_thin_install_lists_the_profiles(thin):
    result = run(thin, "from mmaemu.cli import main; raise SystemExit(main(['profiles']))")
    assert "h100-pcie-cublaslt12.8" in result.stdout, result.stderr


def test_thin_install_says_what_serve_needs(thin):
    result = run(thin, "from mmaemu.cli import main; raise SystemExit(main(['serve']))")
    assert "mmaemu[server]" in result.stderr


def test_thin_install_fails_serve_without_a_traceback(thin):
    result = run(thin, "from mmaemu.cli import main; raise SystemExit(main(['serve']))")
    assert result.returncode != 0 and "Traceback" not in result.stderr
