# SPDX-License-Identifier: Apache-2.0
"""Stage 2: the reference's own checks, in its own order, then what mmaemu has not modelled.

`REFERENCE_CHECKS` is torch's `_scaled_mm` on CUDA, followed by what its row-wise kernels and cuBLASLt refuse; where
versions of torch differ, the profile's contract decides. A row that fires raises ReferenceRejectsError. `MODEL_CHECKS`
come after: the hardware would run those calls, mmaemu does not, so they raise UnsupportedFeatureError. Values play no
part. docs/contract.md is rendered from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from mmaemu.checks import operands, outputs, scales, unmodelled
from mmaemu.checks.finding import Check, is_empty
from mmaemu.errors import (
    InvalidInputError,
    MmaemuError,
    ReferenceRejectsError,
    ReferenceRejectsValueError,
    UnsupportedFeatureError,
)
from mmaemu.request import Request
from mmaemu.tensors import Operand

REFERENCE_CHECKS: tuple[Check, ...] = (
    Check("a is a matrix", operands.a_is_matrix),
    Check("b is a matrix", operands.b_is_matrix),
    Check("a has as many columns as b has rows", operands.inner_sizes_agree),
    Check("scales are float32 (or both e8m0)", scales.scales_are_float, exception="scale_kind_error"),
    Check("scales fit a kind that this torch knows", scales.scales_fit_a_kind, exception="scale_kind_error"),
    Check("row-wise scales are contiguous", scales.row_scales_are_contiguous, exception="scale_kind_error"),
    Check("scale_result is one float32", scales.scale_result_is_a_float),
    Check("bias has N numbers", outputs.bias_has_n_numbers),
    Check("K is a multiple of 16", operands.k_is_multiple_of_16, whole_call=True),
    Check("N is a multiple of 16", operands.n_is_multiple_of_16, whole_call=True),
    Check("out_dtype is out's type", outputs.out_has_out_dtype),
    Check("a is e4m3 or e5m2", operands.a_is_fp8),
    Check("b is e4m3 or e5m2", operands.b_is_fp8),
    Check("a and b are not both e5m2", operands.not_both_e5m2, exception="e5m2_pair_error"),
    Check("no bias for a float32 output", outputs.no_bias_for_float32),
    Check("bias is float16 or bfloat16", outputs.bias_is_16_bit),
    Check("bias for a 16-bit output has its type", outputs.bias_type_is_the_outputs),
    Check(
        "row-wise: the output is one of this torch's",
        outputs.row_wise_output_exists,
        exception="row_wise_output_error",
        whole_call=True,
        unless_empty=True,
    ),
    Check("row-wise kernels of torch's own: b is e4m3", operands.row_wise_takes_b, unless_empty=True),
    Check("row-wise kernels of torch's own: bias is a vector", outputs.row_wise_bias_is_a_vector, unless_empty=True),
    Check("a is row-major", operands.a_is_row_major, whole_call=True, unless_empty=True),
    Check("b is column-major", operands.b_is_column_major, whole_call=True, unless_empty=True),
    Check("out is row-major", operands.out_is_row_major, "assumed", whole_call=True, unless_empty=True),
    Check("cuBLASLt has the output type", outputs.output_type_exists, "documented", whole_call=True, unless_empty=True),
    Check(
        "e5m2 outputs need an e5m2 operand", outputs.e5m2_needs_e5m2, "documented", whole_call=True, unless_empty=True
    ),
    Check("scale_result goes with an fp8 output", outputs.scale_result_fits_output, "assumed", unless_empty=True),
)

FUNCTIONAL_CHECKS: tuple[Check, ...] = (
    Check("mat_a is a matrix", operands.a_is_matrix),
    Check("mat_b is a matrix", operands.b_is_matrix),
    Check("mat_a has as many columns as mat_b has rows", operands.inner_sizes_agree),
    Check("bias has N numbers", outputs.bias_has_n_numbers),
    Check("K is a multiple of 16", operands.k_is_multiple_of_16, unless_empty=True),
    Check("N is a multiple of 16", operands.n_is_multiple_of_16, unless_empty=True),
    Check("mat_a is e4m3 or e5m2", operands.a_is_fp8, unless_empty=True),
    Check("mat_b is e4m3 or e5m2", operands.b_is_fp8, unless_empty=True),
    Check("the matrices are not both e5m2", operands.not_both_e5m2, unless_empty=True),
    Check("no bias for a float32 output", outputs.no_bias_for_float32, unless_empty=True),
    Check("bias is float16 or bfloat16", outputs.bias_is_16_bit, unless_empty=True),
    Check("bias for a 16-bit output has its type", outputs.bias_type_is_the_outputs, unless_empty=True),
    Check("scales are float32", scales.recipe_scales_are_float, unless_empty=True),
    Check("scales have their recipe's shape and strides", scales.recipe_scales_fit, unless_empty=True),
)
"""What torch.nn.functional.scaled_mm looks at before it goes the way of `_scaled_mm`, in its order; all ValueErrors."""

FUNCTIONAL_MODEL_CHECKS: tuple[Check, ...] = (
    Check("row-wise scales lie without gaps", unmodelled.row_scales_have_no_gaps, unless_empty=True),
)

OPTION_CHECKS: tuple[Check, ...] = (Check("splitk is (S, scheme)", unmodelled.splitk_is_well_formed),)

MODEL_CHECKS: tuple[Check, ...] = (
    Check("no operand requires grad under grad mode", unmodelled.no_autograd),
    Check("scales are float32: no MXFP8, no NVFP4", unmodelled.no_microscaling),
    Check("bias lies without gaps", unmodelled.bias_has_no_gaps),
    Check("block-wise scales have a 16-bit or float32 output", unmodelled.block_scales_have_modelled_output),
    Check("an empty product has an output type of the others", unmodelled.output_has_a_format),
    Check("the profile models these scales", unmodelled.path_is_modelled),
)


def validate(request: Request, *, whole_call: bool = True) -> None:
    """Raise what the reference would raise first; then malformed options; then what mmaemu does not model.

    whole_call=False leaves out the library's rules about sizes, layouts and outputs: enough for the accumulators.
    """
    for check in REFERENCE_CHECKS:
        if whole_call or not check.whole_call:
            by_version = getattr(request.profile.contract, check.exception) if check.exception else "RuntimeError"
            value_error = by_version == "ValueError"
            _run(check, request, ReferenceRejectsValueError if value_error else ReferenceRejectsError)
    for check in OPTION_CHECKS:
        _run(check, request, InvalidInputError)
    for check in MODEL_CHECKS:
        _run(check, request, UnsupportedFeatureError)


def validate_functional(request: Request) -> None:
    """Raise what torch.nn.functional.scaled_mm would raise first, of its own checks."""
    for check in FUNCTIONAL_CHECKS:
        _run(check, request, ReferenceRejectsValueError)
    for check in FUNCTIONAL_MODEL_CHECKS:
        _run(check, request, UnsupportedFeatureError)


def validate_out(request: Request) -> None:
    """Raise what the reference would raise about `out` alone."""
    matrices = len(request.a.shape) == len(request.b.shape) == 2
    for check in REFERENCE_CHECKS:
        if check.finds in (outputs.out_has_out_dtype, operands.out_is_row_major) and matrices:
            _run(check, request, ReferenceRejectsError)


def refuse_autograd(given: Mapping[str, Operand]) -> None:
    """Raise UnsupportedFeatureError if torch would record a call on these operands."""
    found = unmodelled.autograd(given)
    if found is not None:
        raise UnsupportedFeatureError.because(found.field, got=found.got, wanted=found.wanted, hint=found.hint)


def _run(check: Check, request: Request, error: type[MmaemuError]) -> None:
    found = None if check.unless_empty and is_empty(request) else check.finds(request)
    if found is not None:
        raise error.because(found.field, got=found.got, wanted=found.wanted, hint=found.hint)
