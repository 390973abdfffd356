# SPDX-License-Identifier: Apache-2.0
"""What kernels are given: the structures of kernels/arguments.cuh, filled from a plan."""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_void_p
from typing import Any

import numpy as np

from mmaemu.backends import structures
from mmaemu.backends.cuda.device import Array, Device, Tables
from mmaemu.backends.structures import FORMATS, ORDERS, SCHEMES, UNSCALED, Output, Rule
from mmaemu.model.epilogue import Factors
from mmaemu.model.formats import AnyBits, Format
from mmaemu.plan import Plan

RAW = -2
"""The order of an epilogue that leaves accumulators as they are."""


class Operand(ctypes.Structure):
    """Words of lines: rows of a, columns of b."""

    _fields_ = [("at", c_void_p), ("line_step", c_int64), ("k_step", c_int64), ("format", c_int32)]


class Factor(ctypes.Structure):
    """float32 numbers by line and block of K."""

    _fields_ = [("at", c_void_p), ("line_step", c_int64), ("block_step", c_int64)]


class Product(ctypes.Structure):
    """A rectangle of a matrix product."""

    _fields_ = [
        ("a", Operand), ("b", Operand), ("rows", c_int64), ("columns", c_int64), ("rule", Rule),
        ("chunks", c_void_p), ("splits", c_void_p), ("split_count", c_int32), ("scheme", c_int32),
        ("scale_a", Factor), ("scale_b", Factor), ("chunk_order", c_int32), ("partial_order", c_int32),
        ("order", c_int32), ("bias_mode", c_int32), ("bias", Factor), ("scale_result", c_void_p), ("output", Output),
        ("out", c_void_p), ("out_step", c_int64), ("row_marks", c_void_p), ("column_marks", c_void_p),
    ]  # fmt: skip

    def part(self, rows: tuple[int, int], columns: tuple[int, int], width: int) -> Product:
        """The same for a tile; `width`: bytes of an output."""
        own = Product.from_buffer_copy(self)
        own.rows, own.columns = rows[1] - rows[0], columns[1] - columns[0]
        own.a.at += rows[0] * self.a.line_step
        own.b.at += columns[0] * self.b.line_step
        own.out += (rows[0] * self.out_step + columns[0]) * width
        for factor, start in ((own.scale_a, rows[0]), (own.scale_b, columns[0]), (own.bias, columns[0])):
            if factor.at is not None:
                factor.at += start * factor.line_step * ctypes.sizeof(ctypes.c_float)
        if own.row_marks is not None:
            own.row_marks += rows[0]
            own.column_marks += columns[0]
        return own


class Dot(ctypes.Structure):
    """One instruction, or a chain of them, for each row."""

    _fields_ = [
        ("a", Operand), ("b", Operand), ("count", c_int64), ("length", c_int64), ("rule", Rule), ("c", c_void_p),
        ("d", c_void_p), ("accumulator", c_int32),
    ]  # fmt: skip

    def part(self, start: int, stop: int, width: int) -> Dot:
        """The same for some rows; `width`: bytes of an accumulator."""
        own = Dot.from_buffer_copy(self)
        own.count = stop - start
        own.a.at += start * self.a.line_step
        own.b.at += start * self.b.line_step
        own.c += start * width
        own.d += start * width
        return own


class Lines(ctypes.Structure):
    """Lines to be marked where they hold NaN or Inf."""

    _fields_ = [
        ("words", Operand), ("count", c_int64), ("length", c_int64), ("marks", c_void_p), ("lowest", c_int32),
    ]  # fmt: skip


def operand(device: Device, lines: Array, fmt: Format) -> Operand:
    """[lines, k] words in the device's memory."""
    return Operand(device.address(lines), *lines.strides, FORMATS[fmt])


def on_device(device: Device, lines: Any) -> Array:
    """[lines, k] words, copied to the device unless they lie there, of whatever strides."""
    return lines if device.holds(lines) else device.put(np.ascontiguousarray(lines))


def product(
    device: Device, a: Array, b: Array, factors: Factors, plan: Plan, out: Array, *, raw: bool
) -> tuple[Product, Array]:
    """The whole of a plan of one part, and the memory that it points into. a: [M, K], b: [N, K]."""
    tables = Tables()
    chunks = tables.add(np.concatenate([split.ends for split in plan.splits]))
    splits = tables.add(np.array([len(split.chunks) for split in plan.splits], np.int32))
    order = tables.add(structures.order_of(plan.instruction.rule))
    scale_a, scale_b = tables.add(factors.scale_a), tables.add(factors.scale_b.T)
    bias = None if factors.bias is None or raw else tables.add(factors.bias)
    last = None
    if structures.has_scale_result(plan, factors) and not raw:
        assert factors.scale_result is not None
        last = tables.add(factors.scale_result)
    memory = tables.put(device)
    base = device.address(memory)
    rule = structures.rule_of(plan.instruction.rule, base + order)
    found = Product(
        operand(device, a, plan.fmt_a), operand(device, b, plan.fmt_b), plan.m, plan.n, rule,
        base + chunks, base + splits, len(plan.splits), SCHEMES[plan.scheme],
        _factor(base + scale_a, factors.scale_a), _factor(base + scale_b, factors.scale_b.T),
        ORDERS[plan.rule.scale_order] if plan.scales_chunks else UNSCALED, structures.partial_order(plan),
        RAW if raw else structures.epilogue_order(plan), structures.bias_mode(plan, factors),
        Factor(None if bias is None else base + bias, 1, 0), None if last is None else base + last,
        structures.output_of(plan.fmt_out, plan.rule), device.address(out), plan.n, None, None,
    )  # fmt: skip
    return found, memory


def _factor(at: int, lines: AnyBits) -> Factor:
    """[lines or 1, blocks or 1] numbers, row by row."""
    count, blocks = lines.shape
    return Factor(at, blocks if count > 1 else 0, 1 if blocks > 1 else 0)
