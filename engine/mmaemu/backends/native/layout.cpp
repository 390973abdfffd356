// SPDX-License-Identifier: Apache-2.0
// Operands as the kernels read them: rows of b side by side, and which rows and columns hold NaN or Inf.

#include <algorithm>
#include <cstdint>
#include <cstring>

extern "C" {

// target[column][row] = source[row][column], by way of a block of its own: lines of a matrix whose width is a power of
// two would push each other out of the cache.
void mmaemu_transpose(const uint8_t* source, int64_t stride, int64_t rows, int64_t columns, uint8_t* target) {
  constexpr int64_t kBlock = 64;
  for (int64_t top = 0; top < rows; top += kBlock)
    for (int64_t left = 0; left < columns; left += kBlock) {
      const int64_t bottom = std::min(rows, top + kBlock), right = std::min(columns, left + kBlock);
      uint8_t turned[kBlock][kBlock];
      for (int64_t i = top; i < bottom; ++i)
        for (int64_t j = left; j < right; ++j) turned[j - left][i - top] = source[i * stride + j];
      for (int64_t j = left; j < right; ++j)
        std::memcpy(target + j * rows + top, turned[j - left], size_t(bottom - top));
    }
}

// Marks with 1 the rows and the columns that hold a word whose lower seven bits are `lowest` or more.
void mmaemu_not_finite(const uint8_t* words, int64_t stride, int64_t rows, int64_t columns, int lowest,
                       uint8_t* row_marks, uint8_t* column_marks) {
  for (int64_t i = 0; i < rows; ++i) {
    const uint8_t* row = words + i * stride;
    uint8_t any = 0;
    for (int64_t j = 0; j < columns; ++j) {
      const uint8_t found = uint8_t((row[j] & 0x7F) >= lowest);
      any |= found;
    }
    row_marks[i] = any;
    if (any)
      for (int64_t j = 0; j < columns; ++j) column_marks[j] |= uint8_t((row[j] & 0x7F) >= lowest);
  }
}

}  // extern "C"
