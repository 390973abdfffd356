// SPDX-License-Identifier: Apache-2.0
// Blocks of decoded fp8 operands, and the kernels that add their products to accumulators.
//
// A step of a tensor core cuts every product and the accumulator, toward zero, to a grid 13 bits below the largest
// exponent, and adds them exactly. The kernels here do that for the rule that all fp8 instructions of Ada and Hopper
// share; general.h knows every rule.
//
// fp8_plain.cpp does it in integers: a product times 2^(13 - emax) is converted to an integer, which truncates.
//
// fp8_avx2.cpp and fp8_avx512.cpp let the FMA unit do the cutting. In round-toward-zero mode, R = 1.5 * 2^(emax + 10)
// has that grid as its last bit, so R = fma(a, b, R) adds a product rounded down to the grid. The hardware rounds
// negative products up, so each negative product that does not lie on the grid makes R one unit too small; those are
// counted in bytes, many outputs at once, and added at the end. The accumulator is cut by the sum of its magnitude and R,
// and starts R with its sign. No sum leaves the binade of R: in groups of up to 64, |sum| <= 64 * 4 * 2^emax + 2 * 2^emax
// < 2^(emax + 9).
//
// Compiled without flags for a processor; functions name the instructions they use and are chosen at run time.

#pragma once

#include <cstdint>
#include <vector>

#include "formats.h"

namespace mmaemu {

constexpr int kDepth = 64;     // k of a block: its planes stay in the first-level cache
constexpr int kWidest = 64;    // columns of the widest kernel's panel
constexpr int kZero = -50;     // exponent of a zero operand: with any partner below every real product
constexpr uint32_t kCut = ~0x3FFu;  // float32 to 13 fraction bits

struct Block;

struct Kernel {
  int rows, columns;  // of accumulators that its inner loop works on
  // Where column j's bytes lie in a row of b_exponent and b_place: vector instructions that narrow and widen shuffle.
  const uint8_t* order;
  bool (*runs_here)();
  // Decodes a whole panel whose columns lie side by side; null where `load_b` below is all there is.
  void (*load_b)(Block& block, const uint8_t* b, int64_t ldb, int format);
  // Adds groups of `group` products to block.rows accumulators of [rows][columns]; the last group may be shorter.
  void (*add)(const Block& block, int group, float* acc);
};

extern const Kernel kPlain, kAvx2, kAvx512;

// Rows of a and a panel of columns of b, for a few k.
struct Block {
  int depth;
  int rows, real_rows;      // rows are filled up to a multiple of the kernel's
  std::vector<uint32_t> a;  // [rows / R][kDepth][value, exponent, place][R]; bytes are repeated four times
  alignas(64) float b[kDepth * kWidest];  // [kDepth][columns]
  alignas(64) int8_t b_exponent[kDepth * kWidest], b_place[kDepth * kWidest];

  Block(const Kernel& kernel, int64_t rows);
};

// Infinities and NaN count as zeros: the caller computes rows and columns that hold them by general.h.
void load_a(Block& block, const Kernel& kernel, const Words& a, int depth);
void load_b(Block& block, const Kernel& kernel, const Words& b, int width);

}  // namespace mmaemu
