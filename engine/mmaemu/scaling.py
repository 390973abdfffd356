# SPDX-License-Identifier: Apache-2.0
"""How operands are scaled, recognised from the types and shapes of the scales as torch does.

Block scales are [rows of a or blocks of 128, K blocks of 128] for a and [K blocks, columns or blocks of 128] for b, as
`torch._scaled_mm` takes them.
"""

from __future__ import annotations

from collections.abc import Callable

from mmaemu.profiles import Profile
from mmaemu.request import Request
from mmaemu.tensors import Operand

TENSOR_WISE = "tensor_wise"
ROW_WISE = "row_wise"
BLOCK_128x128_1x128 = "block_128x128_1x128"
BLOCK_1x128_128x128 = "block_1x128_128x128"
BLOCK_1x128_1x128 = "block_1x128_1x128"
BLOCK_1x32 = "block_1x32"
BLOCK_1x16 = "block_1x16"

BLOCKS_OF_128 = (BLOCK_128x128_1x128, BLOCK_1x128_128x128, BLOCK_1x128_1x128)
MICROSCALED = (BLOCK_1x32, BLOCK_1x16)

PATHS = {TENSOR_WISE: "gemm", ROW_WISE: "row_wise", **{kind: "block_wise" for kind in BLOCKS_OF_128}}
"""The profile's table for each scaling that mmaemu models."""

KINDS = (*PATHS, *MICROSCALED)

BLOCK = 128
FP4 = "float4_e2m1fn_x2"
"""Two 4-bit numbers a byte; torch's shapes count bytes."""


def of(request: Request) -> str:
    """The scaling of a validated request."""
    kind = request.scaling or detect(request)
    assert kind is not None, "validation refuses scales that fit nothing"
    return kind


def detect(request: Request) -> str | None:
    """The first scaling of the profile's contract that the scales' types and shapes fit; None where none does."""
    contract = request.profile.contract
    kinds = contract.scale_kinds if len(request.scale_b.shape) <= contract.scale_b_dimensions else ()
    return next((kind for kind in kinds if _FITS[kind](request)), None)


def k_blocks(request: Request) -> int:
    return -(-request.a.shape[1] // BLOCK)


def _tensor_wise(r: Request) -> bool:
    return _both(r, "float32") and r.scale_a.numel == 1 and r.scale_b.numel == 1


def _row_wise(r: Request) -> bool:
    shapes = (r.scale_a.shape, r.scale_b.shape)
    return _both(r, "float32") and shapes == ((r.a.shape[0], 1), (1, r.b.shape[1]))


def _vector_a(r: Request) -> bool:
    """Strides as torch wants them: the outer dimension runs fastest. A size of 1 may have any."""
    m = r.a.shape[0]
    return r.scale_a.shape == (m, k_blocks(r)) and _strides(r.scale_a, (1, m))


def _vector_b(r: Request) -> bool:
    n = r.b.shape[1]
    return r.scale_b.shape == (k_blocks(r), n) and _strides(r.scale_b, (n, 1))


def _square_a(r: Request) -> bool:
    blocks = k_blocks(r)
    return r.scale_a.shape == (-(-r.a.shape[0] // BLOCK), blocks) and _strides(r.scale_a, (blocks, 1))


def _square_b(r: Request) -> bool:
    blocks = k_blocks(r)
    return r.scale_b.shape == (blocks, -(-r.b.shape[1] // BLOCK)) and _strides(r.scale_b, (1, blocks))


def _strides(scale: Operand, wanted: tuple[int, int]) -> bool:
    return all(
        size <= 1 or stride == want for size, stride, want in zip(scale.shape, scale.strides, wanted, strict=True)
    )


def _microscaled(r: Request) -> bool:
    fits = zip((r.scale_a, r.scale_b), microscale_counts(r), strict=True)
    return _both(r, "float8_e8m0fnu") and all(scale.numel == count and scale.contiguous for scale, count in fits)


def microscale_counts(r: Request, numbers: int = 32) -> tuple[int, int]:
    """How many scales a and b have, of one for `numbers` numbers: torch pads rows to 128 and blocks to 4."""
    return _microscales(r, r.a, r.a.shape[0], numbers), _microscales(r, r.b, r.b.shape[1], numbers)


def _microscales(r: Request, operand: Operand, outer: int, numbers: int) -> int:
    packed = operand.dtype == FP4 and knows_fp4(r.profile)
    blocks = -(-r.a.shape[1] * (2 if packed else 1) // numbers)
    return -(-outer // 128) * 128 * -(-blocks // 4) * 4


def knows_fp4(profile: Profile) -> bool:
    """Whether this torch takes 4-bit operands at all."""
    return BLOCK_1x16 in profile.contract.scale_kinds


def _nvfp4(r: Request) -> bool:
    fits = zip((r.scale_a, r.scale_b), microscale_counts(r, numbers=16), strict=True)
    sizes = all(scale.numel == count and scale.contiguous for scale, count in fits)
    return sizes and r.a.dtype == r.b.dtype == FP4 and _both(r, "float8_e4m3fn")


def _both(r: Request, dtype: str) -> bool:
    return r.scale_a.dtype == r.scale_b.dtype == dtype


_FITS: dict[str, Callable[[Request], bool]] = {
    TENSOR_WISE: _tensor_wise,
    ROW_WISE: _row_wise,
    BLOCK_128x128_1x128: lambda r: _both(r, "float32") and _square_a(r) and _vector_b(r),
    BLOCK_1x128_128x128: lambda r: _both(r, "float32") and _vector_a(r) and _square_b(r),
    BLOCK_1x128_1x128: lambda r: _both(r, "float32") and _vector_a(r) and _vector_b(r),
    BLOCK_1x32: _microscaled,
    BLOCK_1x16: _nvfp4,
}
