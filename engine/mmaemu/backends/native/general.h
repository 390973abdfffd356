// SPDX-License-Identifier: Apache-2.0
// Sums of products by any rule of any instruction, any formats, NaN and infinities included: the reference's arithmetic
// in integers, several outputs side by side.

#pragma once

#include <cstdint>
#include <vector>

#include "formats.h"

namespace mmaemu {

constexpr int kLanes = 16;  // outputs side by side

// The fields of StepRule in Python, as numbers.
struct Rule {
  int32_t instruction_k, group, fraction_bits, result_fraction_bits, min_exponent;
  int32_t nearest;                // result_rounding: 0 RZ, 1 RNE
  int32_t after;                  // accumulator_joins
  int32_t zero_products_align, zero_accumulator_aligns;
  int32_t saturates;              // overflow
  int32_t underflow_keeps_sign;
  uint32_t nan;
  const int32_t* order;           // [instruction_k]: the k of an instruction in the order in which groups take them
};

// Operands of `lanes` outputs for all k of a chunk, [k][lanes] each, filled up with zeros to whole instructions. What
// lanes share is there once, [k].
struct Terms {
  int lanes;
  std::vector<uint32_t> magnitude;  // shifted so that a product of both operands is on the grid's scale
  std::vector<int32_t> exponent;    // kNone for a zero that does not align
  std::vector<int32_t> sign;        // 0 or -1
  std::vector<uint8_t> kind;
  std::vector<uint32_t> words;      // as they came
  bool special;                     // some kind is not finite

  // `count` lines of `from` to as many lanes; lanes beyond and k beyond are zeros.
  void read(const Words& from, int count, int all_lanes, int64_t length, const Rule& rule, int shift);
};

// Accumulators of kLanes outputs: finite words, and flags that no later step takes back.
struct Accumulators {
  uint32_t word[kLanes];
  uint8_t flags[kLanes];

  void read(const uint32_t* words, const Format& format);
  void write(uint32_t* words, const Format& format, uint32_t nan) const;
};

// How far products of these formats lie above the grid of the rule: the shift of `a`, and the one of all products.
struct Shifts {
  int up, down;
};
Shifts shifts(const Rule& rule, int format_a, int format_b);

// Chain all instructions of a and b over the accumulators, which are kF32 or kF16. `a` may be shared.
void chain(const Terms& a, const Terms& b, const Rule& rule, int down, int format, Accumulators& acc);

}  // namespace mmaemu
