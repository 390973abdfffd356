// SPDX-License-Identifier: Apache-2.0
// One step of any rule: the terms' common exponent, and their exact sum once each is cut to the grid below it.

#pragma once

#include "rounding.cuh"

namespace mmaemu {

constexpr i32 kNone = -(1 << 20);  // exponent of a term that takes no part in the common one, also as a sum of two

// The words of one row of a and one column of b.
struct Line {
  const u8* at;
  i64 k_step;
  Format format;

  MMAEMU_FUNCTION Number number(i64 k) const { return decode(load_word(at + k * k_step, format.bytes), format); }
};

MMAEMU_FUNCTION Line line_of(const Operand& words, i64 line) {
  return {words.at + line * words.line_step, words.k_step, format_of(words.format)};
}

struct Step {
  i32 common;
  i64 sum;  // in units of 2^(common - rule.fraction_bits)
  u8 flags;
};

MMAEMU_FUNCTION i32 product_exponent(const Number& x, const Number& y, const Rule& rule) {
  const bool takes_part = rule.zero_products_align || (x.magnitude && y.magnitude);
  return takes_part ? x.exponent + y.exponent : kNone;
}

MMAEMU_FUNCTION u8 product_flags(const Number& x, const Number& y) {
  if (x.kind == kFinite && y.kind == kFinite) return 0;
  const bool zero = (x.kind == kFinite && !x.magnitude) || (y.kind == kFinite && !y.magnitude);
  if (x.kind == kNaN || y.kind == kNaN || zero) return kNotANumber;
  return x.negative != y.negative ? kMinusInf : kPlusInf;
}

// A magnitude whose last bit is 2^(exponent - fraction_bits), cut toward zero to the grid, in its units.
MMAEMU_FUNCTION i64 aligned(u64 magnitude, bool negative, i32 exponent, i32 fraction_bits, i32 common, const Rule& rule) {
  if (magnitude == 0) return 0;  // it may lie above the common exponent
  const i32 up = rule.fraction_bits - fraction_bits - (common - exponent);
  const i64 kept = i64(up >= 0 ? magnitude << up : up < -63 ? 0 : magnitude >> -up);
  return negative ? -kept : kept;
}

// The products at `ks` (of an instruction that begins at k = first) and the accumulator; k from `length` on are zeros.
MMAEMU_FUNCTION Step add_exactly(const Line& a, const Line& b, i64 first, i64 length, const i32* ks, i32 count,
                                 const Number& acc, const Format& format, const Rule& rule) {
  const Number zero_a = decode(0, a.format), zero_b = decode(0, b.format);
  Step step = {rule.min_exponent, 0, 0};
  if (acc.magnitude || rule.zero_accumulator_aligns) step.common = larger(step.common, acc.exponent);
  for (i32 t = 0; t < count; ++t) {
    const i64 k = first + ks[t];
    const Number x = k < length ? a.number(k) : zero_a, y = k < length ? b.number(k) : zero_b;
    step.common = larger(step.common, product_exponent(x, y, rule));
    step.flags |= product_flags(x, y);
  }
  step.sum = aligned(acc.magnitude, acc.negative, acc.exponent, format.fraction_bits, step.common, rule);
  for (i32 t = 0; t < count; ++t) {
    const i64 k = first + ks[t];
    if (k >= length) continue;
    const Number x = a.number(k), y = b.number(k);
    step.sum += aligned(u64(x.magnitude) * y.magnitude, x.negative != y.negative, x.exponent + y.exponent,
                        a.format.fraction_bits + b.format.fraction_bits, step.common, rule);
  }
  return step;
}

}  // namespace mmaemu
