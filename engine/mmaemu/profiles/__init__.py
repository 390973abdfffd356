# SPDX-License-Identifier: Apache-2.0
"""Profiles: every number about a device and its library, with source and confidence.

`get(name)` gives a Profile, `names()` lists them; `preset(name)` gives one instruction family for `mmaemu.model.dot`.
"""

from __future__ import annotations

import os
from functools import cache

from mmaemu.errors import InvalidInputError
from mmaemu.profiles import load
from mmaemu.profiles.facts import CONFIDENCES, Confidence, Fact
from mmaemu.profiles.gemm import GemmRule
from mmaemu.profiles.instruction import Instruction, StepRule
from mmaemu.profiles.profile import Profile, from_table, pick

__all__ = [
    "CONFIDENCES",
    "Confidence",
    "DEFAULT",
    "Fact",
    "GemmRule",
    "Instruction",
    "Profile",
    "StepRule",
    "default_name",
    "get",
    "names",
    "preset",
    "preset_names",
]

DEFAULT = "h100-pcie-cublaslt12.8"
"""Used where neither the call nor MMAEMU_PROFILE names a profile: the fp8 arithmetic of Hopper's wgmma is recorded."""


def default_name() -> str:
    return os.environ.get("MMAEMU_PROFILE", DEFAULT)


def names() -> list[str]:
    return load.device_names()


def get(profile: str | Profile | None = None) -> Profile:
    """The profile called `profile`; a Profile passes through; None is MMAEMU_PROFILE or the default.

    InvalidInputError names the known profiles.
    """
    if isinstance(profile, Profile):
        return profile
    return _get(default_name() if profile is None else profile)


@cache
def _get(name: str) -> Profile:
    if name not in names():
        raise InvalidInputError.because("profile", got=repr(name)[:80], wanted=f"one of {', '.join(names())}")
    return from_table(name)


def preset_names() -> list[str]:
    return load.family_names()


def preset(name: str, fmt_a: str, fmt_b: str, accumulator: str) -> Instruction:
    """The instruction of family `name` for these formats.

    InvalidInputError for an unknown family, UnsupportedFeatureError for formats that it has not modelled.
    """
    if name not in preset_names():
        raise InvalidInputError.because("preset", got=repr(name)[:80], wanted=f"one of {', '.join(preset_names())}")
    return pick(list(load.family(name)), fmt_a, fmt_b, accumulator, name)
