# SPDX-License-Identifier: Apache-2.0
"""Plans and instructions on a device: which kernel, in which pieces."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mmaemu.backends import fp8_rule, structures
from mmaemu.backends.cuda import arguments
from mmaemu.backends.cuda.arguments import Dot, Lines, Product
from mmaemu.backends.cuda.device import Array, Device, Tables
from mmaemu.backends.interface import Progress
from mmaemu.backends.tiles import cover
from mmaemu.errors import BackendUnavailableError
from mmaemu.model import dot_product
from mmaemu.model.epilogue import Factors
from mmaemu.model.formats import AnyBits
from mmaemu.plan import Plan

KERNELS = ("v9", "v4", "v1")
"""The first that a device has and that knows a plan's rule runs it. v1 knows every rule."""
GROUPS = (16, 32)
"""Products of a step that v4 and v9 are compiled for."""
THREADS = 256
_TILES = {"v1": 16, "v4": 64, "v9": 64}
"""Rows and columns of a block's outputs."""
_PRODUCTS = {"v1": 1 << 32, "v4": 1 << 37, "v9": 1 << 38}
"""Products of a launch: tenths of a second on a large GPU, which is how long progress and cancelling may wait."""
_HIGHEST = 65535
"""Blocks of a grid along y."""


class Runner:
    """A backend (see interface.py) on one device. Operands in the device's memory give results there.

    `kernel` is one of KERNELS for all plans, else MMAEMU_CUDA_KERNEL is, else the fastest that knows the plan's rule.
    """

    def __init__(self, device: Device, kernel: str | None = None) -> None:
        self.device = device
        self.kernel = kernel

    def accumulate(
        self, a: AnyBits, b: AnyBits, factors: Factors, plan: Plan, *, threads: int | None = None,
        progress: Progress | None = None,
    ) -> AnyBits:  # fmt: skip
        """As `reference.accumulate`; `threads` has no meaning here."""
        return self._product(a, b, factors, plan, np.dtype(np.uint32), progress, raw=True)

    def multiply(
        self, a: AnyBits, b: AnyBits, factors: Factors, plan: Plan, *, threads: int | None = None,
        progress: Progress | None = None,
    ) -> AnyBits:  # fmt: skip
        """As `reference.multiply`; the epilogue is part of the kernel."""
        return self._product(a, b, factors, plan, plan.fmt_out.storage, progress, raw=False)

    def dot(
        self, a: AnyBits, b: AnyBits, c: AnyBits, how: dot_product.Dot, *, threads: int | None = None,
        progress: Progress | None = None,
    ) -> AnyBits:  # fmt: skip
        """As `reference.dot`."""
        device, count = self.device, len(c)
        if count == 0:
            return np.zeros(0, c.dtype)
        left, right, start = (arguments.on_device(device, words) for words in (a, b, c))
        out = device.empty(c.shape, c.dtype)
        tables = Tables()
        order = tables.add(structures.order_of(how.rule))
        memory = tables.put(device)
        whole = Dot(
            arguments.operand(device, left, how.fmt_a), arguments.operand(device, right, how.fmt_b), count, a.shape[1],
            structures.rule_of(how.rule, device.address(memory) + order), device.address(start), device.address(out),
            structures.FORMATS[how.fmt_c],
        )  # fmt: skip
        step = max(THREADS, _PRODUCTS["v1"] // a.shape[1] // THREADS * THREADS)

        def run(first: int) -> None:
            part = whole.part(first, min(count, first + step), c.itemsize)
            device.launch("mmaemu_v1_dot", (-(-part.count // THREADS), 1), THREADS, part)

        self._in_order(run, range(0, count, step), progress)
        return out if device.holds(c) else device.get(out)

    def _product(
        self, a: Any, b: Any, factors: Factors, plan: Plan, dtype: np.dtype[Any], progress: Progress | None, *,
        raw: bool,
    ) -> AnyBits:  # fmt: skip
        device = self.device
        if 0 in (plan.m, plan.n, plan.k):
            return np.zeros((plan.m, plan.n), dtype)
        kernel = self.kernel_of(plan)
        left, right = arguments.on_device(device, a), arguments.on_device(device, b.T)
        out = device.empty((plan.m, plan.n), dtype)
        whole, memory = arguments.product(device, left, right, factors, plan, out, raw=raw)
        launches, marks = [(kernel, whole)], None
        if kernel != "v1":
            again, marks = self._marked(whole, plan, a.shape[1])
            launches.append(("v1", again))
        pieces = [(name, product, tile) for name, product in launches for tile in self._tiles(name, plan)]

        def run(piece: tuple[str, Product, Any]) -> None:
            name, product, (rows, columns) = piece
            part = product.part(rows, columns, dtype.itemsize)
            size = _TILES[name]
            grid = -(-part.columns // size), -(-part.rows // size)
            device.launch(_full_name(name, plan), grid, THREADS, part)

        self._in_order(run, pieces, progress)
        # What kernels point into lives until they are launched; the device frees memory in the same order.
        del memory, marks
        return out if device.holds(a) else device.get(out)

    def kernel_of(self, plan: Plan) -> str:
        """The name of the kernel that sums a plan."""
        wanted = self.kernel or os.environ.get("MMAEMU_CUDA_KERNEL") or None
        if wanted is not None and wanted not in KERNELS:
            raise BackendUnavailableError.because("MMAEMU_CUDA_KERNEL", got=wanted[:80], wanted=", ".join(KERNELS))
        rule = plan.instruction.rule
        if not fp8_rule.applies(rule, plan.fmt_a, plan.fmt_b) or rule.group not in GROUPS:
            return "v1"
        return next(name for name in KERNELS if wanted in (None, name) and self.device.has(name))

    def _marked(self, whole: Product, plan: Plan, length: int) -> tuple[Product, list[Array]]:
        """The same product for v1, of rows and columns that hold NaN or Inf alone, and the marks that say which.

        length: of lines, which may hold the plan's padding.
        """
        marks = []
        for words, count, fmt in ((whole.a, plan.m, plan.fmt_a), (whole.b, plan.n, plan.fmt_b)):
            marks.append(self.device.zeros((count,), np.uint8))
            lines = Lines(words, count, length, self.device.address(marks[-1]), fmt.max_finite + 1)
            self.device.launch("mmaemu_v1_mark", (count, 1), THREADS, lines)
        again = Product.from_buffer_copy(whole)
        again.row_marks, again.column_marks = (self.device.address(array) for array in marks)
        return again, marks

    def _tiles(self, name: str, plan: Plan) -> list[Any]:
        """Tiles of a launch each, wide rather than high, in whole blocks."""
        size = _TILES[name]
        blocks = max(1, _PRODUCTS[name] // plan.k // size**2)
        across = min(blocks, -(-plan.n // size))
        return cover(plan.m, plan.n, min(_HIGHEST, blocks // across) * size, across * size)

    def _in_order(self, run: Callable[[Any], None], pieces: Sequence[Any], progress: Progress | None) -> None:
        for done, piece in enumerate(pieces, 1):
            run(piece)
            if progress is not None:
                self.device.wait()
                progress(done, len(pieces))


def _full_name(name: str, plan: Plan) -> str:
    """The function of a kernel that does no more than a plan needs."""
    if name == "v1":
        return "mmaemu_v1_product"
    chunks = len(plan.splits[0].chunks) > 1 or plan.scales_chunks
    sums = "split" if len(plan.splits) > 1 else "slow" if chunks else "fast"
    return f"mmaemu_{name}_g{plan.instruction.rule.group}_{sums}"
