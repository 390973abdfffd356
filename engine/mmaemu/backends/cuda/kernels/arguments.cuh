// SPDX-License-Identifier: Apache-2.0
// What a kernel is given. arguments.py has the same structures, field by field, and a test compares their layouts.

#pragma once

#include "platform.cuh"

namespace mmaemu {

// Words of an operand at line * line_step + k * k_step bytes: lines are rows of a, columns of b.
struct Operand {
  const u8* at;
  i64 line_step, k_step;
  i32 format;
};

// The fields of StepRule, as numbers.
struct Rule {
  i32 instruction_k, group, fraction_bits, result_fraction_bits, min_exponent;
  i32 nearest;  // result_rounding: 0 RZ, 1 RNE
  i32 after;    // accumulator_joins
  i32 zero_products_align, zero_accumulator_aligns;
  i32 saturates;  // overflow
  i32 underflow_keeps_sign;
  u32 nan;
  const i32* order;  // [instruction_k]: the k of an instruction in the order in which groups take them
};

// What an output's words are beyond its format: where too large numbers go, and the one NaN.
struct Output {
  i32 format, saturates;
  u32 nan;
};

// float32 numbers at line * line_step + block * block_step; steps count numbers, and are 0 along a size of 1.
struct Factor {
  const float* at;
  i64 line_step, block_step;
};

enum Order { kRaw = -2, kUnscaled = -1, kCombined, kAThenB, kBThenA, kAlreadyScaled };
enum Scheme { kComputeType, kOutputType, kInPlace };
enum BiasMode { kNoBias, kSeparate, kFused };

// A rectangle of a matrix product: out[rows][columns].
struct Product {
  Operand a, b;
  i64 rows, columns;
  Rule rule;
  const i64* chunks;  // [all chunks][start, stop] of K, split by split
  const i32* splits;  // [split_count]: how many chunks each has
  i32 split_count, scheme;
  Factor scale_a, scale_b;
  i32 chunk_order;    // kUnscaled: chunks are added; else each joins with the scales of its block of K
  i32 partial_order;  // kUnscaled, or the scales of each split's sum
  i32 order;          // of the epilogue; kRaw: float32 accumulators are what is wanted
  i32 bias_mode;
  Factor bias;                // of columns
  const float* scale_result;  // null where there is none
  Output output;
  u8* out;
  i64 out_step;  // between rows, in words
  // Where they are given, only outputs of marked rows and marked columns are wanted.
  const u8 *row_marks, *column_marks;
};

// One instruction, or a chain of them, for each of `count` rows of a and b: d[i] = a[i] . b[i] + c[i].
struct Dot {
  Operand a, b;
  i64 count, length;
  Rule rule;
  const u8* c;
  u8* d;
  i32 accumulator;  // format of c and d
};

// Marks lines of `length` words whose lower bits reach `lowest`: fp8's NaN and infinities.
struct Lines {
  Operand words;
  i64 count, length;
  u8* marks;
  i32 lowest;
};

}  // namespace mmaemu
