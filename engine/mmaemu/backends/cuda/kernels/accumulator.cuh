// SPDX-License-Identifier: Apache-2.0
// Chains of instructions by any rule over one output.

#pragma once

#include "alignment.cuh"

namespace mmaemu {

// A finite word, and flags that no later step takes back.
using Accumulator = Rounded;

MMAEMU_FUNCTION Accumulator read_accumulator(u32 word, const Format& format) {
  const Number number = decode(word, format);
  if (number.kind == kFinite) return {word, 0};
  return {0, number.kind == kNaN ? kNotANumber : number.negative ? kMinusInf : kPlusInf};
}

MMAEMU_FUNCTION u32 write_accumulator(const Accumulator& acc, const Format& format, u32 nan) {
  if (acc.flags & kNotANumber || (acc.flags & kBothInf) == kBothInf) return nan;
  if (acc.flags) return format.above() | (acc.flags & kMinusInf ? format.sign() : 0);
  return acc.word;
}

// x + y of finite words, to nearest even.
MMAEMU_FUNCTION Rounded add(u32 x, u32 y, const Format& format) {
  if (format.bytes == 4) {
    const u32 sum = __float_as_uint(__fadd_rn(__uint_as_float(x), __uint_as_float(y)));
    if ((sum & 0x7FFFFFFF) > format.largest()) return {0, sum >> 31 ? kMinusInf : kPlusInf};
    return {sum, 0};
  }
  // float16: every number is a multiple of 2^-24 below 2^40 of them.
  const Number u = decode(x, format), v = decode(y, format);
  const i64 left = i64(u.magnitude) << (u.exponent - format.lowest());
  const i64 right = i64(v.magnitude) << (v.exponent - format.lowest());
  const i64 total = (u.negative ? -left : left) + (v.negative ? -right : right);
  const bool negative = total == 0 ? (x & y & format.sign()) != 0 : total < 0;
  return round(negative, u64(total < 0 ? -total : total), format.lowest() - format.fraction_bits,
               {format.fraction_bits, true, false, true}, format);
}

// All instructions of a chunk of `length` words; `acc` goes along.
MMAEMU_FUNCTION Accumulator chain(const Line& a, const Line& b, i64 length, Accumulator acc, const Format& format,
                                  const Rule& rule) {
  const Rounding how = {rule.result_fraction_bits, rule.nearest != 0, rule.saturates != 0, rule.underflow_keeps_sign != 0};
  for (i64 first = 0; first < length; first += rule.instruction_k) {
    Accumulator running = rule.after ? Accumulator{0, 0} : acc;
    for (i32 begin = 0; begin < rule.instruction_k; begin += rule.group) {
      const i32 count = smaller(rule.group, rule.instruction_k - begin);
      const Step step = add_exactly(a, b, first, length, rule.order + begin, count, decode(running.word, format), format, rule);
      const bool negative = step.sum < 0;
      const Rounded result = round(negative, u64(negative ? -step.sum : step.sum), step.common - rule.fraction_bits, how, format);
      running.word = result.word;
      running.flags |= step.flags;
      // An infinity or NaN stays what it is, whatever the finite terms add up to.
      if (running.flags == 0) running.flags = result.flags;
    }
    if (rule.after) {
      running.flags |= acc.flags;
      if (running.flags == 0) running = add(running.word, acc.word, format);
    }
    acc = running;
  }
  return acc;
}

}  // namespace mmaemu
