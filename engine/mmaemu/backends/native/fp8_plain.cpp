// SPDX-License-Identifier: Apache-2.0
// fp8 products in integers, for any processor: the compiler makes vectors of the loops over columns.

#include "fp8.h"

namespace mmaemu {

namespace {

constexpr int kColumns = 32;

void add_group(const Block& block, const uint32_t* a, int first, int count, float* acc) {
  int emax[kColumns];
  int32_t sum[kColumns];
  float scale[kColumns];
  for (int j = 0; j < kColumns; ++j) {
    const uint32_t field = float_to_bits(acc[j]) >> 23 & 0xFF;
    emax[j] = field ? int(field) - 127 : 2 * kZero;
  }
  for (int k = first; k < first + count; ++k) {
    const int own = int8_t(a[3 * k + 1] & 0xFF);
    const int8_t* other = &block.b_exponent[k * kColumns];
    for (int j = 0; j < kColumns; ++j) {
      const int exponent = own + other[j];
      emax[j] = exponent > emax[j] ? exponent : emax[j];
    }
  }
  for (int j = 0; j < kColumns; ++j) {
    scale[j] = bits_to_float(uint32_t(13 - emax[j] + 127) << 23);
    sum[j] = int32_t(acc[j] * scale[j]);
  }
  for (int k = first; k < first + count; ++k) {
    const float own = bits_to_float(a[3 * k]);
    const float* other = &block.b[k * kColumns];
    for (int j = 0; j < kColumns; ++j) sum[j] += int32_t(own * other[j] * scale[j]);
  }
  for (int j = 0; j < kColumns; ++j) {
    const float grid = bits_to_float(uint32_t(emax[j] - 13 + 127) << 23);
    acc[j] = sum[j] == 0 ? 0.0f : bits_to_float(float_to_bits(float(sum[j]) * grid) & kCut);
  }
}

void add(const Block& block, int group, float* acc) {
  for (int row = 0; row < block.rows; ++row)
    for (int first = 0; first < block.depth; first += group) {
      const int count = block.depth - first < group ? block.depth - first : group;
      add_group(block, &block.a[size_t(row) * kDepth * 3], first, count, acc + row * kColumns);
    }
}

bool runs_here() { return true; }

constexpr uint8_t kOrder[kColumns] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                      16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

}  // namespace

const Kernel kPlain = {1, kColumns, kOrder, runs_here, nullptr, add};

}  // namespace mmaemu
