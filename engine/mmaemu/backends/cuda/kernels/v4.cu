// SPDX-License-Identifier: Apache-2.0
// v4: tiles in shared memory, integers all the way. Each product is shifted to the grid of its group and added.

#include "tile.cuh"

namespace mmaemu {

struct Integers {
  static constexpr i32 kZero = -50;  // exponent of a zero operand: with any partner below every real product

  // sign << 31 | (exponent & 0xFF) << 8 | magnitude
  struct Planes {
    u32 word[2][kDepth][kTile];
  };

  static MMAEMU_FUNCTION void store(Planes& planes, Side side, i32 line, i32 k, u64 words, const Format& format) {
    MMAEMU_UNROLL for (i32 i = 0; i < 8; ++i) {
      const Fp8 x = fields(u32(words >> (8 * i)) & 0xFF, format);
      const i32 exponent = x.magnitude ? x.exponent : kZero;
      // Magnitudes on one scale: four bits of significand whatever the format.
      const u32 magnitude = x.magnitude << (3 - format.fraction_bits);
      planes.word[side][k + i][line] = (x.negative ? 0x80000000u : 0) | (u32(exponent) & 0xFF) << 8 | magnitude;
    }
  }

  static MMAEMU_FUNCTION i32 exponent(u32 word) { return i32(i8(word >> 8)); }

  template <i32 kGroup>
  static MMAEMU_FUNCTION void add(const Planes& planes, i32 row, i32 column, float (&acc)[kMine][kMine]) {
    for (i32 first = 0; first < kDepth; first += kGroup) {
      i32 common[kMine][kMine], sum[kMine][kMine];
      MMAEMU_UNROLL for (i32 r = 0; r < kMine; ++r)
        MMAEMU_UNROLL for (i32 s = 0; s < kMine; ++s) common[r][s] = exponent_of(acc[r][s]);
      MMAEMU_UNROLL_BY_4 for (i32 k = first; k < first + kGroup; ++k)
        MMAEMU_UNROLL for (i32 r = 0; r < kMine; ++r)
          MMAEMU_UNROLL for (i32 s = 0; s < kMine; ++s)
            common[r][s] = larger(common[r][s], exponent(planes.word[kA][k][row + r]) + exponent(planes.word[kB][k][column + s]));
      MMAEMU_UNROLL for (i32 r = 0; r < kMine; ++r)
        MMAEMU_UNROLL for (i32 s = 0; s < kMine; ++s) {
          // The accumulator's 14 significant bits, cut to 13 below the common exponent.
          const u32 bits = __float_as_uint(acc[r][s]);
          const i32 kept = i32((bits & 0x7FFFFF) >> 10 | (bits >> 23 & 0xFF ? 1u << 13 : 0)) >> smaller(common[r][s] - exponent_of(acc[r][s]), 31);
          sum[r][s] = bits >> 31 ? -kept : kept;
        }
      MMAEMU_UNROLL_BY_4 for (i32 k = first; k < first + kGroup; ++k)
        MMAEMU_UNROLL for (i32 r = 0; r < kMine; ++r) {
          const u32 x = planes.word[kA][k][row + r];
          MMAEMU_UNROLL for (i32 s = 0; s < kMine; ++s) {
            const u32 y = planes.word[kB][k][column + s];
            // Products have 6 fraction bits; 7 more make the grid's 13.
            const i32 kept = i32((x & 0xFF) * (y & 0xFF) << 7) >> smaller(common[r][s] - exponent(x) - exponent(y), 31);
            sum[r][s] += (x ^ y) >> 31 ? -kept : kept;
          }
        }
      MMAEMU_UNROLL for (i32 r = 0; r < kMine; ++r)
        MMAEMU_UNROLL for (i32 s = 0; s < kMine; ++s) {
          const float grid = __uint_as_float(u32(common[r][s] - 13 + 127) << 23);
          const float exact = __fmul_rn(float(sum[r][s]), grid);  // of at most 22 bits
          acc[r][s] = sum[r][s] == 0 ? 0.0f : __uint_as_float(__float_as_uint(exact) & kCut);
        }
    }
  }
};

}  // namespace mmaemu

MMAEMU_TILE_KERNELS(mmaemu_v4, mmaemu::Integers)
