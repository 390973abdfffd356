// SPDX-License-Identifier: Apache-2.0
// fp8 words as the kernels of fp8.h read them, by tables of all 256.

#include "fp8.h"

#include <cmath>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace mmaemu {

namespace {

// A byte whose sum over both operands is below -33 for negative products alone, by the place of their lowest bit.
int8_t place(int last, bool negative, bool second) {
  return int8_t(uint8_t(last - 32) ^ ((second ? !negative : negative) ? 0x80 : 0));
}

struct Code {
  uint32_t value, exponent, place;  // as `Block::a` has them
  int8_t place_b;
};

Code code_of(int format, int word) {
  const Number number = decode(uint32_t(word), kFormats[format]);
  constexpr uint32_t four = 0x01010101;
  if (number.magnitude == 0) return {0, four * uint8_t(kZero), four * 16, 16};
  const int scale = number.exponent - kFormats[format].fraction_bits;
  int trailing = 0;
  while (!(number.magnitude >> trailing & 1)) ++trailing;
  const float magnitude = std::ldexp(float(number.magnitude), scale);
  return {float_to_bits(number.negative ? -magnitude : magnitude), four * uint8_t(number.exponent),
          four * uint8_t(place(scale + trailing, number.negative, false)),
          place(scale + trailing, number.negative, true)};
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

// target[k][line] = words of `lines` lines; lines beyond are zeros.
void side_by_side(const Words& words, int lines, int all, int depth, uint8_t* target) {
  for (int k = 0; k < depth; ++k)
    for (int line = 0; line < all; ++line)
      target[k * all + line] = line < lines ? words.at[line * words.line_step + k * words.k_step] : 0;
}

#if defined(__x86_64__)

// 16 lines of 16 bytes each, turned: the instructions are those that every such processor has.
inline void turn_16(const uint8_t* from, int64_t step, uint8_t* to, int64_t to_step) {
  __m128i x[16], y[16];
  for (int i = 0; i < 16; ++i) x[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * step));
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 8; ++i) {
      y[2 * i] = _mm_unpacklo_epi8(x[i], x[i + 8]);
      y[2 * i + 1] = _mm_unpackhi_epi8(x[i], x[i + 8]);
    }
    for (int i = 0; i < 16; ++i) x[i] = y[i];
  }
  for (int i = 0; i < 16; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * to_step), x[i]);
}

// `side_by_side` of whole 16 by 16 blocks whose lines lie in memory as they are.
void turned(const Words& words, int lines, int depth, uint8_t* target) {
  for (int line = 0; line < lines; line += 16)
    for (int k = 0; k < depth; k += 16)
      turn_16(words.at + line * words.line_step + k, words.line_step, target + k * lines + line, lines);
}

#else

void turned(const Words& words, int lines, int depth, uint8_t* target) {
  side_by_side(words, lines, lines, depth, target);
}

#endif

}  // namespace

Block::Block(const Kernel& kernel, int64_t wanted)
    : depth(0), rows(int((wanted + kernel.rows - 1) / kernel.rows) * kernel.rows), real_rows(int(wanted)) {
  a.resize(size_t(rows) * kDepth * 3);
}

void load_a(Block& block, const Kernel& kernel, const Words& a, int depth) {
  const Code* table = codes(a.format);
  const int together = kernel.rows;
  block.depth = depth;
  for (int row = 0; row < block.rows; ++row) {
    uint32_t* target = &block.a[size_t(row / together) * kDepth * 3 * together + row % together];
    const bool real = row < block.real_rows;
    for (int k = 0; k < depth; ++k, target += 3 * together) {
      const Code& code = table[real ? a.at[row * a.line_step + k * a.k_step] : 0];
      target[0] = code.value;
      target[together] = code.exponent;
      target[2 * together] = code.place;
    }
  }
}

void load_b(Block& block, const Kernel& kernel, const Words& b, int width) {
  const int columns = kernel.columns, depth = block.depth;
  const uint8_t* words = b.at;
  int64_t step = b.k_step;
  uint8_t own[kDepth * kWidest];
  if (width < columns || b.line_step != 1) {
    if (width == columns && b.k_step == 1 && depth % 16 == 0)
      turned(b, columns, depth, own);
    else
      side_by_side(b, width, columns, depth, own);
    words = own;
    step = columns;
  }
  if (kernel.load_b != nullptr) return kernel.load_b(block, words, step, b.format);
  const Code* table = codes(b.format);
  for (int k = 0; k < depth; ++k)
    for (int j = 0; j < columns; ++j) {
      const Code& code = table[words[k * step + j]];
      block.b[k * columns + j] = bits_to_float(code.value);
      block.b_exponent[k * columns + kernel.order[j]] = int8_t(code.exponent & 0xFF);
      block.b_place[k * columns + kernel.order[j]] = code.place_b;
    }
}

}  // namespace mmaemu
