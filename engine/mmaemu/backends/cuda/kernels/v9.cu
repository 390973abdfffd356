// SPDX-License-Identifier: Apache-2.0
// v9: the FMA unit does the cutting.
//
// R = 1.5 * 2^(emax + 10) has the grid of a step, 2^(emax - 13), as its last bit, so R = fma(a, b, R) toward zero adds a
// product rounded down to the grid, one instruction a product. The hardware rounds negative products up, so each negative
// product that does not lie on the grid makes R one unit too small; they are counted and added at the end. No sum leaves
// the binade of R: |sum| <= 32 * 4 * 2^emax + 2 * 2^emax < 2^(emax + 9).
//
// The common exponent: two k in a word, one instruction for both (viaddmax) where the device has it.
// The count: four k in a word. A byte of `last` is 47 less the exponent of the operand's lowest set bit, 32 to 63, or 0
// for zero, so that the sum of two and of 20 + emax (held within 0 and 64) reaches 128 just where the product has bits
// below the grid; no byte carries into its neighbour, and no zero ever gets there.

#include "tile.cuh"

namespace mmaemu {

struct FusedTowardZero {
  struct alignas(16) Planes {
    float value[2][kDepth][kTile];
    u32 exponent[2][kDepth / 2][kTile];  // two k: 64 more than the exponent, or 0 for zero
    u32 last[2][kDepth / 4][kTile];      // four k
    u32 sign[2][kDepth / 4][kTile];      // four k: 0x80 where negative
  };

  static MMAEMU_FUNCTION void store(Planes& planes, Side side, i32 line, i32 k, u64 words, const Format& format) {
    const float power = __uint_as_float(u32(127 - format.bias + 127) << 23);
    MMAEMU_UNROLL for (i32 half = 0; half < 2; ++half) {
      u32 last = 0, exponents[2] = {0, 0};
      const u32 four = u32(words >> (32 * half));
      MMAEMU_UNROLL for (i32 i = 0; i < 4; ++i) {
        const Fp8 x = fields(four >> (8 * i) & 0xFF, format);
        // Exact, subnormals included: the code's fields lie where float32 has them.
        const float value = __fmul_rn(__uint_as_float(x.code << (23 - format.fraction_bits)), power);
        planes.value[side][k + 4 * half + i][line] = x.negative ? -value : value;
        if (x.magnitude == 0) continue;
        exponents[i / 2] |= u32(x.exponent + 64) << (16 * (i % 2));
        last |= u32(47 - (x.exponent - format.fraction_bits + __ffs(i32(x.magnitude)) - 1)) << (8 * i);
      }
      planes.exponent[side][k / 2 + 2 * half][line] = exponents[0];
      planes.exponent[side][k / 2 + 2 * half + 1][line] = exponents[1];
      planes.last[side][k / 4 + half][line] = last;
      planes.sign[side][k / 4 + half][line] = four & 0x80808080u;
    }
  }

  static MMAEMU_FUNCTION void four(const u32* from, u32 (&to)[kMine]) {
    const uint4 loaded = *reinterpret_cast<const uint4*>(from);
    to[0] = loaded.x, to[1] = loaded.y, to[2] = loaded.z, to[3] = loaded.w;
  }

  static MMAEMU_FUNCTION void four(const float* from, float (&to)[kMine]) {
    const float4 loaded = *reinterpret_cast<const float4*>(from);
    to[0] = loaded.x, to[1] = loaded.y, to[2] = loaded.z, to[3] = loaded.w;
  }

  template <i32 kGroup>
  static MMAEMU_FUNCTION void add(const Planes& planes, i32 row, i32 column, float (&acc)[kMine][kMine]) {
    for (i32 first = 0; first < kDepth; first += kGroup) {
      u32 common[kMine][kMine], count[kMine][kMine];
      MMAEMU_UNROLL for (i32 r = 0; r < kMine; ++r)
        MMAEMU_UNROLL for (i32 s = 0; s < kMine; ++s) common[r][s] = count[r][s] = 0;
      MMAEMU_UNROLL_BY_4 for (i32 k = first / 2; k < (first + kGroup) / 2; ++k) {
        u32 x[kMine], y[kMine];
        four(&planes.exponent[kA][k][row], x);
        four(&planes.exponent[kB][k][column], y);
        MMAEMU_UNROLL for (i32 r = 0; r < kMine; ++r)
          MMAEMU_UNROLL for (i32 s = 0; s < kMine; ++s) common[r][s] = __viaddmax_u16x2(x[r], y[s], common[r][s]);
      }
      // From here on: what the bytes of `last` are compared with, four times over.
      MMAEMU_UNROLL for (i32 r = 0; r < kMine; ++r)
        MMAEMU_UNROLL for (i32 s = 0; s < kMine; ++s) {
          const i32 product = i32(larger(common[r][s] & 0xFFFF, common[r][s] >> 16)) - 128;
          const i32 emax = larger(product, exponent_of(acc[r][s]));
          const u32 anchor = u32(emax + 10 + 127) << 23 | 0x400000;
          // The accumulator is cut toward zero by the sum of its magnitude and the anchor.
          const float large = __uint_as_float(anchor | (__float_as_uint(acc[r][s]) & 0x80000000u));
          acc[r][s] = __fadd_rz(__uint_as_float(anchor), __fsub_rz(__fadd_rz(acc[r][s], large), large));
          common[r][s] = u32(smaller(larger(emax + 20, 0), 64)) * 0x01010101u;
        }
      MMAEMU_UNROLL_BY_4 for (i32 k = first / 4; k < (first + kGroup) / 4; ++k) {
        u32 x[kMine], y[kMine], sign_x[kMine], sign_y[kMine];
        four(&planes.last[kA][k][row], x);
        four(&planes.last[kB][k][column], y);
        four(&planes.sign[kA][k][row], sign_x);
        four(&planes.sign[kB][k][column], sign_y);
        MMAEMU_UNROLL for (i32 r = 0; r < kMine; ++r)
          MMAEMU_UNROLL for (i32 s = 0; s < kMine; ++s)
            count[r][s] = __dp4a((x[r] + y[s] + common[r][s]) & (sign_x[r] ^ sign_y[s]), 0x01010101u, count[r][s]);
      }
      MMAEMU_UNROLL_BY_4 for (i32 k = first; k < first + kGroup; ++k) {
        float x[kMine], y[kMine];
        four(&planes.value[kA][k][row], x);
        four(&planes.value[kB][k][column], y);
        MMAEMU_UNROLL for (i32 r = 0; r < kMine; ++r)
          MMAEMU_UNROLL for (i32 s = 0; s < kMine; ++s) acc[r][s] = __fmaf_rz(x[r], y[s], acc[r][s]);
      }
      MMAEMU_UNROLL for (i32 r = 0; r < kMine; ++r)
        MMAEMU_UNROLL for (i32 s = 0; s < kMine; ++s) {
          // R never leaves its binade, so its exponent still is the anchor's.
          const u32 bits = __float_as_uint(acc[r][s]);
          const float anchor = __uint_as_float((bits & 0x7F800000) | 0x400000);
          const float sum = __fsub_rz(__uint_as_float(bits + (count[r][s] >> 7)), anchor);
          acc[r][s] = __uint_as_float(__float_as_uint(sum) & kCut);
        }
    }
  }
};

}  // namespace mmaemu

MMAEMU_TILE_KERNELS(mmaemu_v9, mmaemu::FusedTowardZero)
