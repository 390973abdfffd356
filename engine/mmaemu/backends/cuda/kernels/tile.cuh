// SPDX-License-Identifier: Apache-2.0
// Tiles of 64 x 64 outputs for the kernels that know only fp8 by the rule of Ada and Hopper: a block of 256 threads loads
// 32 k of both operands into shared memory, decoded, and each thread adds their products to 4 x 4 accumulators.
//
// NaN and infinities count as zeros here; v1 computes rows and columns that hold them afterwards.

#pragma once

#include "epilogue.cuh"

namespace mmaemu {

constexpr i32 kTile = 64;    // rows and columns of a block's outputs
constexpr i32 kDepth = 32;   // k in shared memory at once
constexpr i32 kThreads = 256;
constexpr i32 kMine = 4;     // rows and columns of a thread's outputs
constexpr u32 kCut = ~0x3FFu;  // float32 to 13 fraction bits

enum Side { kA, kB };

// What a plan asks for: one chain over K (fast accumulation); chunks that join (slow); splits of chunks. The less, the
// fewer registers.
enum Sums { kOneChain, kChunks, kSplits };

// An fp8 word, its fields cut out.
struct Fp8 {
  bool negative;
  u32 code;       // without its sign; 0 for NaN and infinities
  u32 magnitude;  // code's significand
  i32 exponent;
};

MMAEMU_FUNCTION Fp8 fields(u32 word, const Format& format) {
  u32 code = word & 0x7F;
  if (code > format.largest()) code = 0;
  const u32 field = code >> format.fraction_bits, fraction = code & ((1u << format.fraction_bits) - 1);
  return {(word & 0x80) != 0, code, fraction | (field ? 1u << format.fraction_bits : 0), i32(field ? field : 1) - format.bias};
}

// Eight words of a line, from k on; lines from `lines` and k from `stop` on are zeros.
MMAEMU_FUNCTION u64 eight_words(const Operand& from, i64 line, i64 lines, i64 k, i64 stop) {
  if (line >= lines || k >= stop) return 0;
  const u8* at = from.at + line * from.line_step + k * from.k_step;
  if (from.k_step == 1 && k + 8 <= stop && (reinterpret_cast<u64>(at) & 7) == 0) return *reinterpret_cast<const u64*>(at);
  u64 words = 0;
  for (i32 i = 0; i < 8 && k + i < stop; ++i) words |= u64(at[i * from.k_step]) << (8 * i);
  return words;
}

// `visit` for those of a thread's outputs that lie within the product.
template <class Visit>
MMAEMU_FUNCTION void for_mine(const Product& p, i64 top, i64 left, const Visit& visit) {
  MMAEMU_UNROLL for (i32 r = 0; r < kMine; ++r)
    MMAEMU_UNROLL for (i32 s = 0; s < kMine; ++s)
      if (top + r < p.rows && left + s < p.columns) visit(r, s, top + r, left + s);
}

// Math has Planes, the decoded operands; store(planes, side, line, k, words, format) of eight words; and
// add<kGroup>(planes, row, column, acc), which adds the planes' groups to a thread's accumulators.
template <class Math, i32 kGroup, i32 kSums>
MMAEMU_FUNCTION void multiply_tile(const Product& p, typename Math::Planes& planes) {
  const i64 top = i64(blockIdx.y) * kTile, left = i64(blockIdx.x) * kTile;
  const i32 row = i32(threadIdx.x) / 16 * kMine, column = i32(threadIdx.x) % 16 * kMine;
  const i32 line = i32(threadIdx.x) % kTile, part = i32(threadIdx.x) / kTile * 8;  // what it loads
  const Format format_a = format_of(p.a.format), format_b = format_of(p.b.format);
  float acc[kMine][kMine], total[kMine][kMine] = {}, reduced[kMine][kMine] = {};
  const i64* chunk = p.chunks;
  const i32 splits = kSums == kSplits ? p.split_count : 1;
  for (i32 split = 0; split < splits; ++split) {
    const i32 chunks = kSums == kOneChain ? 1 : p.splits[split];
    for (i32 c = 0; c < chunks; ++c, chunk += 2) {
      MMAEMU_UNROLL for (i32 r = 0; r < kMine; ++r)
        MMAEMU_UNROLL for (i32 s = 0; s < kMine; ++s) acc[r][s] = 0.0f;
      const i64 stop = chunk[1];
      for (i64 k = chunk[0]; k < stop; k += kDepth) {
        __syncthreads();
        Math::store(planes, kA, line, part, eight_words(p.a, top + line, p.rows, k + part, stop), format_a);
        Math::store(planes, kB, line, part, eight_words(p.b, left + line, p.columns, k + part, stop), format_b);
        __syncthreads();
        Math::template add<kGroup>(planes, row, column, acc);
      }
      if constexpr (kSums != kOneChain)
        for_mine(p, top + row, left + column, [&](i32 r, i32 s, i64 i, i64 j) {
          total[r][s] = join(p, i, j, chunk[0], c == 0, total[r][s], acc[r][s]);
        });
    }
    if constexpr (kSums == kSplits)
      for_mine(p, top + row, left + column, [&](i32 r, i32 s, i64 i, i64 j) {
        reduced[r][s] = reduce(p, i, j, split == 0, reduced[r][s], total[r][s]);
      });
  }
  for_mine(p, top + row, left + column, [&](i32 r, i32 s, i64 i, i64 j) {
    finish(p, i, j, kSums == kOneChain ? acc[r][s] : kSums == kChunks ? total[r][s] : reduced[r][s]);
  });
}

MMAEMU_FUNCTION i32 exponent_of(float acc) { return i32(__float_as_uint(acc) >> 23 & 0xFF) - 127; }

}  // namespace mmaemu

// The six kernels of one Math.
#define MMAEMU_TILE_KERNEL(name, Math, group, sums)               \
  MMAEMU_KERNEL(mmaemu::kThreads) name(const mmaemu::Product p) { \
    MMAEMU_SHARED(Math::Planes, planes);                          \
    mmaemu::multiply_tile<Math, group, sums>(p, planes);          \
  }
#define MMAEMU_TILE_KERNELS(name, Math)                              \
  MMAEMU_TILE_KERNEL(name##_g16_fast, Math, 16, mmaemu::kOneChain)   \
  MMAEMU_TILE_KERNEL(name##_g16_slow, Math, 16, mmaemu::kChunks)     \
  MMAEMU_TILE_KERNEL(name##_g16_split, Math, 16, mmaemu::kSplits)    \
  MMAEMU_TILE_KERNEL(name##_g32_fast, Math, 32, mmaemu::kOneChain)   \
  MMAEMU_TILE_KERNEL(name##_g32_slow, Math, 32, mmaemu::kChunks)     \
  MMAEMU_TILE_KERNEL(name##_g32_split, Math, 32, mmaemu::kSplits)
