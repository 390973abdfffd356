# SPDX-License-Identifier: Apache-2.0
"""Stage 2: the reference's own checks, in its own order, then what mmaemu has not modelled.

`REFERENCE_CHECKS` is torch's `_scaled_mm` on CUDA, followed by what its row-wise kernels and cuBLASLt refuse; where
versions of torch differ, the profile's contract decides. A row that fires raises ReferenceRejectsError. `MODEL_CHECKS`
come after: the hardware would run those calls, mmaemu does not, so they raise UnsupportedFeatureError. Values play no
part. docs/contract.md is rendered from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from mmaemu import scaling
from mmaemu.checks import operands, outputs, scales, unmodelled
from mmaemu.checks.finding import E5M2, Check, Finds, has_own_kernels, is_empty
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
    Check("a is a matrix", "a", operands.a_is_matrix),
    Check("b is a matrix", "b", operands.b_is_matrix),
    Check("a has as many columns as b has rows", "b", operands.inner_sizes_agree),
    Check(
        "a and b are fp8: scales are recognised beside fp8 alone", "a; b", operands.scaled_types_are_fp8,
        exception_field="scale_kind_error", applies=lambda profile: profile.contract.scales_need_fp8,
    ),
    Check(
        "scales are float32, or both e8m0", "scale_a; scale_b", scales.scales_are_float,
        exception_field="scale_kind_error",
    ),
    Check(
        "scales have the shapes of a kind that this torch knows", "scale_a, scale_b", scales.scales_fit_a_kind,
        exception_field="scale_kind_error",
    ),
    Check(
        "row-wise scales are contiguous", "scale_a; scale_b", scales.row_scales_are_contiguous,
        exception_field="scale_kind_error",
    ),
    Check("scale_result is one float32", "scale_result", scales.scale_result_is_a_float),
    Check("bias has N numbers", "bias", outputs.bias_has_n_numbers),
    Check("K is a multiple of 16", "a", operands.k_is_multiple_of_16, whole_call=True),
    Check("N is a multiple of 16", "b", operands.n_is_multiple_of_16, whole_call=True),
    Check("out_dtype is out's type", "out_dtype", outputs.out_has_out_dtype),
    Check("a is e4m3 or e5m2", "a", operands.a_is_fp8),
    Check("b is e4m3 or e5m2", "b", operands.b_is_fp8),
    Check("a and b are not both e5m2", "a, b", operands.not_both_e5m2, exception_field="e5m2_pair_error"),
    Check(
        "no fast accumulation of 4-bit types", "use_fast_accum", operands.no_fast_fp4,
        applies=scaling.knows_fp4,
    ),
    Check("no bias for a float32 output", "bias", outputs.no_bias_for_float32),
    Check("bias is float16 or bfloat16", "bias", outputs.bias_is_16_bit),
    Check("bias for a 16-bit output has its type", "bias", outputs.bias_type_is_the_outputs),
    Check(
        "row-wise: the output is one of this torch's", "out_dtype", outputs.row_wise_output_exists,
        exception_field="row_wise_output_error", whole_call=True, unless_empty=True,
    ),
    Check(
        "row-wise: b is e4m3", "b", operands.row_wise_takes_b,
        applies=lambda profile: E5M2 not in profile.contract.row_wise_b_types, unless_empty=True,
    ),
    Check(
        "a is row-major; without a unit stride it is copied first, but not for torch's own row-wise kernels", "a",
        operands.a_is_row_major, whole_call=True, unless_empty=True,
    ),
    Check("b is column-major", "b", operands.b_is_column_major, whole_call=True, unless_empty=True),
    Check(
        "torch's own row-wise kernels: bias is a vector without gaps", "bias", outputs.own_kernel_takes_bias,
        applies=has_own_kernels, unless_empty=True,
    ),
    Check(
        "torch's own row-wise kernels: out is row-major", "out", operands.own_kernel_writes_rows,
        applies=has_own_kernels, whole_call=True, unless_empty=True,
    ),
    Check(
        "the library has the output type", "out_dtype", outputs.output_type_exists, "documented",
        whole_call=True, unless_empty=True,
    ),
    Check(
        "e5m2 outputs have an e5m2 operand", "out_dtype", outputs.e5m2_needs_e5m2, "documented",
        whole_call=True, unless_empty=True,
    ),
    Check(
        "tensor-wise: scale_result goes with an fp8 output", "scale_result", outputs.scale_result_fits_output,
        "assumed", applies=outputs.wide_scale_result_is_refused, unless_empty=True,
    ),
    Check(
        "a or out of a single row has the stride of a whole row", "a; out", operands.single_rows_have_whole_strides,
        "assumed", whole_call=True, unless_empty=True,
    ),
    Check(
        "rows of a and out, columns of b begin 16 bytes apart, or a multiple", "a; b; out",
        operands.distances_are_aligned, "assumed", whole_call=True, unless_empty=True,
    ),
    Check(
        "a, b and out begin at a multiple of 16 bytes", "a; b; out", operands.addresses_are_aligned, "documented",
        whole_call=True, unless_empty=True,
    ),
)  # fmt: skip


def _by_value(condition: str, field: str, finds: Finds, *, unless_empty: bool = True) -> Check:
    return Check(condition, field, finds, exception="ValueError", unless_empty=unless_empty)


FUNCTIONAL_CHECKS: tuple[Check, ...] = (
    _by_value("mat_a is a matrix", "a", operands.a_is_matrix, unless_empty=False),
    _by_value("mat_b is a matrix", "b", operands.b_is_matrix, unless_empty=False),
    _by_value("contraction_dim is empty or two numbers", "contraction_dim", operands.contraction_has_two_numbers),
    _by_value("mat_a and mat_b agree along contraction_dim", "b; contraction_dim", operands.inner_sizes_agree),
    _by_value("bias has N numbers", "bias", outputs.bias_has_n_numbers),
    _by_value("K is a multiple of 16", "a", operands.k_is_multiple_of_16),
    _by_value("N is a multiple of 16", "b", operands.n_is_multiple_of_16),
    _by_value("mat_a is e4m3, e5m2 or of 4 bits", "a", operands.a_is_fp8),
    _by_value("mat_b is e4m3, e5m2 or of 4 bits", "b", operands.b_is_fp8),
    _by_value("the matrices are not both e5m2", "a, b", operands.not_both_e5m2),
    _by_value("no fast accumulation of 4-bit types", "use_fast_accum", operands.no_fast_fp4),
    _by_value("no bias for a float32 output", "bias", outputs.no_bias_for_float32),
    _by_value("bias is float16 or bfloat16", "bias", outputs.bias_is_16_bit),
    _by_value("bias for a 16-bit output has its type", "bias", outputs.bias_type_is_the_outputs),
    _by_value("the recipes go together", "scale_recipe_a, scale_recipe_b", scales.recipes_go_together),
    _by_value("both are fp8; for 128-wide blocks, both are e4m3", "a; b", operands.recipes_take_operands),
    _by_value("scales are float32", "scale_a; scale_b", scales.recipe_scales_are_float),
    _by_value("scales have their recipe's shape and strides", "scale_a; scale_b", scales.recipe_scales_fit),
)
"""What torch.nn.functional.scaled_mm looks at before it goes the way of `_scaled_mm`, in its order."""

OPTION_CHECKS: tuple[Check, ...] = (Check("splitk is (S, scheme)", "splitk", unmodelled.splitk_is_well_formed),)

FUNCTIONAL_MODEL_CHECKS: tuple[Check, ...] = (
    Check(
        "contraction_dim is () or (1, 0)", "contraction_dim", unmodelled.contraction_is_the_usual, unless_empty=True
    ),
    # torch accepts gaps here, and its kernels then read what lies in them.
    Check(
        "row-wise scales lie without gaps", "scale_a; scale_b", scales.row_scales_are_contiguous, unless_empty=True
    ),
)  # fmt: skip

EMPTY_MODEL_CHECKS: tuple[Check, ...] = (
    Check("no operand requires grad under grad mode", "the operands", unmodelled.no_autograd),
    Check("an empty product has an output type of the others", "out_dtype", unmodelled.output_has_a_format),
)
"""What has to hold even where M, N or K is 0."""

MODEL_CHECKS: tuple[Check, ...] = (
    *EMPTY_MODEL_CHECKS,
    Check("scales are float32: no MXFP8, no NVFP4", "scale_a, scale_b", unmodelled.no_microscaling),
    Check("bias lies without gaps", "bias", unmodelled.bias_has_no_gaps, unless_empty=True),
    Check("out is row-major", "out", unmodelled.out_is_row_major, whole_call=True, unless_empty=True),
    Check(
        "block-wise scales have a 16-bit or float32 output", "out_dtype", unmodelled.block_scales_have_modelled_output,
        unless_empty=True,
    ),
    Check("the profile models these scales", "scale_a, scale_b", unmodelled.path_is_modelled),
)  # fmt: skip


def validate(request: Request, *, whole_call: bool = True) -> None:
    """Raise what the reference would raise first; then malformed options; then what mmaemu does not model.

    whole_call=False leaves out the library's rules about sizes, layouts and outputs: enough for the accumulators.
    """
    for check in REFERENCE_CHECKS:
        if whole_call or not check.whole_call:
            _run_reference(check, request)
    for check in OPTION_CHECKS:
        _run(check, request, InvalidInputError)
    for check in MODEL_CHECKS:
        _run(check, request, UnsupportedFeatureError)


def validate_functional(request: Request) -> None:
    """Raise what torch.nn.functional.scaled_mm would raise first, of its own checks; of an empty product, all there is
    to raise."""
    for check in FUNCTIONAL_CHECKS:
        _run_reference(check, request)
    for check in FUNCTIONAL_MODEL_CHECKS:
        _run(check, request, UnsupportedFeatureError)
    if is_empty(request):
        for check in OPTION_CHECKS:
            _run(check, request, InvalidInputError)
        for check in EMPTY_MODEL_CHECKS:
            _run(check, request, UnsupportedFeatureError)


def validate_out(request: Request) -> None:
    """Raise what would be raised about `out` alone: for callers whose operands are checked elsewhere."""
    if not len(request.a.shape) == len(request.b.shape) == 2:
        return
    for check in REFERENCE_CHECKS:
        if check.finds in (outputs.out_has_out_dtype, operands.own_kernel_writes_rows):
            _run_reference(check, request)
    for check in MODEL_CHECKS:
        if check.finds is unmodelled.out_is_row_major:
            _run(check, request, UnsupportedFeatureError)


def refuse_autograd(given: Mapping[str, Operand]) -> None:
    """Raise UnsupportedFeatureError if torch would record a call on these operands."""
    found = unmodelled.autograd(given)
    if found is not None:
        raise UnsupportedFeatureError.because(found.field, got=found.got, wanted=found.wanted, hint=found.hint)


def _run_reference(check: Check, request: Request) -> None:
    if check.looked_at(request):
        found = check.finds(request)
        if found is not None:
            by_value = check.exception_under(request.profile.contract) == "ValueError"
            error = ReferenceRejectsValueError if by_value else ReferenceRejectsError
            raise error.because(found.field, got=found.got, wanted=found.wanted, hint=found.hint)


def _run(check: Check, request: Request, error: type[MmaemuError]) -> None:
    found = check.finds(request) if check.looked_at(request) else None
    if found is not None:
        raise error.because(found.field, got=found.got, wanted=found.wanted, hint=found.hint)
