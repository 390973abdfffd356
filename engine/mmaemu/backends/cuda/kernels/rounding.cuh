// SPDX-License-Identifier: Apache-2.0
// Exact sums to the words of an accumulator, float32 to the words of an output, and back.

#pragma once

#include "decode.cuh"

namespace mmaemu {

constexpr u32 kF32NaN = 0x7FFFFFFF;
constexpr u8 kPlusInf = 1, kMinusInf = 2, kNotANumber = 4, kBothInf = kPlusInf | kMinusInf;

// A finite word, or the flags of what is not.
struct Rounded {
  u32 word;
  u8 flags;
};

struct Rounding {
  i32 fraction_bits;
  bool nearest, saturates, zero_keeps_sign;
};

// (-1)^negative * magnitude * 2^lsb, below the format's smallest exponent as a subnormal.
MMAEMU_FUNCTION Rounded round(bool negative, u64 magnitude, i32 lsb, const Rounding& how, const Format& format) {
  const u32 sign = negative ? format.sign() : 0;
  if (magnitude == 0) return {how.zero_keeps_sign ? sign : 0, 0};
  const i32 top = 63 - __clzll(i64(magnitude));
  i32 drop = larger(top - how.fraction_bits, format.lowest() - how.fraction_bits - lsb);
  u64 kept = drop <= 0 ? magnitude << -drop : drop > 63 ? 0 : magnitude >> drop;
  if (how.nearest && drop > 0 && drop <= 63) {
    const u64 rest = magnitude - (kept << drop), half = u64(1) << (drop - 1);
    kept += rest > half || (rest == half && (kept & 1));
    const i32 carried = i32(kept >> (how.fraction_bits + 1));
    kept >>= carried;
    drop += carried;
  }
  if (kept == 0) return {how.zero_keeps_sign ? sign : 0, 0};
  const i32 exponent = lsb + drop + how.fraction_bits, spare = format.fraction_bits - how.fraction_bits;
  if (exponent > format.highest()) {
    if (!how.saturates) return {0, negative ? kMinusInf : kPlusInf};
    const u32 ones = ((1u << (how.fraction_bits + 1)) - 1) << spare;
    return {sign | (ones + (u32(format.highest() + format.bias - 1) << format.fraction_bits)), 0};
  }
  // The leading one of a normal number counts as one more in the exponent's field; a subnormal has neither.
  return {sign | ((u32(kept) << spare) + (u32(exponent - format.lowest()) << format.fraction_bits)), 0};
}

// float32 to an output, to nearest even.
MMAEMU_FUNCTION u32 narrow(float value, const Output& output) {
  const Format to = format_of(output.format);
  const u32 bits = __float_as_uint(value), magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return output.nan;
  const u32 sign = bits >> 31 ? to.sign() : 0;
  u32 code = magnitude;
  if (to.fraction_bits < 23) {
    const i32 field = i32(magnitude >> 23), exponent = (field ? field : 1) - 127;
    const u32 significand = (magnitude & 0x7FFFFF) | (field ? 0x800000 : 0);
    const i32 below = exponent < to.lowest() ? to.lowest() - exponent : 0;
    const i32 shift = smaller(23 - to.fraction_bits + below, 31);  // nothing is left of 24 bits
    const u32 half = 1u << (shift - 1), odd = significand >> shift & 1;
    code = (significand + half - 1 + odd) >> shift;
    if (exponent > to.lowest()) code += u32(exponent - to.lowest()) << to.fraction_bits;
  }
  if (code > to.largest()) return sign | (output.saturates ? to.largest() : to.above());  // e4m3: NaN of the same sign
  return sign | code;
}

// Exact, but for NaN, which becomes float32's.
MMAEMU_FUNCTION float widen(u32 word, const Format& from) {
  if (from.fraction_bits == 23) return __uint_as_float((word & 0x7FFFFFFF) > 0x7F800000 ? kF32NaN : word);
  const Number number = decode(word, from);
  if (number.kind == kNaN) return __uint_as_float(kF32NaN);
  const u32 sign = number.negative ? 0x80000000u : 0;
  if (number.kind == kInfinite) return __uint_as_float(sign | 0x7F800000);
  if (from.bias == 127) return __uint_as_float(sign | (word & 0x7FFF) << 16);
  const float power = __uint_as_float(u32(number.exponent - from.fraction_bits + 127) << 23);
  return __uint_as_float(sign | __float_as_uint(__fmul_rn(float(number.magnitude), power)));
}

// The one NaN that float32 results have.
MMAEMU_FUNCTION float with_one_nan(float value) { return value == value ? value : __uint_as_float(kF32NaN); }

}  // namespace mmaemu
