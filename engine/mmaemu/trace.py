# SPDX-License-Identifier: Apache-2.0
"""Stage 6: what explain returns: the plan with its evidence and, for chosen cells, every step from bits to bits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import mmaemu
from mmaemu import plan, request, scaling, trace_cell, validation
from mmaemu.backends import registry
from mmaemu.backends.registry import Choice
from mmaemu.errors import InvalidInputError
from mmaemu.plan import Part, Plan
from mmaemu.profiles import Profile
from mmaemu.request import Request, Splitk

SCHEMA = "mmaemu-trace/1"


@dataclass(frozen=True)
class Trace:
    """A plan and the steps of some cells, in JSON's own types; `print(trace)` shows it for people.

    Words are upper-case hex. Exact numbers are [integer, exponent]: integer * 2^exponent. docs/trace.md describes every
    key.
    """

    schema: str
    engine_version: str
    profile: dict[str, Any]
    call: dict[str, Any]
    plan: dict[str, Any]
    cells: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """The whole trace, ready for json.dumps."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trace:
        """The trace that `to_dict` gave. InvalidInputError for another schema."""
        if data.get("schema") != SCHEMA:
            raise InvalidInputError.because("schema", got=repr(data.get("schema"))[:80], wanted=SCHEMA)
        missing = [name for name in cls.__dataclass_fields__ if name not in data]
        if missing:
            raise InvalidInputError.because("trace", got=f"no {', '.join(missing)}", wanted="every key of a trace")
        return cls(**{name: data[name] for name in cls.__dataclass_fields__})

    def __str__(self) -> str:
        from mmaemu import trace_text

        return trace_text.render(self)


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
    splitk: int | Splitk | None = None,
    backend: str = "auto",
) -> Trace:
    """How `scaled_mm` reaches its bits: the plan, each decision with its confidence, and every step of `cells`.

    Arguments and errors are those of `scaled_mm`; scales left out are 1. cells: (i, j) pairs of the result. Operands
    without data (mmaemu.Spec, torch meta tensors) are enough for the plan; cells need values.
    """
    call = request.build(
        a, b, _or_one(scale_a), _or_one(scale_b), bias, scale_result, out_dtype, use_fast_accum,
        profile=profile, splitk=splitk, backend=backend,
    )  # fmt: skip
    validation.validate(call)
    layout = plan.make(call)
    wanted = [_cell(cell, layout) for cell in cells]
    choice = registry.choose(call.backend)
    return Trace(
        schema=SCHEMA,
        engine_version=mmaemu.__version__,
        profile=_profile(call.profile, scaling.PATHS[layout.scaling]),
        call=_call(call, choice),
        plan=_plan(layout),
        cells=[trace_cell.explain_cell(call, layout, i, j) for i, j in wanted],
    )


def _or_one(scale: Any) -> Any:
    import numpy as np

    return np.ones((), np.float32) if scale is None else scale


def _cell(cell: Sequence[int], layout: Plan) -> tuple[int, int]:
    try:
        i, j = (int(index) for index in cell)
    except (TypeError, ValueError):
        raise InvalidInputError.because("cells", got=repr(cell)[:80], wanted="(row, column) pairs") from None
    if not (0 <= i < layout.m and 0 <= j < layout.n):
        wanted = f"0 <= row < {layout.m} and 0 <= column < {layout.n}"
        raise InvalidInputError.because("cells", got=f"({i}, {j})", wanted=wanted)
    return i, j


def _profile(profile: Profile, path: str) -> dict[str, Any]:
    return {
        "name": profile.name,
        "device": profile.device,
        "library": profile.tables[path],
        "digest": profile.digest,
        "note": profile.note,
        "overrides": {key: value for key, value in profile.overrides},
    }


def _call(call: Request, backend: Choice) -> dict[str, Any]:
    return {
        "m": call.a.shape[0],
        "n": call.b.shape[1],
        "k": call.a.shape[1],
        "a": call.a.dtype,
        "b": call.b.dtype,
        "out_dtype": call.out_dtype,
        "scaling": scaling.of(call),
        "bias": None if call.bias is None else call.bias.dtype,
        "use_fast_accum": call.use_fast_accum,
        "splitk": None if call.splitk is None else list(call.splitk),
        "backend": backend.name,
        "backend_note": backend.note,
    }


def _plan(layout: Plan) -> dict[str, Any]:
    rule = layout.instruction.rule
    return {
        "instruction": layout.instruction.family,
        "instruction_k": rule.instruction_k,
        "group": rule.group,
        "order": rule.order,
        "splits": _splits(layout.parts[0]),
        "parts": [
            {
                "rows": list(part.rows),
                "columns": list(part.columns),
                "padding": None if part.padding is None else asdict(part.padding),
                "splits": _splits(part),
            }
            for part in layout.parts
        ],
        "scheme": layout.scheme if any(len(part.splits) > 1 for part in layout.parts) else None,
        "decisions": [
            {**asdict(decision), "candidates": list(decision.candidates), "value": _jsonable(decision.value)}
            for decision in layout.decisions
        ],
    }


def _splits(part: Part) -> list[dict[str, Any]]:
    return [
        {"start": split.start, "stop": split.stop, "chunks": [list(chunk) for chunk in split.chunks]}
        for split in part.splits
    ]


def _jsonable(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
