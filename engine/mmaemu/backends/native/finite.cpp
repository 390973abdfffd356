// SPDX-License-Identifier: Apache-2.0
// Which lines of fp8 operands, rows of a or columns of b, hold NaN or Inf.

#include <algorithm>
#include <cstdint>

namespace {

bool any(const uint8_t* words, int64_t line_step, int64_t k_step, int64_t lines, int64_t length, int lowest) {
  // Along the words as they lie in memory, which the compiler makes vectors of.
  if (line_step == 1 && k_step != 1) return any(words, k_step, 1, length, lines, lowest);
  uint8_t largest = 0;
  for (int64_t i = 0; i < lines && largest < lowest; ++i)
    for (int64_t k = 0; k < length; ++k) largest = std::max(largest, uint8_t(words[i * line_step + k * k_step] & 0x7F));
  return largest >= lowest;
}

}  // namespace

// Whether any word has lower seven bits of `lowest` or more; where marks are given, they are 1 for the lines that hold
// one. Words are at line * line_step + k * k_step.
extern "C" int mmaemu_not_finite(const uint8_t* words, int64_t line_step, int64_t k_step, int64_t lines, int64_t length,
                                 int lowest, uint8_t* marks) {
  if (marks == nullptr) return any(words, line_step, k_step, lines, length, lowest);
  for (int64_t i = 0; i < lines; ++i) marks[i] = any(words + i * line_step, 0, k_step, 1, length, lowest);
  return std::count(marks, marks + lines, uint8_t(1)) > 0;
}
