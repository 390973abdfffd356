// SPDX-License-Identifier: Apache-2.0
// What follows an accumulator, for one output: chunks join, splits are reduced, scales, bias, conversion; float32 to
// nearest even at every step, with no contraction but where a rule says fused.

#pragma once

#include "rounding.cuh"

namespace mmaemu {

MMAEMU_FUNCTION float factor(const Factor& from, i64 line, i64 block) {
  return from.at[line * from.line_step + block * from.block_step];
}

MMAEMU_FUNCTION float scaled(float x, float sa, float sb, i32 order) {
  if (order == kCombined) return __fmul_rn(x, __fmul_rn(sa, sb));
  if (order == kAThenB) return __fmul_rn(__fmul_rn(x, sa), sb);
  if (order == kBThenA) return __fmul_rn(__fmul_rn(x, sb), sa);
  return x;
}

// The sum of chunks with one more, which begins at k = start.
MMAEMU_FUNCTION float join(const Product& p, i64 i, i64 j, i64 start, bool first, float before, float chunk) {
  // The first chunk as it is: an addition would turn -0 into +0 and touch its NaN.
  if (p.chunk_order == kUnscaled) return first ? chunk : with_one_nan(__fadd_rn(before, chunk));
  const float sa = factor(p.scale_a, i, start / 128), sb = factor(p.scale_b, j, start / 128);
  const bool b_first = p.chunk_order == kBThenA;
  return with_one_nan(__fmaf_rn(__fmul_rn(chunk, b_first ? sb : sa), b_first ? sa : sb, first ? 0.0f : before));
}

// Split-K: the sum of ranges with one more, ranges in ascending order.
MMAEMU_FUNCTION float reduce(const Product& p, i64 i, i64 j, bool first, float before, float partial) {
  if (p.split_count == 1) return partial;
  const Format format = format_of(p.output.format);
  float x = partial;
  if (p.partial_order != kUnscaled) x = scaled(x, factor(p.scale_a, i, 0), factor(p.scale_b, j, 0), p.partial_order);
  if (p.scheme == kOutputType) x = widen(narrow(x, p.output), format);
  if (first) return with_one_nan(x);
  if (p.scheme == kInPlace) before = widen(narrow(before, p.output), format);
  return with_one_nan(__fadd_rn(before, x));
}

// The epilogue, and the word where it belongs.
MMAEMU_FUNCTION void finish(const Product& p, i64 i, i64 j, float acc) {
  const i64 place = i * p.out_step + j;
  if (p.order == kRaw) {
    reinterpret_cast<float*>(p.out)[place] = acc;
    return;
  }
  float x = acc;
  const float bias = p.bias.at == nullptr ? 0.0f : factor(p.bias, j, 0);
  bool added = p.bias_mode == kNoBias;
  if (p.order != kAlreadyScaled) {
    const float sa = factor(p.scale_a, i, 0), sb = factor(p.scale_b, j, 0);
    if (p.bias_mode == kFused) {
      if (p.order == kCombined) x = __fmaf_rn(x, __fmul_rn(sa, sb), bias);
      if (p.order == kAThenB) x = __fmaf_rn(__fmul_rn(x, sa), sb, bias);
      if (p.order == kBThenA) x = __fmaf_rn(__fmul_rn(x, sb), sa, bias);
      added = true;
    } else {
      x = scaled(x, sa, sb, p.order);
    }
  }
  if (!added) x = __fadd_rn(x, bias);
  if (p.scale_result != nullptr) x = __fmul_rn(x, *p.scale_result);
  const i32 bytes = format_of(p.output.format).bytes;
  store_word(p.out + place * bytes, bytes, narrow(x, p.output));
}

// Whether output (i, j) is one that the launch wants.
MMAEMU_FUNCTION bool wanted(const Product& p, i64 i, i64 j) {
  if (i >= p.rows || j >= p.columns) return false;
  return p.row_marks == nullptr || p.row_marks[i] || p.column_marks[j];
}

}  // namespace mmaemu
