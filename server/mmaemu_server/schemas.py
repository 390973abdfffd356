# SPDX-License-Identifier: Apache-2.0
"""What /openapi.json says: models of the JSON form, and examples of both.

The models describe; the wire package reads and checks. A test holds the two together.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from mmaemu.wire import CONTENT_TYPE, JSON_TYPE
from mmaemu_server import problems

DESCRIPTION = f"""Tensor-core matrix products, emulated bit for bit.

A call is a JSON object, or a safetensors file ({CONTENT_TYPE}) with the same tensors, whose metadata entry `mmaemu` is
a JSON object of the same options. The reply comes in the form that `Accept` names, else in the call's. `Content-Digest`
covers it. Refusals are problem details (RFC 9457)."""

_ONE_FORM: Any = {"oneOf": [{"required": ["bits"]}, {"required": ["b64"]}, {"required": ["values"]}]}
Dtype = Literal["float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32"]
Words = Annotated[Any, Field(json_schema_extra={"type": ["array", "string"]})]


class Tensor(BaseModel):
    """A tensor: its type, its shape, and its elements in exactly one of three forms."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_ONE_FORM)

    dtype: Dtype
    shape: list[Annotated[int, Field(ge=0)]]
    bits: Words = Field(None, description="hexadecimal words of full width, a list (flat or nested) or one string")
    b64: str = Field("", description="base64 of the little-endian bytes")
    values: Any = Field(
        None,
        description='numbers, and "NaN", "Infinity", "-Infinity"; rounded to nearest even, refused beyond the type',
    )


class _Gemm(BaseModel):
    model_config = ConfigDict(extra="forbid")

    out_dtype: str | None = Field(None, description="torch's name of a type; null is torch's own default")
    use_fast_accum: bool = False
    profile: str | None = Field(None, description="a name of GET /v1/profiles; null is its default")
    overrides: dict[str, Any] | None = Field(
        None,
        description="values of the profile to replace: gemm.FIELD, row_wise.FIELD, block_wise.FIELD, contract.FIELD, "
        "instruction.FIELD",
    )
    splitk: int | tuple[int, Literal["compute_type", "output_type", "inplace"]] | None = None
    backend: str | None = "auto"
    strides: dict[str, list[int]] | None = Field(
        None, description="element strides of the tensors as they lay in memory"
    )


class Accumulate(_Gemm):
    """The float32 accumulators of a product, before its scales and its output conversion."""

    a: Tensor = Field(description="[M, K]")
    b: Tensor | None = Field(None, description="[K, N]; exactly one of b and b_t")
    b_t: Tensor | None = Field(None, description="[N, K], a column-major b as it lies in memory")
    scale_a: Tensor | None = None
    scale_b: Tensor | None = None


class ScaledMm(Accumulate):
    """torch._scaled_mm."""

    scale_a: Tensor = Field(
        description="float32: one number; [M, 1] (row-wise); [M, K/128] or [M/128, K/128] (blocks, torch 2.13 profiles)"
    )
    scale_b: Tensor = Field(description="float32: one number; [1, N]; [K/128, N] or [K/128, N/128]")
    bias: Tensor | None = Field(None, description="[N], float16 or bfloat16")
    scale_result: Tensor | None = Field(None, description="one float32, for fp8 outputs")


class Spec(BaseModel):
    """A matrix without its data."""

    model_config = ConfigDict(extra="forbid")

    dtype: str
    shape: list[int]


class Specs(BaseModel):
    """Shapes in place of the tensors a and b: enough for the plan."""

    model_config = ConfigDict(extra="forbid")

    a: Spec
    b: Spec


class Explain(_Gemm):
    """scaled_mm, with the cells to show; or shapes alone."""

    a: Tensor | None = None
    b: Tensor | None = None
    b_t: Tensor | None = None
    scale_a: Tensor | None = None
    scale_b: Tensor | None = None
    bias: Tensor | None = None
    scale_result: Tensor | None = None
    cells: list[tuple[int, int]] = Field(default=[], description="[row, column] pairs of the result")
    specs: Specs | None = None


class Mma(BaseModel):
    """Single instructions: D = sum_k A[k] * B[k] + C, one a row."""

    model_config = ConfigDict(extra="forbid")

    preset: str = Field(description="one of the presets of GET /v1/profiles")
    a: Tensor = Field(description="[count, K]")
    b: Tensor = Field(description="[count, K]")
    c: Tensor = Field(description="[count], float32 or float16")
    fmt_a: str | None = Field(None, description="a's format where it is not its dtype: tf32 for float32 words")
    fmt_b: str | None = None
    acc: str | None = Field(None, description="f32 or f16; by default c's type")
    backend: str | None = "auto"


class Product(BaseModel):
    """A product and what computed it."""

    out: Tensor
    engine_version: str
    profile: str
    profile_digest: str


class MmaResult(BaseModel):
    """Accumulators and what computed them."""

    d: Tensor
    engine_version: str
    preset: str


class Trace(BaseModel):
    """The plan and the steps of the chosen cells; docs/trace.md describes every key."""

    model_config = ConfigDict(populate_by_name=True)

    schema_: str = Field(alias="schema")
    engine_version: str
    profile: dict[str, Any]
    call: dict[str, Any]
    plan: dict[str, Any]
    cells: list[dict[str, Any]]


class Problem(BaseModel):
    """A refusal (RFC 9457)."""

    type: str = Field(description="one of " + ", ".join(problems.PREFIX + code for code in problems.TITLES))
    title: str
    status: int
    detail: str
    field: str = Field("", description="what the refusal is about")
    got: str = ""
    wanted: str = ""
    hint: str = ""


CALLS: dict[str, tuple[type[BaseModel], type[BaseModel]]] = {
    "scaled_mm": (ScaledMm, Product),
    "accumulate": (Accumulate, Product),
    "mma": (Mma, MmaResult),
    "explain": (Explain, Trace),
}
"""Body and reply of each door that computes."""


def _ones(*shape: int) -> dict[str, Any]:
    """fp8 ones: [16, 16] of them is the smallest b that cuBLASLt takes."""
    count = shape[0] * shape[1]
    return {"dtype": "float8_e4m3fn", "shape": list(shape), "b64": base64.b64encode(b"\x38" * count).decode("ascii")}


_SCALE = {"dtype": "float32", "shape": [], "bits": "3F000000"}
_PRODUCT = {"a": _ones(1, 16), "b_t": _ones(16, 16), "profile": "h100-pcie-cublaslt12.8"}
_SCALES = {"scale_a": _SCALE, "scale_b": _SCALE}

EXAMPLES: dict[str, dict[str, Any]] = {
    "scaled_mm": {**_PRODUCT, **_SCALES, "out_dtype": "bfloat16", "use_fast_accum": True},
    "accumulate": {**_PRODUCT, "use_fast_accum": True},
    "mma": {
        "preset": "hopper-wgmma",
        "a": {"dtype": "float8_e4m3fn", "shape": [1, 2], "bits": [["38", "40"]]},
        "b": {"dtype": "float8_e4m3fn", "shape": [1, 2], "values": [[1.5, -0.25]]},
        "c": {"dtype": "float32", "shape": [1], "values": [0.5]},
    },
    "explain": {
        "specs": {
            "a": {"dtype": "float8_e4m3fn", "shape": [64, 5760]},
            "b": {"dtype": "float8_e4m3fn", "shape": [5760, 1920]},
        },
        "out_dtype": "bfloat16",
    },
}
"""A body for each door that works as it stands."""

_FILE_EXAMPLE = (
    "A safetensors file with the tensors of the JSON form. Its header, for mma: "
    '{"__metadata__": {"mmaemu": "{\\"preset\\": \\"hopper-wgmma\\"}"}, '
    '"c": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, '
    '"a": {"dtype": "F8_E4M3", "shape": [1, 2], "data_offsets": [4, 6]}, '
    '"b": {"dtype": "F8_E4M3", "shape": [1, 2], "data_offsets": [6, 8]}}'
)


def door(op: str) -> dict[str, Any]:
    """The OpenAPI part of the route of `op`."""
    body, reply = CALLS[op]
    file: dict[str, Any] = {"schema": {"type": "string", "format": "binary", "description": _FILE_EXAMPLE}}
    result = {JSON_TYPE: {"schema": _ref(reply)}}
    if op != "explain":
        result[CONTENT_TYPE] = {"schema": {"type": "string", "format": "binary"}}
    refusal = {"description": "refused", "content": {problems.CONTENT_TYPE: {"schema": _ref(Problem)}}}
    return {
        "tags": ["compute"],
        "summary": (body.__doc__ or "").strip(),
        "openapi_extra": {
            "requestBody": {
                "required": True,
                "content": {JSON_TYPE: {"schema": _ref(body), "example": EXAMPLES[op]}, CONTENT_TYPE: file},
            }
        },
        "responses": {200: {"description": "computed", "content": result}, "4XX": refusal, "5XX": refusal},
    }


def install(app: FastAPI) -> None:
    """Add the models to the app's schema: its routes read bodies themselves, so FastAPI does not see them."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schemas = generate().setdefault("components", {}).setdefault("schemas", {})
            models: list[type[BaseModel]] = [Problem, *(model for pair in CALLS.values() for model in pair)]
            for model in models:
                own = model.model_json_schema(ref_template="#/components/schemas/{model}", mode="validation")
                schemas.update(own.pop("$defs", {}))
                schemas[model.__name__] = own
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}
