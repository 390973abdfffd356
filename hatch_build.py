# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels into the package as it is installed. Without a C++ compiler the package installs all the same:
the reference backend runs, and `mmaemu doctor` says what is missing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("engine/mmaemu/backends/native")
LIBRARY = NATIVE / "kernels.so"
# Sums must be rounded as they stand: no reassociation, no contraction, no assumption about the rounding mode. No flag
# names a processor: functions do, and are chosen at run time.
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-shared", "-frounding-math", "-ffp-contract=off", "-fno-fast-math"]
ALONE = ["-static-libstdc++", "-static-libgcc"]
"""The library brings what it needs of the compiler's runtime: the machine that loads it may have no compiler."""


class CustomBuildHook(BuildHookInterface[Any]):
    """hatchling's hook: before a wheel or an editable install is put together."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        problem = build(root)
        if problem is not None:
            (root / LIBRARY).unlink(missing_ok=True)
            self.app.display_warning(f"mmaemu installs without its compiled kernels: {problem}")
            return
        build_data["artifacts"].append(str(LIBRARY))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def build(root: Path) -> str | None:
    """Compile, unless the library is newer than its sources; the reason where that does not work."""
    target, sources = root / LIBRARY, sorted((root / NATIVE).glob("*.cpp"))
    read = [*sources, *(root / NATIVE).glob("*.h"), Path(__file__)]
    made = target.stat().st_mtime if target.exists() else 0.0
    extra = os.environ.get("MMAEMU_CXXFLAGS", "").split()
    if not extra and all(path.stat().st_mtime < made for path in read):
        return None
    compiler = next((found for name in compilers() if (found := shutil.which(name))), None)
    if compiler is None or platform.system() not in ("Linux", "Darwin"):
        return f"no C++ compiler found ({', '.join(compilers())})"
    # Put in place when it is whole: a process that starts meanwhile finds the old one.
    whole = target.with_name(f"kernels.{os.getpid()}.tmp")
    for runtime in (ALONE, []):  # not every compiler has the static ones
        command = [compiler, *FLAGS, *extra, *([] if extra else runtime), *map(str, sources), "-o", str(whole)]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode == 0:
            whole.replace(target)
            return None
    whole.unlink(missing_ok=True)
    return f"{compiler} failed: {run.stderr.strip().splitlines()[-1:]}"


def compilers() -> list[str]:
    """$CXX alone where it is set."""
    named = os.environ.get("CXX")
    return [named] if named else ["c++", "g++", "clang++"]


if __name__ == "__main__":
    reason = build(Path(__file__).parent)
    print(reason or f"built {LIBRARY}")
    sys.exit(reason is not None)
