# SPDX-License-Identifier: Apache-2.0
"""When PyTorch's sm_90 row-wise kernel exchanges its operands, which turns the order of the two scales round.

Source: PyTorch RowwiseScaledMM.cu, dispatch_fp8_rowwise_kernel_on_cluster_size_and_transpose.
"""

from __future__ import annotations


def transposes(m: int, n: int) -> bool:
    """True where b is the first operand of the kernel for an [m, n] result."""
    m, n = (-(-size // 64) * 64 for size in (m, n))
    if m == 64 and n >= 3072:
        return False
    if n == 64 and m >= 3072:
        return True
    if m == 192 and n >= 4096:
        return True
    if n == 192 and m >= 4096:
        return False
    ragged_m, ragged_n = m % 256 > 0, n % 256 > 0
    if m * n <= 4096 * 4096 and ragged_m != ragged_n:
        return ragged_m
    if ragged_m and ragged_n:
        return (m <= n) != (m * n <= 1024 * 1024)
    if m >= 4096 and n >= 4096:
        return m < n
    return True
