// SPDX-License-Identifier: Apache-2.0
// Which lines of fp8 operands, rows of a or columns of b, hold NaN or Inf.

#include <algorithm>
#include <cstdint>

// Marks with 1 the lines that hold a word whose lower seven bits are `lowest` or more; returns how many do. Words are at
// line * line_step + k * k_step.
extern "C" int64_t mmaemu_not_finite(const uint8_t* words, int64_t line_step, int64_t k_step, int64_t lines,
                                     int64_t length, int lowest, uint8_t* marks) {
  std::fill_n(marks, lines, uint8_t(0));
  if (line_step == 1)  // along the words as they lie in memory, which the compiler makes vectors of
    for (int64_t k = 0; k < length; ++k)
      for (int64_t i = 0; i < lines; ++i) marks[i] = std::max(marks[i], uint8_t(words[k * k_step + i] & 0x7F));
  else if (k_step == 1)
    for (int64_t i = 0; i < lines; ++i) {
      uint8_t largest = 0;
      for (int64_t k = 0; k < length; ++k) largest = std::max(largest, uint8_t(words[i * line_step + k] & 0x7F));
      marks[i] = largest;
    }
  else
    for (int64_t i = 0; i < lines; ++i)
      for (int64_t k = 0; k < length; ++k)
        marks[i] = std::max(marks[i], uint8_t(words[i * line_step + k * k_step] & 0x7F));
  int64_t found = 0;
  for (int64_t i = 0; i < lines; ++i) {
    marks[i] = marks[i] >= lowest;
    found += marks[i];
  }
  return found;
}
