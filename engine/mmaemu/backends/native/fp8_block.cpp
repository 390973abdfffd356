// SPDX-License-Identifier: Apache-2.0
// fp8 words as the kernels of fp8.h read them, by tables of all 256.

#include "fp8.h"

#include <cmath>

namespace mmaemu {

namespace {

struct Code {
  float value;
  int8_t exponent;  // as the format states it, not normalised
  int8_t place[2];  // of a and of b
};

// A byte whose sum over both operands is below -33 for negative products alone, by the place of their lowest bit.
int8_t place(int last, bool negative, bool second) {
  return int8_t(uint8_t(last - 32) ^ ((second ? !negative : negative) ? 0x80 : 0));
}

Code code_of(int format, int word) {
  const Number number = decode(uint32_t(word), kFormats[format]);
  if (number.magnitude == 0) return {0.0f, kZero, {16, 16}};
  const int scale = number.exponent - kFormats[format].fraction_bits;
  int trailing = 0;
  while (!(number.magnitude >> trailing & 1)) ++trailing;
  const float magnitude = std::ldexp(float(number.magnitude), scale);
  return {number.negative ? -magnitude : magnitude,
          int8_t(number.exponent),
          {place(scale + trailing, number.negative, false), place(scale + trailing, number.negative, true)}};
}

struct Codes {
  Code code[2][256];
  Codes() {
    for (int format = 0; format < 2; ++format)
      for (int word = 0; word < 256; ++word) code[format][word] = code_of(format, word);
  }
};

const Code* codes(int format) {
  static const Codes made;
  return made.code[format];
}

}  // namespace

Block::Block(const Kernel& kernel, int64_t wanted)
    : depth(0), rows(int((wanted + kernel.rows - 1) / kernel.rows) * kernel.rows), real_rows(int(wanted)) {
  a.resize(size_t(rows) * kDepth * 3);
}

void load_a(Block& block, const Kernel& kernel, const uint8_t* a, int64_t lda, int format, int depth) {
  const Code* table = codes(format);
  const int together = kernel.rows;
  block.depth = depth;
  for (int row = 0; row < block.rows; ++row) {
    uint32_t* target = &block.a[size_t(row / together) * kDepth * 3 * together + row % together];
    for (int k = 0; k < depth; ++k, target += 3 * together) {
      const Code& code = table[row < block.real_rows ? a[row * lda + k] : 0];
      target[0] = float_to_bits(code.value);
      target[together] = 0x01010101u * uint8_t(code.exponent);
      target[2 * together] = 0x01010101u * uint8_t(code.place[0]);
    }
  }
}

void load_b(Block& block, const Kernel& kernel, const uint8_t* b, int64_t ldb, int format, int width) {
  const int columns = kernel.columns;
  if (width == columns && kernel.load_b != nullptr) return kernel.load_b(block, b, ldb, format);
  const Code* table = codes(format);
  for (int k = 0; k < block.depth; ++k)
    for (int j = 0; j < columns; ++j) {
      const Code& code = table[j < width ? b[k * ldb + j] : 0];
      block.b[k * columns + j] = code.value;
      block.b_exponent[k * columns + kernel.order[j]] = code.exponent;
      block.b_place[k * columns + kernel.order[j]] = code.place[1];
    }
}

}  // namespace mmaemu
