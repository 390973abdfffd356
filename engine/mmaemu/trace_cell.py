# SPDX-License-Identifier: Apache-2.0
"""One cell of a product, step by step, through the same functions of model/ that compute it, beside its exact value."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from mmaemu import factors
from mmaemu.backends import execute, reference
from mmaemu.model import accumulator, alignment, chain, decode, epilogue, formats
from mmaemu.model.accumulator import Accumulator
from mmaemu.model.decode import NAN, Decoded
from mmaemu.model.epilogue import Factors
from mmaemu.model.formats import F32, AnyBits, Format
from mmaemu.plan import Part, Plan, Split
from mmaemu.request import Request

Json = dict[str, Any]


def explain_cell(call: Request, layout: Plan, i: int, j: int) -> Json:
    """Every step of result (i, j): splits, chunks, fused steps, reduction, epilogue, and the exact sum beside them."""
    part = layout.part_of(i, j)
    a, b = call.a.data[i : i + 1], call.b.data[:, j : j + 1]
    own = execute.of_tile(factors.of(call), (i, i + 1), (j, j + 1))
    cell = _Cell(execute.padded(a, part.padding, axis=1).T, execute.padded(b, part.padding, axis=0), own, part, layout)
    splits, partials = [], []
    for split in part.splits:
        described, partial = _split(cell, split)
        splits.append(described)
        partials.append(partial)

    reduced: list[Json] = []
    if layout.k == 0:
        acc = np.zeros((1, 1), np.uint32)
        finished = [(f"K = 0: {layout.fmt_out.torch_name} zero", np.zeros((1, 1), layout.fmt_out.storage))]
    else:
        uniform = layout.only(part)
        sums = list(reference.running_sums(partials, own, uniform))
        reduced = [_word(total, F32) for total in sums] if len(sums) > 1 else []
        acc = sums[-1]
        finished = list(epilogue.steps(acc, own, layout.fmt_out, layout.rule, uniform.scales_before_epilogue))
    out = finished[-1][1]
    return {
        "row": i,
        "column": j,
        "splits": splits,
        "reduction": reduced,
        "accumulator": _word(acc, F32),
        "epilogue": [
            {"step": name, **_word(words, layout.fmt_out if words is out else F32)} for name, words in finished
        ],
        "out": _word(out, layout.fmt_out),
        "exact": _exact(call, layout, own, a.T, b, out),
    }


@dataclass(frozen=True)
class _Cell:
    """The operands of one output, [padded K, 1] each, and what lays them out."""

    a: AnyBits
    b: AnyBits
    factors: Factors
    part: Part
    layout: Plan

    def k_of(self, position: int) -> int | None:
        """The k of the operands at a position of the padded K; None for padding."""
        padding = self.part.padding
        if padding is None or position < padding.at:
            return position
        return None if position < padding.at + padding.count else position - padding.count


def _split(cell: _Cell, split: Split) -> tuple[Json, AnyBits]:
    chunks: list[Json] = []
    total: AnyBits | None = None
    for start, stop in split.chunks:
        steps, result = _chunk(cell, start, stop)
        total = reference.join(total, result[None], cell.factors, start, cell.layout)[0]
        chunks.append(
            {"start": start, "stop": stop, "steps": steps, "result": _word(result, F32), "sum": _word(total, F32)}
        )
        if cell.layout.scales_chunks:
            block = cell.layout.block_of(start)
            chunks[-1] |= {
                "scale_a": _word(cell.factors.scale_a[0, block : block + 1], F32),
                "scale_b": _word(cell.factors.scale_b[block : block + 1, 0], F32),
            }
        total = total[None]
    assert total is not None, "a split has at least one chunk"
    return {"start": split.start, "stop": split.stop, "chunks": chunks, "partial": _word(total[0], F32)}, total


def _chunk(cell: _Cell, start: int, stop: int) -> tuple[list[Json], AnyBits]:
    rule, layout = cell.layout.instruction.rule, cell.layout
    a, b = cell.a[start:stop], cell.b[start:stop]
    left, right = chain.operand(a, layout.fmt_a, rule), chain.operand(b, layout.fmt_b, rule)
    current = accumulator.zeros((1,), F32)
    steps = []
    for after, group in chain.walk(left, right, current, F32, rule):
        current = after
        steps.append(_step(cell, a, b, left, right, start, group, after))
    return steps, accumulator.write(current, F32, rule)


def _step(
    cell: _Cell,
    a: AnyBits,
    b: AnyBits,
    left: Decoded,
    right: Decoded,
    offset: int,
    group: chain.Group,
    after: Accumulator,
) -> Json:
    layout = cell.layout
    rule, common = layout.instruction.rule, group.step.common_exponent
    grid = int(common[0]) - rule.fraction_bits
    index = list(group.k)
    products = alignment.kept_products(left[index], right[index], common, rule)
    terms = []
    for position, k in enumerate(group.k):
        real = cell.k_of(offset + k) if k < len(a) else None
        if real is None:
            continue  # padding of a tile, or of the last instruction
        kept = int(products[position, 0])
        product = _product(left, right, k)
        terms.append(
            {
                "k": real,
                "a": _hex(a[k, 0], layout.fmt_a),
                "b": _hex(b[k, 0], layout.fmt_b),
                "product": _dyadic(product) if product is not None else None,
                "exponent": int(left.exponent[k, 0] + right.exponent[k, 0]) if product else None,
                "kept": kept,
                "lost": _dyadic(product - _scaled(kept, grid)) if product is not None else None,
            }
        )
    before = accumulator.write(group.before, F32, rule)
    kept = int(alignment.kept_accumulator(group.before.value, common, rule)[0])
    value = _value(before, F32)
    return {
        "k": [term["k"] for term in terms],
        "common_exponent": int(common[0]),
        "grid_exponent": grid,
        "accumulator": {
            **_word(before, F32),
            "kept": kept,
            "lost": _dyadic(value - _scaled(kept, grid)) if value is not None else None,
        },
        "terms": terms,
        "sum": int(group.step.sum[0]),
        "rounded": _word(accumulator.write(group.step.result, F32, rule), F32),
        "result": _word(accumulator.write(after, F32, rule), F32),
    }


def _product(left: Decoded, right: Decoded, k: int) -> Fraction | None:
    """The exact product, None where it is NaN or infinite."""
    if left.kinds[k, 0] or right.kinds[k, 0]:
        return None
    return _number(left[k], 0) * _number(right[k], 0)


def _number(value: Decoded, index: int) -> Fraction:
    if value.magnitude[index] == 0:
        return Fraction(0)
    integer = int(value.sign[index]) * int(value.magnitude[index])
    return _scaled(integer, int(value.exponent[index]) - value.fraction_bits)


def _exact(call: Request, layout: Plan, own: Factors, a: AnyBits, b: AnyBits, out: AnyBits) -> Json:
    """The sum and the scaled result without any rounding, and how far the output is from it.

    With block-wise scales `dot` is the sum of the scaled products, for there is no sum before the scales.
    """
    left, right = decode.decode(a, layout.fmt_a), decode.decode(b, layout.fmt_b)
    products: list[Fraction | None] = [_product(left, right, k) for k in range(layout.k)]
    scales = [own.scale_a[0], own.scale_b[:, 0]]
    unknown: Json = {"dot": None, "result": None, "error": None, "relative_error": None}
    if layout.k == 0:
        scales = [np.zeros(0, np.uint32)]
    if layout.scales_chunks:
        blocks = [layout.block_of(k) for k in range(layout.k)]
        factors_a, factors_b = ([_value(words[i : i + 1], F32) for i in range(words.size)] for words in scales)
        products = [_times(product, factors_a[i], factors_b[i]) for product, i in zip(products, blocks, strict=True)]
        factor: Fraction | None = Fraction(1)
    else:
        factor = _times(Fraction(1), *(_value(words, F32) for words in scales if words.size))
    addends = [] if own.bias is None else [_value(own.bias[0], F32)]
    last = [own.scale_result[0]] if own.scale_result is not None and layout.fmt_out in formats.FP8 else []
    result_scale = _times(Fraction(1), *(_value(words, F32) for words in last))
    if any(value is None for value in (*products, factor, *addends, result_scale)):
        return unknown
    assert factor is not None and result_scale is not None
    total = sum((product for product in products if product is not None), Fraction(0))
    bias = sum((addend for addend in addends if addend is not None), Fraction(0))
    exact = (total * factor + bias) * result_scale if layout.k else Fraction(0)
    value = _value(out[0], layout.fmt_out)
    error = None if value is None else value - exact
    return {
        "dot": _dyadic(total),
        "result": _dyadic(exact),
        "error": None if error is None else _dyadic(error),
        "relative_error": float(abs(error / exact)) if error is not None and exact else None,
    }


def _times(*values: Fraction | None) -> Fraction | None:
    product = Fraction(1)
    for value in values:
        if value is None:
            return None
        product *= value
    return product


def _word(words: AnyBits, fmt: Format) -> Json:
    """One word in hex, with its exact value (None for NaN and infinities) and a readable one."""
    words = words.reshape(-1)
    value = _value(words, fmt)
    return {
        "bits": _hex(words[0], fmt),
        "exact": None if value is None else _dyadic(value),
        "value": _special(words, fmt) if value is None else float(value),
    }


def _value(words: AnyBits, fmt: Format) -> Fraction | None:
    decoded = decode.decode(words[:1], fmt)
    return None if decoded.kinds[0] else _number(decoded, 0)


def _special(words: AnyBits, fmt: Format) -> str:
    decoded = decode.decode(words[:1], fmt)
    if decoded.kinds[0] == NAN:
        return "nan"
    return "-inf" if decoded.sign[0] < 0 else "inf"


def _hex(word: Any, fmt: Format) -> str:
    return f"{int(word):0{fmt.itemsize * 2}X}"


def _scaled(integer: int, exponent: int) -> Fraction:
    return Fraction(integer) * Fraction(2) ** exponent


def _dyadic(value: Fraction) -> list[int]:
    """[integer, exponent] with integer * 2^exponent == value, the integer odd or 0."""
    exponent = 1 - value.denominator.bit_length()
    integer = value.numerator
    if integer == 0:
        return [0, 0]
    zeros = (integer & -integer).bit_length() - 1
    return [integer >> zeros, exponent + zeros]
