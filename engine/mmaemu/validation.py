# SPDX-License-Identifier: Apache-2.0
"""Stage 2: the reference's own checks, in its own order, then what mmaemu has not modelled.

`REFERENCE_CHECKS` is torch's `_scaled_mm` on CUDA, followed by what its row-wise kernels and cuBLASLt refuse; where
versions of torch differ, the profile's contract decides. A row that fires raises ReferenceRejectsError. `MODEL_CHECKS`
come after: the hardware would run those calls, mmaemu does not (yet), so they raise UnsupportedFeatureError. Values
play no part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from mmaemu import recipes, scaling
from mmaemu.errors import (
    InvalidInputError,
    ReferenceRejectsError,
    ReferenceRejectsValueError,
    UnsupportedFeatureError,
)
from mmaemu.model import formats
from mmaemu.profiles.gemm import SPLIT_SCHEMES
from mmaemu.profiles.load import MAX_SPLITS
from mmaemu.request import Request
from mmaemu.tensors import Operand

E4M3, E5M2 = formats.E4M3.torch_name, formats.E5M2.torch_name
FP8_TYPES = (E4M3, E5M2)
OUT_TYPES = ("float32", "bfloat16", "float16", E4M3, E5M2)


@dataclass(frozen=True)
class Finding:
    """What a check says when it fires."""

    field: str
    got: str
    wanted: str
    hint: str = ""
    exception: str = "RuntimeError"
    """The class that torch raises here."""


@dataclass(frozen=True)
class Check:
    """One condition of the contract. `finds` returns None where the call passes."""

    name: str
    finds: Callable[[Request], Finding | None]
    whole_call: bool = False
    """True for the library's rules on sizes, layouts and outputs, which the sum itself does not need."""
    unless_empty: bool = False
    """True where torch returns early for a size of zero, before it comes to the check."""


def validate(request: Request, *, whole_call: bool = True) -> None:
    """Raise what the reference would raise first; then malformed options; then what mmaemu does not model.

    whole_call=False leaves out the library's rules about sizes, layouts and outputs: enough for the accumulators.
    """
    _run([check for check in REFERENCE_CHECKS if whole_call or not check.whole_call], request, ReferenceRejectsError)
    _run(OPTION_CHECKS, request, InvalidInputError)
    _run(MODEL_CHECKS, request, UnsupportedFeatureError)


def _run(
    checks: Iterable[Check],
    request: Request,
    error: type[ReferenceRejectsError] | type[InvalidInputError] | type[UnsupportedFeatureError],
) -> None:
    for check in checks:
        found = check.finds(request)
        if found is not None:
            if error is ReferenceRejectsError and found.exception == "ValueError":
                error = ReferenceRejectsValueError
            raise error.because(found.field, got=found.got, wanted=found.wanted, hint=found.hint)


def _mat1_is_matrix(r: Request) -> Finding | None:
    return _matrix(r.a, "a")


def _mat2_is_matrix(r: Request) -> Finding | None:
    return _matrix(r.b, "b")


def _matrix(operand: Operand, field: str) -> Finding | None:
    if len(operand.shape) == 2:
        return None
    return Finding(field, f"{len(operand.shape)} dimensions, shape {operand.shape}", "a matrix")


def _inner_sizes_agree(r: Request) -> Finding | None:
    if r.a.shape[1] == r.b.shape[0]:
        return None
    return Finding("b", f"shape {r.b.shape}", f"K = {r.a.shape[1]} rows, as a has columns")


def _scales_are_float(r: Request) -> Finding | None:
    """A pair of e8m0 may be block-wise scales; the next check looks at their sizes."""
    if _kind(r) is not None or r.scale_a.dtype == r.scale_b.dtype == "float8_e8m0fnu":
        return None
    for field in ("scale_a", "scale_b"):
        operand = r.operands[field]
        if operand.dtype != "float32":
            return Finding(field, operand.dtype, "float32", exception=r.profile.contract.scale_kind_error)
    return None


def _scales_fit(r: Request) -> Finding | None:
    if _kind(r) is not None:
        return None
    m, n = r.a.shape[0], r.b.shape[1]
    got = f"scale_a {_shape(r.scale_a)}, scale_b {_shape(r.scale_b)}"
    wanted = f"one number each (tensor-wise), or ({m}, 1) and (1, {n}) (row-wise)"
    contract = r.profile.contract
    if scaling.BLOCK_1x128_1x128 in contract.scale_kinds:
        k_blocks = scaling.k_blocks(r)
        wanted += (
            f", or blocks: ({m}, {k_blocks}) of strides (1, {m}) or ({-(-m // 128)}, {k_blocks}), "
            f"and ({k_blocks}, {n}) or ({k_blocks}, {-(-n // 128)}) of strides (1, {k_blocks})"
        )
    if r.scale_a.dtype == "float8_e8m0fnu":
        wanted = "contiguous scales of {} and {} numbers (one for 32)".format(*scaling.microscale_counts(r))
    hint = ""
    if len(r.scale_a.shape) != 2 and r.scale_a.numel == m > 1:
        hint = "Row-wise scales are matrices: scale_a[:, None], scale_b[None, :]."
    return Finding("scale_a, scale_b", got, wanted, hint, contract.scale_kind_error)


def _row_scales_are_contiguous(r: Request) -> Finding | None:
    if _kind(r) != scaling.ROW_WISE:
        return None
    for field in ("scale_a", "scale_b"):
        operand = r.operands[field]
        if not operand.contiguous:
            got, error = f"strides {operand.strides}", r.profile.contract.scale_kind_error
            return Finding(field, got, "a contiguous tensor", "Call .contiguous() on it.", error)
    return None


def _scale_result_is_a_float(r: Request) -> Finding | None:
    s = r.scale_result
    if s is None or (s.numel == 1 and s.dtype == "float32"):
        return None
    return Finding("scale_result", f"{s.dtype} of shape {s.shape}", "one float32 number")


def _bias_has_n_numbers(r: Request) -> Finding | None:
    if r.bias is None or r.bias.numel == r.b.shape[1]:
        return None
    return Finding("bias", f"{r.bias.numel} numbers", f"N = {r.b.shape[1]}")


def _k_is_multiple_of_16(r: Request) -> Finding | None:
    if r.a.shape[1] % 16 == 0:
        return None
    return Finding("a", f"shape {r.a.shape}", "K divisible by 16", "Pad K with zeros: they change no bit.")


def _n_is_multiple_of_16(r: Request) -> Finding | None:
    if r.b.shape[1] % 16 == 0:
        return None
    return Finding("b", f"shape {r.b.shape}", "N divisible by 16")


def _out_has_out_dtype(r: Request) -> Finding | None:
    if r.out is None or r.out.dtype == r.out_dtype:
        return None
    return Finding("out_dtype", f"{r.out_dtype} with an out of {r.out.dtype}", "out's type, or none")


def _mat1_is_fp8(r: Request) -> Finding | None:
    return _fp8(r.a, "a")


def _mat2_is_fp8(r: Request) -> Finding | None:
    return _fp8(r.b, "b")


def _fp8(operand: Operand, field: str) -> Finding | None:
    return None if operand.dtype in FP8_TYPES else Finding(field, operand.dtype, f"{E4M3} or {E5M2}")


def _not_both_e5m2(r: Request) -> Finding | None:
    if r.a.dtype == r.b.dtype == E5M2:
        error = r.profile.contract.e5m2_pair_error
        return Finding("a, b", f"{E5M2} twice", f"at least one {E4M3}", exception=error)
    return None


def _bias_type_fits(r: Request) -> Finding | None:
    if r.bias is None:
        return None
    if r.out_dtype == "float32":
        return Finding("bias", f"a bias with out_dtype {r.out_dtype}", "no bias, or a 16-bit or fp8 output")
    allowed = {"bfloat16": ("bfloat16",), "float16": ("float16",)}.get(r.out_dtype, ("float16", "bfloat16"))
    if r.bias.dtype not in allowed:
        return Finding("bias", r.bias.dtype, f"{' or '.join(allowed)} for out_dtype {r.out_dtype}")
    return None


def _row_wise_output_exists(r: Request) -> Finding | None:
    contract = r.profile.contract
    if not _runs_row_wise(r) or r.out_dtype in contract.row_wise_outputs:
        return None
    wanted = f"{' or '.join(contract.row_wise_outputs)} with row-wise scales"
    return Finding("out_dtype", r.out_dtype, wanted, exception=contract.row_wise_output_error)


def _row_wise_takes_b(r: Request) -> Finding | None:
    types = r.profile.contract.row_wise_b_types
    if not _runs_row_wise(r) or r.b.dtype in types:
        return None
    return Finding("b", r.b.dtype, f"{' or '.join(types)} with row-wise scales")


def _row_wise_bias_is_a_vector(r: Request) -> Finding | None:
    if not _runs_row_wise(r) or r.bias is None or not _own_row_wise_kernel(r):
        return None
    if len(r.bias.shape) == 1 and (r.bias.shape[0] == 1 or r.bias.strides[0] == 1):
        return None
    return Finding(
        "bias", f"shape {r.bias.shape}, strides {r.bias.strides}", "a contiguous vector with row-wise scales"
    )


def _layout_is_row_by_column(r: Request) -> Finding | None:
    if _is_empty(r):
        return None
    copies = not (_runs_row_wise(r) and _own_row_wise_kernel(r))
    if not _is_row_major(r.a, copies):
        return Finding("a", f"strides {r.a.strides}", "a row-major matrix", "Call .contiguous() on it.")
    if not _is_column_major(r.b, copies):
        return Finding("b", f"strides {r.b.strides}", "a column-major matrix", "Pass b.t().contiguous().t().")
    return None


def _out_is_row_major(r: Request) -> Finding | None:
    """torch resizes an out of another shape, which makes it contiguous."""
    if r.out is None or _is_empty(r) or r.out.shape != (r.a.shape[0], r.b.shape[1]) or _is_row_major(r.out, False):
        return None
    return Finding("out", f"strides {r.out.strides}", "a row-major matrix", "Write to a contiguous tensor, then copy.")


def _output_type_exists(r: Request) -> Finding | None:
    if _is_empty(r):
        return None
    if r.out_dtype not in OUT_TYPES:
        return Finding("out_dtype", r.out_dtype, f"one of {', '.join(OUT_TYPES)}")
    if r.out_dtype == E5M2 and r.a.dtype == r.b.dtype == E4M3:
        return Finding("out_dtype", E5M2, f"another type: cuBLASLt has no {E4M3} x {E4M3} to {E5M2}")
    return None


def _scale_result_fits_output(r: Request) -> Finding | None:
    if r.scale_result is None or r.out_dtype in FP8_TYPES or _is_empty(r) or _kind(r) != scaling.TENSOR_WISE:
        return None
    if r.profile.gemm.scale_result_on_wide_output == "ignore":
        return None
    return Finding("scale_result", f"out_dtype {r.out_dtype}", "an fp8 output, or no scale_result")


REFERENCE_CHECKS: tuple[Check, ...] = (
    Check("mat1 is a matrix", _mat1_is_matrix),
    Check("mat2 is a matrix", _mat2_is_matrix),
    Check("inner sizes agree", _inner_sizes_agree),
    Check("scales are float32", _scales_are_float),
    Check("scales fit a kind that torch knows", _scales_fit),
    Check("row-wise scales are contiguous", _row_scales_are_contiguous),
    Check("scale_result is one float32", _scale_result_is_a_float),
    Check("bias has N numbers", _bias_has_n_numbers),
    Check("K is a multiple of 16", _k_is_multiple_of_16, whole_call=True),
    Check("N is a multiple of 16", _n_is_multiple_of_16, whole_call=True),
    Check("out_dtype is out's type", _out_has_out_dtype),
    Check("mat1 is fp8", _mat1_is_fp8),
    Check("mat2 is fp8", _mat2_is_fp8),
    Check("not both e5m2", _not_both_e5m2),
    Check("bias type fits the output type", _bias_type_fits),
    Check("row-wise scales have the output type", _row_wise_output_exists, whole_call=True),
    Check("row-wise scales take b's type", _row_wise_takes_b),
    Check("a row-wise bias is a vector", _row_wise_bias_is_a_vector),
    Check("a is row-major, b column-major", _layout_is_row_by_column, whole_call=True),
    Check("out is row-major", _out_is_row_major, whole_call=True),
    Check("cuBLASLt has the output type", _output_type_exists, whole_call=True),
    Check("cuBLASLt takes scale_result for this output", _scale_result_fits_output),
)


def _recipe_scales_are_float(r: Request) -> Finding | None:
    for field in ("scale_a", "scale_b"):
        if r.operands[field].dtype != "float32":
            return Finding(field, r.operands[field].dtype, "float32")
    return None


def _recipe_scales_fit(r: Request) -> Finding | None:
    for field in ("scale_a", "scale_b"):
        found = _recipe_scale(r, field, r.operands[field])
        if found is not None:
            return found
    return None


def _recipe_scale(r: Request, field: str, scale: Operand) -> Finding | None:
    got = f"shape {scale.shape}, strides {scale.strides}"
    if r.scaling == scaling.TENSOR_WISE:
        return None if scale.numel == 1 else Finding(field, got, "one number")
    if r.scaling == scaling.ROW_WISE:
        m, n = r.a.shape[0], r.b.shape[1]
        if field == "scale_a":
            return None if scale.shape == (m, 1) else Finding(field, got, f"shape ({m}, 1)")
        fits = scale.numel == n and len(scale.shape) > 1 and scale.strides[1] == 1
        return None if fits else Finding(field, got, f"{n} numbers, such as shape (1, {n}), the second stride 1")
    shape, strides = recipes.shape_of(r, field)
    fits = scale.shape == shape and scale.strides[0] == 1
    fits = fits and (scale.strides[1] == strides[1] or (shape[1] == 1 and scale.strides[1] == 1))
    hint = "" if fits else "A scale of shape (K blocks, outer) that is contiguous has them after .t()."
    return None if fits else Finding(field, got, f"shape {shape}, strides {strides}", hint)


FUNCTIONAL_CHECKS: tuple[Check, ...] = (
    Check("mat_a is a matrix", _mat1_is_matrix),
    Check("mat_b is a matrix", _mat2_is_matrix),
    Check("inner sizes agree", _inner_sizes_agree),
    Check("bias has N numbers", _bias_has_n_numbers),
    Check("K is a multiple of 16", _k_is_multiple_of_16, unless_empty=True),
    Check("N is a multiple of 16", _n_is_multiple_of_16, unless_empty=True),
    Check("mat_a is fp8", _mat1_is_fp8, unless_empty=True),
    Check("mat_b is fp8", _mat2_is_fp8, unless_empty=True),
    Check("not both e5m2", _not_both_e5m2, unless_empty=True),
    Check("bias type fits the output type", _bias_type_fits, unless_empty=True),
    Check("scales are float32", _recipe_scales_are_float, unless_empty=True),
    Check("scales have their recipe's shape", _recipe_scales_fit, unless_empty=True),
)
"""What torch.nn.functional.scaled_mm looks at before it goes the way of `_scaled_mm`, in its order; all ValueErrors."""


def validate_functional(request: Request) -> None:
    """Raise what torch.nn.functional.scaled_mm would raise first, of its own checks."""
    for check in FUNCTIONAL_CHECKS:
        found = None if check.unless_empty and _is_empty(request) else check.finds(request)
        if found is not None:
            raise ReferenceRejectsValueError.because(found.field, got=found.got, wanted=found.wanted, hint=found.hint)


def _splitk_is_well_formed(r: Request) -> Finding | None:
    if r.splitk is None:
        return None
    count, scheme = r.splitk
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_SPLITS:
        return Finding("splitk", repr(count)[:80], f"a number of splits from 1 to {MAX_SPLITS}")
    if scheme not in SPLIT_SCHEMES:
        return Finding("splitk", repr(scheme)[:80], f"a scheme: {', '.join(SPLIT_SCHEMES)}")
    return None


OPTION_CHECKS: tuple[Check, ...] = (Check("splitk is (S, scheme)", _splitk_is_well_formed),)


def refuse_autograd(operands: Mapping[str, Operand]) -> None:
    """Raise UnsupportedFeatureError if torch would record a call on these operands."""
    found = _autograd(operands)
    if found is not None:
        raise UnsupportedFeatureError.because(found.field, got=found.got, wanted=found.wanted, hint=found.hint)


def _autograd(operands: Mapping[str, Operand]) -> Finding | None:
    names = [name for name, operand in operands.items() if operand.requires_grad]
    if not names:
        return None
    return Finding(", ".join(names), "requires_grad", "tensors outside autograd", "Call under torch.no_grad().")


def _no_autograd(r: Request) -> Finding | None:
    return _autograd(r.operands)


def _no_microscaling(r: Request) -> Finding | None:
    kind = _kind(r)
    if kind not in scaling.MICROSCALED:
        return None
    name = "MXFP8: one e8m0 scale for 32" if kind == scaling.BLOCK_1x32 else "NVFP4: one e4m3 scale for 16"
    return Finding("scale_a, scale_b", name, "float32 scales", "Only Blackwell has instructions for these scales.")


def _block_scales_have_modelled_output(r: Request) -> Finding | None:
    if _kind(r) not in scaling.BLOCKS_OF_128 or r.out_dtype not in FP8_TYPES or _is_empty(r):
        return None
    return Finding("out_dtype", f"{r.out_dtype} with block-wise scales", "bfloat16, float16 or float32")


def _path_is_modelled(r: Request) -> Finding | None:
    """Raised by the profile itself, which knows what it has not modelled."""
    r.profile.path_facts(scaling.PATHS[scaling.of(r)])
    return None


MODEL_CHECKS: tuple[Check, ...] = (
    Check("no autograd", _no_autograd),
    Check("no microscaling", _no_microscaling),
    Check("block-wise scales have a modelled output", _block_scales_have_modelled_output),
    Check("the profile models these scales", _path_is_modelled),
)


def _kind(r: Request) -> str | None:
    return r.scaling or scaling.detect(r)


def _shape(operand: Operand) -> str:
    return f"{operand.dtype} {operand.shape} of strides {operand.strides}"


def _runs_row_wise(r: Request) -> bool:
    return _kind(r) == scaling.ROW_WISE and not _is_empty(r)


def _own_row_wise_kernel(r: Request) -> bool:
    """Whether row-wise products go to torch's own kernels, which look at layouts more strictly, not to cuBLASLt."""
    return r.profile.contract.row_wise_kernel == "torch"


def _is_empty(r: Request) -> bool:
    """The reference returns early where a size is zero, before it looks at layouts and output types."""
    return 0 in (*r.a.shape, *r.b.shape)


def _is_row_major(operand: Operand, copies: bool) -> bool:
    """As torch prepares a matrix for cuBLAS, where `copies`: a tensor with neither unit stride is made row-major."""
    if operand.contiguous:
        return True
    (rows, columns), (row_stride, column_stride) = operand.shape, operand.strides
    if column_stride == 1 and row_stride >= max(1, columns):
        return True
    return copies and not (row_stride == 1 and column_stride >= max(1, rows))


def _is_column_major(operand: Operand, copies: bool) -> bool:
    """The other case of `_is_row_major`: torch looks for a row-major matrix first."""
    if copies:
        return not _is_row_major(operand, copies)
    (rows, columns), (row_stride, column_stride) = operand.shape, operand.strides
    return (row_stride == 1 or rows == 1) and (column_stride >= rows or columns == 1)
