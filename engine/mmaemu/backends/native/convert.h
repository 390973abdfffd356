// SPDX-License-Identifier: Apache-2.0
// float32 to the words of an output, to nearest even, and back.

#pragma once

#include <cmath>

#include "formats.h"

namespace mmaemu {

// What an output's words are beyond its format: where too large numbers go, and the one NaN.
struct Output {
  int32_t format, saturates;
  uint32_t nan;
};

// Without branches, so that loops over it become vectors.
inline __attribute__((always_inline)) uint32_t narrow(float value, const Format& to, bool saturates, uint32_t nan) {
  const uint32_t bits = float_to_bits(value);
  const uint32_t magnitude = bits & 0x7FFFFFFF, sign = bits >> 31 ? to.sign() : 0;
  const uint32_t too_large = sign | (saturates ? to.largest() : to.above());  // e4m3: NaN of the same sign
  uint32_t code = magnitude;
  if (to.fraction_bits < 23) {
    const int field = int(magnitude >> 23), exponent = (field ? field : 1) - 127;
    const uint32_t significand = (magnitude & 0x7FFFFF) | (field ? 0x800000 : 0);
    const int below = exponent < to.lowest() ? to.lowest() - exponent : 0, wanted = 23 - to.fraction_bits + below;
    const int shift = wanted < 31 ? wanted : 31;  // nothing is left of 24 bits
    const uint32_t half = 1u << (shift - 1), odd = significand >> shift & 1;
    const uint32_t up = exponent > to.lowest() ? uint32_t(exponent - to.lowest()) << to.fraction_bits : 0;
    code = ((significand + half - 1 + odd) >> shift) + up;
  }
  const uint32_t number = code > to.largest() ? too_large : sign | code;
  return magnitude > 0x7F800000 ? nan : number;
}

// Exact, but for NaN, which becomes float32's.
inline float widen(uint32_t word, const Format& from) {
  if (from.fraction_bits == 23) return (word & INT32_MAX) > 0x7F800000 ? bits_to_float(0x7FFFFFFF) : bits_to_float(word);
  const Number number = decode(word, from);
  if (number.kind == kNaN) return bits_to_float(0x7FFFFFFF);
  const float magnitude = number.kind == kInfinite ? bits_to_float(0x7F800000)
                                                   : std::ldexp(float(number.magnitude), number.exponent - from.fraction_bits);
  return number.negative ? -magnitude : magnitude;
}

}  // namespace mmaemu
