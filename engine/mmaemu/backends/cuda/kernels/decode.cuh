// SPDX-License-Identifier: Apache-2.0
// Words to numbers: sign, magnitude, exponent.

#pragma once

#include "arguments.cuh"
#include "formats.cuh"

namespace mmaemu {

enum Kind { kFinite, kInfinite, kNaN };

// value = (-1)^negative * magnitude * 2^(exponent - fraction_bits). Not normalised; NaN and infinities have magnitude 0.
struct Number {
  u32 magnitude;
  i32 exponent;
  bool negative;
  Kind kind;
};

MMAEMU_FUNCTION Number decode(u32 word, const Format& format) {
  const bool negative = (word & format.sign()) != 0;
  const u32 code = (word & (format.sign() - 1)) >> format.ignored_bits;
  const u32 field = code >> format.fraction_bits, fraction = code & ((1u << format.fraction_bits) - 1);
  const i32 exponent = i32(field ? field : 1) - format.bias;
  if (code > format.largest()) return {0, exponent, negative, format.has_infinity && fraction == 0 ? kInfinite : kNaN};
  return {fraction | (field ? 1u << format.fraction_bits : 0), exponent, negative, kFinite};
}

MMAEMU_FUNCTION u32 load_word(const u8* from, i32 bytes) {
  if (bytes == 1) return *from;
  if (bytes == 2) return *reinterpret_cast<const u16*>(from);
  return *reinterpret_cast<const u32*>(from);
}

MMAEMU_FUNCTION void store_word(u8* to, i32 bytes, u32 word) {
  if (bytes == 1)
    *to = u8(word);
  else if (bytes == 2)
    *reinterpret_cast<u16*>(to) = u16(word);
  else
    *reinterpret_cast<u32*>(to) = word;
}

MMAEMU_FUNCTION u32 word_at(const Operand& from, i64 line, i64 k, const Format& format) {
  return load_word(from.at + line * from.line_step + k * from.k_step, format.bytes);
}

}  // namespace mmaemu
