// SPDX-License-Identifier: Apache-2.0
// The number formats, in the order in which Python counts them, and their words as integers.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace mmaemu {

struct Format {
  int exponent_bits, fraction_bits, bias;
  bool has_infinity;  // e4m3 has none, and one NaN for each sign
  int ignored_bits;   // of storage, below the fraction: tf32 in float32
  int bytes;

  constexpr uint32_t sign() const { return 1u << (8 * bytes - 1); }
  constexpr int lowest() const { return 1 - bias; }  // exponent of the smallest normal number, and of subnormals
  constexpr uint32_t top() const { return (1u << exponent_bits) - 1; }
  constexpr int highest() const { return int(top()) - (has_infinity ? 1 : 0) - bias; }
  // Of words without their ignored bits: the largest number, and what lies above it.
  constexpr uint32_t largest() const {
    return ((top() << fraction_bits) | ((1u << fraction_bits) - 1)) - (has_infinity ? 1u << fraction_bits : 1u);
  }
  constexpr uint32_t above() const { return largest() + 1; }  // infinity, or e4m3's NaN
};

constexpr int kE4M3 = 0, kE5M2 = 1, kF16 = 2, kBF16 = 3, kTF32 = 4, kF32 = 5;
constexpr Format kFormats[] = {{4, 3, 7, false, 0, 1},  {5, 2, 15, true, 0, 1},   {5, 10, 15, true, 0, 2},
                               {8, 7, 127, true, 0, 2}, {8, 10, 127, true, 13, 4}, {8, 23, 127, true, 0, 4}};

enum Kind : uint8_t { kFinite, kInfinite, kNaN };

// value = (-1)^negative * magnitude * 2^(exponent - fraction_bits). Not normalised; NaN and infinities have magnitude 0.
struct Number {
  uint32_t magnitude;
  int32_t exponent;
  bool negative;
  Kind kind;
};

inline Number decode(uint32_t word, const Format& format) {
  const bool negative = word & format.sign();
  const uint32_t code = (word & (format.sign() - 1)) >> format.ignored_bits;
  const uint32_t field = code >> format.fraction_bits, fraction = code & ((1u << format.fraction_bits) - 1);
  const int32_t exponent = int32_t(field ? field : 1) - format.bias;
  if (code > format.largest())
    return {0, exponent, negative, format.has_infinity && fraction == 0 ? kInfinite : kNaN};
  return {fraction | (field ? 1u << format.fraction_bits : 0), exponent, negative, kFinite};
}

inline float bits_to_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline uint32_t float_to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

inline uint32_t load_word(const uint8_t* from, int bytes) {
  uint32_t word = 0;
  std::memcpy(&word, from, size_t(bytes));  // little-endian, as all that this is compiled for
  return word;
}

// Words of an operand at line * line_step + k * k_step bytes: lines are rows of a, columns of b.
struct Words {
  const uint8_t* at;
  int64_t line_step, k_step;
  int format;

  Words from(int64_t line, int64_t k) const { return {at + line * line_step + k * k_step, line_step, k_step, format}; }
};

}  // namespace mmaemu
