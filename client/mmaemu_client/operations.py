# SPDX-License-Identifier: Apache-2.0
"""Every call that the service knows, as a pure function from arguments to an Exchange. Nothing is sent here.

`Client` and `AsyncClient` take these functions as their methods; names and order of arguments are those of the local
calls, plus `overrides`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import numpy as np

from mmaemu import tensors, wire
from mmaemu.bits import Bits
from mmaemu.errors import InvalidInputError
from mmaemu.tensors import Operand
from mmaemu_client import arguments, replies
from mmaemu_client.exchange import Answer, Exchange

if TYPE_CHECKING:
    from mmaemu.profiles import Profile
    from mmaemu.request import Splitk
    from mmaemu.trace import Trace

T = TypeVar("T")


def scaled_mm(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    *,
    profile: str | Profile | None = None,
    overrides: Mapping[str, Any] | None = None,
    splitk: int | Splitk | None = None,
    backend: str = "auto",
    out: Any = None,
) -> Exchange[Any]:
    """What `mmaemu.scaled_mm` returns, computed by the service: same arguments, same bits, same errors.

    overrides: values of the profile to replace, as in `Profile.with_overrides`. backend: one of the service's. out:
    written here, when the reply has come.
    """
    operands = _read(a=a, b=b, scale_a=scale_a, scale_b=scale_b, bias=bias, scale_result=scale_result)
    if not arguments.can_travel(operands):
        _refuse(a, b, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum, splitk=splitk, backend=backend)
    if out is not None:
        out_dtype = _check_out(a, b, scale_a, scale_b, out, out_dtype)
    choice = arguments.choose_profile(profile, overrides)
    call = _gemm_call("scaled_mm", operands, out_dtype, use_fast_accum, choice, splitk, backend)
    dtype = call.options["out_dtype"] or operands["a"].dtype
    return _post(call, wire.CONTENT_TYPE, _matrix_reader(operands, dtype, choice, out))


def accumulate(
    a: Any,
    b: Any,
    *,
    use_fast_accum: bool = False,
    scale_a: Any = None,
    scale_b: Any = None,
    out_dtype: Any = "float32",
    profile: str | Profile | None = None,
    overrides: Mapping[str, Any] | None = None,
    splitk: int | Splitk | None = None,
    backend: str = "auto",
) -> Exchange[Any]:
    """What `mmaemu.accumulate` returns, computed by the service: the float32 accumulators before the epilogue."""
    scale_a, scale_b = _or_one(scale_a), _or_one(scale_b)
    operands = _read(a=a, b=b, scale_a=scale_a, scale_b=scale_b)
    if not arguments.can_travel(operands):
        _refuse(a, b, scale_a, scale_b, None, None, out_dtype, use_fast_accum, splitk=splitk, backend=backend)
    choice = arguments.choose_profile(profile, overrides)
    call = _gemm_call("accumulate", operands, out_dtype, use_fast_accum, choice, splitk, backend)
    return _post(call, wire.CONTENT_TYPE, _matrix_reader(operands, "float32", choice))


def explain(
    a: Any,
    b: Any,
    scale_a: Any = None,
    scale_b: Any = None,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    *,
    cells: Iterable[Sequence[int]] = (),
    profile: str | Profile | None = None,
    overrides: Mapping[str, Any] | None = None,
    splitk: int | Splitk | None = None,
    backend: str = "auto",
) -> Exchange[Trace]:
    """What `mmaemu.explain` returns, computed by the service. a and b may be shapes without data: `mmaemu.Spec`."""
    scale_a, scale_b = _or_one(scale_a), _or_one(scale_b)
    operands = _read(a=a, b=b, scale_a=scale_a, scale_b=scale_b, bias=bias, scale_result=scale_result)
    if not arguments.can_travel(operands):
        _refuse(a, b, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum, splitk=splitk, backend=backend)
    choice = arguments.choose_profile(profile, overrides)
    call = _gemm_call(
        "explain", operands, out_dtype, use_fast_accum, choice, splitk, backend, cells=[_cell(cell) for cell in cells]
    )

    def read(answer: Answer) -> Trace:
        trace = replies.trace(answer)
        replies.check_profile(trace.profile.get("digest"), choice.digest)
        return trace

    return _post(call, replies.JSON, read)


def mma(
    a: Any,
    b: Any,
    c: Any,
    fmt_a: str | None = None,
    fmt_b: str | None = None,
    *,
    preset: str,
    acc: str | None = None,
) -> Exchange[Any]:
    """What `mmaemu.model.dot` returns, computed by the service: one instruction, [count] accumulators.

    a, b: [count, K]; c: [count]. Arrays of plain unsigned words are bit patterns of fmt_a, fmt_b and acc (default f32),
    and the result is words again. Tensors with a dtype of their own need no format, save "tf32" for float32 words.
    """
    words = {"a": (a, fmt_a), "b": (b, fmt_b), "c": (c, acc or "f32")}
    operands = {
        name: arguments.mma_operand(value, fmt, name) or tensors.read(value, name)
        for name, (value, fmt) in words.items()
    }
    from mmaemu import validation

    validation.refuse_autograd(operands)
    packed = {name: Bits(operand.dtype, operand.data) for name, operand in operands.items()}
    options = arguments.as_options({"preset": preset, "fmt_a": fmt_a, "fmt_b": fmt_b, "acc": acc})

    def read(answer: Answer) -> Any:
        d = replies.tensor(replies.tensors(answer), "d", operands["c"].dtype, operands["c"].shape)
        plain = arguments.mma_operand(a, fmt_a, "a") is not None
        return d.array if plain else tensors.give_back(d.array, d.dtype, operands["a"])

    return _post(wire.Call("mma", packed, options), wire.CONTENT_TYPE, read)


def send(call: wire.Call) -> Exchange[wire.Reply]:
    """A call as a file holds it, and its reply; the trace of explain is the reply's info."""
    if call.op == "explain":
        return _post(call, replies.JSON, lambda answer: wire.Reply({}, replies.trace(answer).to_dict()))
    return _post(call, wire.CONTENT_TYPE, replies.tensors)


def profiles() -> Exchange[Any]:
    """The profiles that the service knows."""
    return _get("/v1/profiles")


def profile(name: str) -> Exchange[Any]:
    """One profile of the service: every value with its source and confidence."""
    if not isinstance(name, str) or not name:
        raise InvalidInputError.because("name", got=repr(name)[:80], wanted="the name of a profile")
    return _get(f"/v1/profiles/{quote(name, safe='')}")


def backends() -> Exchange[Any]:
    """The service's backends, and why those that it lacks are missing."""
    return _get("/v1/backends")


def version() -> Exchange[Any]:
    """The service's engine version."""
    return _get("/v1/version")


def limits() -> Exchange[Any]:
    """The sizes above which the service refuses a call."""
    return _get("/v1/limits")


def health() -> Exchange[Any]:
    """What the service says about its own process."""
    return _get("/healthz")


def _or_one(scale: Any) -> Any:
    return np.ones((), np.float32) if scale is None else scale


def _read(**values: Any) -> dict[str, Operand]:
    return {name: tensors.read(value, name) for name, value in values.items() if value is not None}


def _refuse(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, scale_result: Any, out_dtype: Any, use_fast_accum: bool,
    *, splitk: Any, backend: str,
) -> None:  # fmt: skip
    """Raise what a local call raises. Only for operands that no check lets pass; a profile plays no part in that."""
    from mmaemu import request, validation
    from mmaemu.profiles import DEFAULT

    validation.validate(
        request.build(
            a, b, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum,
            profile=DEFAULT, splitk=splitk, backend=backend,
        )
    )  # fmt: skip


def _check_out(a: Any, b: Any, scale_a: Any, scale_b: Any, out: Any, out_dtype: Any) -> str:
    """The type of the result; raises what a local call raises about `out`, which stays here."""
    from mmaemu import request, validation
    from mmaemu.profiles import DEFAULT

    call = request.build(a, b, scale_a, scale_b, out_dtype=out_dtype, out=out, profile=DEFAULT)
    validation.validate_out(call)
    return call.out_dtype


def _gemm_call(
    op: str,
    operands: Mapping[str, Operand],
    out_dtype: Any,
    use_fast_accum: bool,
    choice: arguments.ProfileChoice,
    splitk: int | Splitk | None,
    backend: str,
    **more: Any,
) -> wire.Call:
    packed = arguments.pack(operands, specs_allowed=op == "explain")
    options = {
        "out_dtype": None if out_dtype is None else tensors.dtype_name(out_dtype),
        "use_fast_accum": use_fast_accum,
        "profile": choice.name,
        "overrides": choice.overrides,
        "splitk": splitk,
        "backend": backend,
        "strides": packed.strides,
        **more,
    }
    if packed.specs:
        options["specs"] = packed.specs
    return wire.Call(op, packed.tensors, arguments.as_options(options))


def _cell(cell: Sequence[int]) -> list[int]:
    try:
        i, j = (int(index) for index in cell)
    except (TypeError, ValueError):
        raise InvalidInputError.because("cells", got=repr(cell)[:80], wanted="(row, column) pairs") from None
    return [i, j]


def _matrix_reader(
    operands: Mapping[str, Operand], dtype: str, choice: arguments.ProfileChoice, target: Any = None
) -> Callable[[Answer], Any]:
    """Reads `out` and gives it back as the caller's a went in, or in `target`."""
    a, b = operands["a"], operands["b"]
    shape = (a.shape[0], b.shape[1]) if len(a.shape) == len(b.shape) == 2 else None

    def read(answer: Answer) -> Any:
        reply = replies.tensors(answer)
        replies.check_profile(reply.info.get("profile_digest"), choice.digest)
        found = replies.tensor(reply, "out", dtype, shape)
        if target is not None:
            return tensors.fill(target, found.array, found.dtype)
        return tensors.give_back(found.array, found.dtype, a)

    return read


def _post(call: wire.Call, accept: str, read: Callable[[Answer], T]) -> Exchange[T]:
    headers = {"content-type": wire.CONTENT_TYPE, "accept": accept}
    return Exchange("POST", f"/v1/{call.op}", read, headers, wire.call_to_safetensors(call))


def _get(path: str) -> Exchange[Any]:
    return Exchange("GET", path, replies.told_json, {"accept": replies.JSON})
