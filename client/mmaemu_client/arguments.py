# SPDX-License-Identifier: Apache-2.0
"""From the caller's arguments to what travels: tensors as they lie in memory, and options as JSON.

What cannot travel (a dtype that the wire has no name for, a tensor under autograd) is judged here by the engine's own
checks, so that the caller reads the same sentence as from a local call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mmaemu.bits import Bits
from mmaemu.errors import InvalidInputError
from mmaemu.model import formats
from mmaemu.model.formats import AnyBits, Format
from mmaemu.tensors import Operand

if TYPE_CHECKING:
    from mmaemu.profiles import Profile


@dataclass
class Outgoing:
    """The tensors and layouts of one call, ready for the wire."""

    tensors: dict[str, Bits] = field(default_factory=dict)
    strides: dict[str, list[int]] = field(default_factory=dict)
    specs: dict[str, dict[str, Any]] = field(default_factory=dict)


def pack(operands: Mapping[str, Operand], *, specs_allowed: bool = False) -> Outgoing:
    """Operands under their wire names. A column-major b goes as b_t without a copy.

    Strides travel only where they are not what torch wants (b column-major, all else contiguous), and with block-wise
    scales: the service needs them to refuse what the reference would refuse. With `specs_allowed`, one operand without
    data makes a and b travel as shapes.
    """
    out = Outgoing()
    as_specs = specs_allowed and any(operand.kind == "spec" for operand in operands.values())
    for name, operand in operands.items():
        wanted = column_major(operand.shape) if name == "b" else row_major(operand.shape)
        block_scale = name in ("scale_a", "scale_b") and len(operand.shape) == 2 and min(operand.shape) > 1
        if operand.strides != wanted or block_scale:
            out.strides[name] = list(operand.strides)
        if as_specs and name in ("a", "b"):
            out.specs[name] = {"dtype": operand.dtype, "shape": list(operand.shape)}
            continue
        words = _words(operand, name, shape_alone=as_specs)
        if name == "b" and len(operand.shape) == 2 and words.T.flags.c_contiguous:
            out.tensors["b_t"] = Bits(operand.dtype, words.T)
        else:
            out.tensors[name] = Bits(operand.dtype, words)
    return out


def _words(operand: Operand, name: str, *, shape_alone: bool) -> AnyBits:
    fmt = wire_format(operand.dtype)
    if fmt is None:
        known = ", ".join(found.torch_name for found in formats.ALL if found is not formats.TF32)
        raise InvalidInputError.because(name, got=operand.dtype, wanted=f"a dtype that can travel: {known}")
    if operand.kind == "spec" and shape_alone:
        # Beside shapes without data no value is looked at.
        return np.zeros(operand.shape, fmt.storage)
    return operand.data


def wire_format(dtype: str) -> Format | None:
    """The format in which tensors of this dtype travel, or None."""
    return next((fmt for fmt in formats.ALL if fmt.torch_name == dtype and fmt is not formats.TF32), None)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Contiguous strides in elements, as torch counts them: a zero size steps as one."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def column_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(reversed(row_major(tuple(reversed(shape))))) if len(shape) == 2 else row_major(shape)


def can_travel(operands: Mapping[str, Operand]) -> bool:
    """False where a local call would refuse too: the wire has no such dtype, or torch would record the call."""
    return not any(
        operand.requires_grad or (wire_format(operand.dtype) is None and not _is_shape(name, operand))
        for name, operand in operands.items()
    )


def _is_shape(name: str, operand: Operand) -> bool:
    return operand.kind == "spec" and name in ("a", "b")


def mma_operand(value: Any, fmt: str | None, name: str) -> Operand | None:
    """The operand that an array of plain unsigned words is, read as format `fmt`; None for every other value.

    tf32 words travel as float32, of which they are the storage.
    """
    if not isinstance(value, np.ndarray) or value.dtype.kind != "u":
        return None
    if fmt is None:
        raise InvalidInputError.because(
            name, got=f"plain {value.dtype} words", wanted="a format for them", hint="Name it in fmt_a and fmt_b."
        )
    found = formats.get(fmt, "acc" if name == "c" else f"fmt_{name}")
    if value.dtype != found.storage:
        raise InvalidInputError.because(
            name, got=value.dtype, wanted=f"a {found.storage} array: the bit patterns of {found.name}"
        )
    dtype = formats.F32.torch_name if found is formats.TF32 else found.torch_name
    strides = tuple(step // value.itemsize for step in value.strides)
    return Operand(dtype, value.shape, strides, value, "numpy")


@dataclass(frozen=True)
class ProfileChoice:
    """The profile of a call by name, and the digest that the service must confirm."""

    name: Any
    overrides: dict[str, Any]
    digest: str | None
    """Known where the caller passes a Profile: its content then has to be the service's. None for a name."""


def choose_profile(profile: str | Profile | None, overrides: Mapping[str, Any] | None) -> ProfileChoice:
    """What travels of `profile`. Without a name the caller's own default goes, so that the service's plays no part."""
    from mmaemu import profiles

    if overrides is not None and not isinstance(overrides, Mapping):
        wanted = "a mapping of profile fields to values"
        raise InvalidInputError.because("overrides", got=f"a {type(overrides).__name__}", wanted=wanted)
    if isinstance(profile, profiles.Profile):
        changed = profile.with_overrides(overrides or {})
        # Only the last override of a key travels, so the digest is taken over the last ones too.
        last = dict(changed.overrides)
        return ProfileChoice(changed.name, last, replace(changed, overrides=tuple(last.items())).digest)
    return ProfileChoice(profiles.default_name() if profile is None else profile, dict(overrides or {}), None)


def as_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` as plain JSON values. InvalidInputError names an option that is none."""
    options = {}
    for name, value in given.items():
        try:
            options[name] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            got = f"a {type(value).__name__}"
            raise InvalidInputError.because(name, got=got, wanted="a plain value: text, number, list") from None
    return options
