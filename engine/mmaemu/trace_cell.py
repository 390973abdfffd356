# SPDX-License-Identifier: Apache-2.0
"""One cell of a product, step by step, through the same functions of model/ that compute it, beside its exact value."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from mmaemu.model import accumulator, alignment, chain, decode, epilogue, formats, ieee, reduction
from mmaemu.model.accumulator import Accumulator
from mmaemu.model.decode import NAN, Decoded
from mmaemu.model.formats import F32, AnyBits, Format
from mmaemu.plan import Plan, Split
from mmaemu.request import Request

Json = dict[str, Any]


def explain_cell(call: Request, layout: Plan, i: int, j: int) -> Json:
    """Every step of result (i, j): splits, chunks, fused steps, reduction, epilogue, and the exact sum beside them."""
    a, b = call.a.data[i : i + 1].T, call.b.data[:, j : j + 1]
    scale_a, scale_b = (scale.data.reshape(1) for scale in (call.scale_a, call.scale_b))
    scale_result = None if call.scale_result is None else call.scale_result.data.reshape(1)
    splits, partials = [], []
    for split in layout.splits:
        described, partial = _split(a, b, split, layout)
        splits.append(described)
        partials.append(partial)

    reduced: list[Json] = []
    if layout.k == 0:
        acc = np.zeros(1, np.uint32)
        finished = [(f"K = 0: {layout.fmt_out.torch_name} zero", np.zeros(1, layout.fmt_out.storage))]
    else:
        if layout.scales_partials:
            partials = [epilogue.apply_scales(partial, scale_a, scale_b, layout.rule) for partial in partials]
        sums = list(
            reduction.running_sums(
                partials, layout.scheme, lambda p: epilogue.convert(p, layout.fmt_out, layout.rule), layout.fmt_out
            )
        )
        reduced = [_word(total, F32) for total in sums] if len(sums) > 1 else []
        acc = sums[-1]
        finished = list(
            epilogue.steps(
                acc, scale_a, scale_b, scale_result, layout.fmt_out, layout.rule, already_scaled=layout.scales_partials
            )
        )
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
        "exact": _exact(call, layout, a, b, out),
    }


def _split(a: AnyBits, b: AnyBits, split: Split, layout: Plan) -> tuple[Json, AnyBits]:
    chunks: list[Json] = []
    total: AnyBits | None = None
    for start, stop in split.chunks:
        steps, result = _chunk(a[start:stop], b[start:stop], start, layout)
        total = result if total is None else ieee.add(total, result)
        chunks.append(
            {"start": start, "stop": stop, "steps": steps, "result": _word(result, F32), "sum": _word(total, F32)}
        )
    assert total is not None, "a split has at least one chunk"
    return {"start": split.start, "stop": split.stop, "chunks": chunks, "partial": _word(total, F32)}, total


def _chunk(a: AnyBits, b: AnyBits, offset: int, layout: Plan) -> tuple[list[Json], AnyBits]:
    rule = layout.instruction.rule
    left, right = chain.operand(a, layout.fmt_a, rule), chain.operand(b, layout.fmt_b, rule)
    current = accumulator.zeros((1,), F32)
    steps = []
    for after, group in chain.walk(left, right, current, F32, rule):
        current = after
        steps.append(_step(a, b, left, right, offset, group, after, layout))
    return steps, accumulator.write(current, F32, rule)


def _step(
    a: AnyBits,
    b: AnyBits,
    left: Decoded,
    right: Decoded,
    offset: int,
    group: chain.Group,
    after: Accumulator,
    layout: Plan,
) -> Json:
    rule, common = layout.instruction.rule, group.step.common_exponent
    grid = int(common[0]) - rule.fraction_bits
    index = list(group.k)
    products = alignment.kept_products(left[index], right[index], common, rule)
    terms = []
    for position, k in enumerate(group.k):
        if k >= len(a):
            continue  # padding of the last instruction
        kept = int(products[position, 0])
        product = _product(left, right, k)
        terms.append(
            {
                "k": offset + k,
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
        "k": [offset + k for k in group.k if k < len(a)],
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


def _exact(call: Request, layout: Plan, a: AnyBits, b: AnyBits, out: AnyBits) -> Json:
    """The sum and the scaled result without any rounding, and how far the output is from it."""
    left, right = decode.decode(a, layout.fmt_a), decode.decode(b, layout.fmt_b)
    factors = [call.scale_a, call.scale_b]
    if call.scale_result is not None and layout.fmt_out in formats.FP8:
        factors.append(call.scale_result)
    scales = [_value(factor.data.reshape(1), F32) for factor in factors]
    products = [_product(left, right, k) for k in range(layout.k)]
    if any(value is None for value in (*products, *scales)):
        return {"dot": None, "result": None, "error": None, "relative_error": None}
    total = sum((product for product in products if product is not None), Fraction(0))
    exact = total
    for scale in scales:
        assert scale is not None
        exact *= scale
    value = _value(out, layout.fmt_out)
    error = None if value is None else value - exact
    return {
        "dot": _dyadic(total),
        "result": _dyadic(exact),
        "error": None if error is None else _dyadic(error),
        "relative_error": float(abs(error / exact)) if error is not None and exact else None,
    }


def _word(words: AnyBits, fmt: Format) -> Json:
    """One word in hex, with its exact value (None for NaN and infinities) and a readable one."""
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
