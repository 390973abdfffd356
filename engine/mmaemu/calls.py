# SPDX-License-Identifier: Apache-2.0
"""Run a wire Call with the local engine: what the service's workers and the command line do with a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import mmaemu
from mmaemu import profiles
from mmaemu.backends.interface import Progress
from mmaemu.bits import Bits, Spec
from mmaemu.errors import InvalidInputError
from mmaemu.model import formats
from mmaemu.profiles import Profile
from mmaemu.wire import OPERATIONS, Call, Reply

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Cost:
    """What a call asks for, from its shapes alone."""

    macs: int
    k: int
    result_bytes: int
    cells: int


def run(call: Call, progress: Progress | None = None) -> Reply:
    """The reply of `call`: tensor `out` (scaled_mm, accumulate), `d` (mma), or the trace of explain as info.

    Info names the engine's version, and the profile with its digest or the preset. Errors are those of the function of
    the same name in mmaemu; a missing tensor and a malformed option are InvalidInputErrors. A b without strides counts
    as column-major, and block-wise scales as laid out the way torch wants them: a file of words has no layout of its
    own.
    """
    if call.op not in _RUNNERS:
        raise _invalid("op", repr(call.op)[:80], f"one of {', '.join(OPERATIONS)}")
    return _RUNNERS[call.op](call, progress)


def cost(call: Call) -> Cost:
    """What `call` will cost to run; 0 for what cannot be told, which `run` then refuses."""
    specs = call.options.get("specs")
    a, b = _sizes(call, specs, "a"), _sizes(call, specs, "b")
    if len(a) != 2:
        return Cost(0, 0, 0, 0)
    if call.op == "mma":
        return Cost(prod(a), a[1], 4 * a[0], 0)
    columns = b[1] if len(b) == 2 else 0
    cells = call.options.get("cells")
    count = len(cells) if isinstance(cells, list) else 0
    if call.op == "explain":
        return Cost(max(count, 1) * a[1], a[1], 0, count)  # the plan alone walks through K once
    out = call.options.get("out_dtype") or ("float32" if call.op == "accumulate" else None)
    itemsize = next((fmt.itemsize for fmt in formats.ALL if out in (fmt.name, fmt.torch_name)), 1)
    if call.op == "accumulate":
        itemsize = 4
    return Cost(a[0] * a[1] * columns, a[1], a[0] * columns * itemsize, 0)


def _scaled_mm(call: Call, progress: Progress | None) -> Reply:
    from mmaemu import api

    _need(call, "scale_a", "scale_b")
    arguments, options = _gemm(call)
    out = api.scaled_mm(**arguments, **options, progress=progress)
    return Reply({"out": out}, _info(options["profile"]))


def _accumulate(call: Call, progress: Progress | None) -> Reply:
    from mmaemu import api

    arguments, options = _gemm(call)
    options["out_dtype"] = options["out_dtype"] or "float32"
    out = api.accumulate(**arguments, **options, progress=progress)
    return Reply({"out": out}, _info(options["profile"]))


def _explain(call: Call, progress: Progress | None) -> Reply:
    from mmaemu import trace

    arguments, options = _gemm(call)
    cells = _cells(call.options.get("cells", []))
    return Reply({}, trace.explain(**arguments, **options, cells=cells).to_dict())


def _mma(call: Call, progress: Progress | None) -> Reply:
    from mmaemu import api

    _need(call, "a", "b", "c")
    a, b, c = (call.tensors[name] for name in ("a", "b", "c"))
    preset = call.options.get("preset")
    if not isinstance(preset, str):
        got = "none" if preset is None else repr(preset)[:80]
        raise _invalid("preset", got, f"one of {', '.join(profiles.preset_names())}")
    fmt_a, fmt_b = _mma_format(call, "fmt_a", a), _mma_format(call, "fmt_b", b)
    acc = call.options.get("acc") or c.dtype
    if acc not in ("f32", "f16", "float32", "float16"):
        raise _invalid("acc", repr(acc)[:80], "f32 or f16")
    if formats.get(acc) is not formats.get(c.dtype):
        raise _invalid("c", c.dtype, f"{formats.get(acc).torch_name}, as acc says")
    backend = call.options.get("backend") or "auto"
    words = api.mma(a.array, b.array, c.array, fmt_a, fmt_b, preset=preset, acc=acc, backend=backend, progress=progress)
    return Reply({"d": Bits(c.dtype, words)}, {"engine_version": mmaemu.__version__, "preset": preset})


_RUNNERS: dict[str, Callable[[Call, Progress | None], Reply]] = {
    "scaled_mm": _scaled_mm,
    "accumulate": _accumulate,
    "mma": _mma,
    "explain": _explain,
}


def _gemm(call: Call) -> tuple[dict[str, Any], dict[str, Any]]:
    """Operands and options as the functions of mmaemu take them."""
    strides = _strides(call)
    operands: dict[str, Any] = {
        name: Bits(bits.dtype, bits.array, strides.get(name) or _scale_strides(call, name))
        for name, bits in call.tensors.items()
        if name not in ("b", "b_t")
    }
    if "specs" in call.options:
        operands |= _specs(call, strides)
    else:
        _need(call, "a")
        operands["b"] = _second(call, strides)
    name, overrides = call.options.get("profile"), call.options.get("overrides") or {}
    if name is not None and not isinstance(name, str):
        raise _invalid("profile", repr(name)[:80], f"one of {', '.join(profiles.names())}")
    if not isinstance(overrides, dict):
        raise _invalid("overrides", repr(overrides)[:80], "an object of profile overrides")
    profile = profiles.get(name)
    options = {
        "out_dtype": _text_or_none(call, "out_dtype"),
        "use_fast_accum": call.options.get("use_fast_accum", False),
        "profile": profile.with_overrides(overrides) if overrides else profile,
        "splitk": _splitk(call.options.get("splitk")),
        "backend": call.options.get("backend") or "auto",
    }
    return operands, options


def _scale_strides(call: Call, name: str) -> Sizes | None:
    """Strides of a scale that came without any: block-wise ones lie as torch wants them, outer dimension first."""
    specs = call.options.get("specs")
    a, b = _sizes(call, specs, "a"), _sizes(call, specs, "b")
    shape = _sizes(call, None, name)
    if len(a) != 2 or len(b) != 2 or len(shape) != 2 or 1 in shape:
        return None
    blocks = -(-a[1] // 128)
    vector_of_a = name == "scale_a" and shape == (a[0], blocks)
    square_of_b = name == "scale_b" and shape == (blocks, -(-b[1] // 128))
    return (1, shape[0]) if vector_of_a or square_of_b else None


def _second(call: Call, strides: Mapping[str, Sizes]) -> Bits:
    """b as [K, N], from whichever of b and b_t the call has."""
    if ("b" in call.tensors) == ("b_t" in call.tensors):
        got = "both" if "b" in call.tensors else "neither"
        raise _invalid("b", got, "exactly one of b [K, N] and b_t [N, K]")
    if "b_t" in call.tensors:
        bits = call.tensors["b_t"]
        given = strides["b_t"][::-1] if "b_t" in strides else strides.get("b")
        return Bits(bits.dtype, bits.array.T, given or _column_major(bits.shape[::-1]))
    bits = call.tensors["b"]
    return Bits(bits.dtype, bits.array, strides.get("b") or _column_major(bits.shape))


def _specs(call: Call, strides: Mapping[str, Sizes]) -> dict[str, Spec]:
    """Shapes in place of the tensors a and b."""
    specs = call.options["specs"]
    if not isinstance(specs, dict) or set(specs) != {"a", "b"}:
        raise _invalid("specs", _keys(specs), 'an object {"a": {"dtype", "shape"}, "b": {...}}')
    present = sorted({"a", "b", "b_t"} & set(call.tensors))
    if present:
        raise _invalid("specs", f"tensor {present[0]} besides specs", "tensors a and b, or specs in their place")
    found = {}
    for name, spec in specs.items():
        field = f"specs.{name}"
        if not isinstance(spec, dict) or set(spec) != {"dtype", "shape"}:
            raise _invalid(field, _keys(spec), "an object with dtype and shape")
        if not isinstance(spec["dtype"], str):
            raise _invalid(f"{field}.dtype", repr(spec["dtype"])[:80], "torch's name of a dtype")
        shape = _int_list(spec["shape"], f"{field}.shape")
        found[name] = Spec(spec["dtype"], shape, strides.get(name) or (_column_major(shape) if name == "b" else None))
    return found


def _column_major(shape: Sizes) -> Sizes | None:
    return (1, max(shape[0], 1)) if len(shape) == 2 else None


def _strides(call: Call) -> dict[str, Sizes]:
    """Option strides, checked against the tensors. `b` may be named for the matrix that came as b_t."""
    found = call.options.get("strides") or {}
    if not isinstance(found, dict):
        raise _invalid("strides", repr(found)[:80], "an object of tensor names and element strides")
    specs = call.options.get("specs")
    shapes = {name: _sizes(call, specs, name) for name in (*call.tensors, "a", "b")}
    checked = {}
    for name, value in found.items():
        if name not in shapes:
            raise _invalid("strides", f"the name {name[:60]!r}", f"one of {', '.join(sorted(shapes))}")
        strides = _int_list(value, f"strides.{name}", lowest=-(1 << 60))  # numpy's reversed views count backwards
        if len(strides) != len(shapes[name]):
            raise _invalid(f"strides.{name}", f"{len(strides)} numbers", f"{len(shapes[name])}, one a dimension")
        checked[name] = strides
    return checked


def _sizes(call: Call, specs: Any, name: str) -> Sizes:
    """The shape of a tensor of the call, of b by way of b_t, or of a spec; () where there is none."""
    if name in call.tensors:
        return call.tensors[name].shape
    if name == "b" and "b_t" in call.tensors:
        return call.tensors["b_t"].shape[::-1]
    spec = specs.get(name) if isinstance(specs, dict) else None
    shape = spec.get("shape") if isinstance(spec, dict) else None
    if isinstance(shape, list) and all(type(size) is int for size in shape):
        return tuple(shape)
    return ()


def _int_list(value: Any, field: str, lowest: int = 0) -> Sizes:
    if (
        not isinstance(value, list)
        or len(value) > 8
        or not all(type(v) is int and lowest <= v < 1 << 60 for v in value)
    ):
        raise _invalid(field, repr(value)[:80], f"a list of at most 8 integers from {lowest} up")
    return tuple(value)


def _cells(value: Any) -> list[tuple[int, int]]:
    pairs = isinstance(value, list) and all(
        isinstance(cell, list) and len(cell) == 2 and all(type(index) is int for index in cell) for cell in value
    )
    if not pairs:
        raise _invalid("cells", repr(value)[:80], "a list of [row, column] pairs")
    return [(i, j) for i, j in value]


def _splitk(value: Any) -> Any:
    """JSON has no tuples; a scheme that is a list or an object could not even be looked up."""
    if isinstance(value, list) and len(value) == 2 and not isinstance(value[1], str):
        raise _invalid("splitk", repr(value)[:80], "S or [S, scheme], such as [4, 'compute_type']")
    return tuple(value) if isinstance(value, list) else value


def _text_or_none(call: Call, name: str) -> str | None:
    value = call.options.get(name)
    if value is not None and not isinstance(value, str):
        raise _invalid(name, repr(value)[:80], "the name of a dtype, or null")
    return value


def _mma_format(call: Call, option: str, bits: Bits) -> str:
    """The operand's format: its dtype, or tf32 for float32 words."""
    own = formats.get(bits.dtype)
    name = call.options.get(option)
    if name is None:
        return own.name
    chosen = formats.get(name, option)
    if chosen.name != own.name and not (chosen is formats.TF32 and own is formats.F32):
        raise _invalid(option, f"{chosen.name} for words of {bits.dtype}", f"{own.name}, or a tensor of that format")
    return chosen.name


def _need(call: Call, *names: str) -> None:
    for name in names:
        if name not in call.tensors:
            raise _invalid(name, "no such tensor", f"the tensor {name}, which {call.op} needs")


def _info(profile: Profile) -> dict[str, Any]:
    return {"engine_version": mmaemu.__version__, "profile": profile.name, "profile_digest": profile.digest}


def _keys(value: Any) -> str:
    return f"members {', '.join(sorted(value))}"[:80] if isinstance(value, dict) else repr(value)[:80]


def _invalid(field: str, got: str, wanted: str) -> InvalidInputError:
    return InvalidInputError.because(field, got=got, wanted=wanted)
