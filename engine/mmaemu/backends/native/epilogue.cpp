// SPDX-License-Identifier: Apache-2.0
// Accumulators to outputs: scales, bias, scale of the result, conversion; float32 to nearest even at every step.

#include <cstdint>

#include "convert.h"
#include "mode.h"

namespace mmaemu {

namespace {

enum Order { kCombined, kAThenB, kBThenA, kAlreadyScaled };
enum Bias { kNoBias, kSeparate, kFused };

struct Call {
  const float* acc;
  int64_t stride, rows, columns;
  int order;
  const float* scale_a;
  int64_t step_a;
  const float* scale_b;
  int64_t step_b;
  int bias_mode;
  const float* bias;
  const float* scale_result;
  Output output;
  uint8_t* out;
  int64_t out_stride;
};

#define MMAEMU_INLINE inline __attribute__((always_inline))

constexpr int64_t kAtOnce = 512;  // outputs whose numbers stay in the first-level cache

// x = the accumulators scaled, with the bias. Every loop does one thing, so that it becomes vectors.
MMAEMU_INLINE void scale(const Call& c, int64_t i, int64_t first, int64_t count, float* x) {
  const float* acc = c.acc + i * c.stride + first;
  const float* bias = c.bias == nullptr ? nullptr : c.bias + first;
  for (int64_t j = 0; j < count; ++j) x[j] = acc[j];
  float addend[kAtOnce];
  for (int64_t j = 0; j < count; ++j) addend[j] = bias == nullptr ? 0.0f : bias[j];
  if (c.order != kAlreadyScaled) {
    const float sa = c.scale_a[i * c.step_a];
    float sb[kAtOnce], last[kAtOnce];
    for (int64_t j = 0; j < count; ++j) sb[j] = c.scale_b[(first + j) * c.step_b];
    if (c.order == kCombined)
      for (int64_t j = 0; j < count; ++j) last[j] = sa * sb[j];
    if (c.order == kAThenB)
      for (int64_t j = 0; j < count; ++j) x[j] = x[j] * sa, last[j] = sb[j];
    if (c.order == kBThenA)
      for (int64_t j = 0; j < count; ++j) x[j] = x[j] * sb[j], last[j] = sa;
    if (c.bias_mode == kFused) {
      for (int64_t j = 0; j < count; ++j) x[j] = __builtin_fmaf(x[j], last[j], addend[j]);
      return;
    }
    for (int64_t j = 0; j < count; ++j) x[j] = x[j] * last[j];
  }
  if (c.bias_mode != kNoBias)
    for (int64_t j = 0; j < count; ++j) x[j] = x[j] + addend[j];
}

template <int kFormat, class Word>
MMAEMU_INLINE void run(const Call& c) {
  constexpr Format to = kFormats[kFormat];
  for (int64_t i = 0; i < c.rows; ++i)
    for (int64_t first = 0; first < c.columns; first += kAtOnce) {
      const int64_t count = c.columns - first < kAtOnce ? c.columns - first : kAtOnce;
      Word* out = reinterpret_cast<Word*>(c.out) + i * c.out_stride + first;
      float x[kAtOnce];
      scale(c, i, first, count, x);
      if (c.scale_result != nullptr)
        for (int64_t j = 0; j < count; ++j) x[j] = x[j] * *c.scale_result;
      for (int64_t j = 0; j < count; ++j) out[j] = Word(narrow(x[j], to, c.output.saturates, c.output.nan));
    }
}

MMAEMU_INLINE void run_any(const Call& call) {
  switch (call.output.format) {
    case kE4M3: return run<kE4M3, uint8_t>(call);
    case kE5M2: return run<kE5M2, uint8_t>(call);
    case kF16: return run<kF16, uint16_t>(call);
    case kBF16: return run<kBF16, uint16_t>(call);
    default: return run<kF32, uint32_t>(call);
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void run_avx2(const Call& call) { run_any(call); }
bool has_fma() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#else
void run_avx2(const Call&) {}
bool has_fma() { return false; }
#endif

}  // namespace

}  // namespace mmaemu

// scale_a: one a row or, with step_a 0, one; scale_b likewise for columns; bias: one a column.
extern "C" void mmaemu_epilogue(const float* acc, int64_t stride, int64_t rows, int64_t columns, int order,
                                const float* scale_a, int64_t step_a, const float* scale_b, int64_t step_b,
                                int bias_mode, const float* bias, const float* scale_result,
                                const mmaemu::Output* output, uint8_t* out, int64_t out_stride) {
  using namespace mmaemu;
  const Call call = {acc,       stride, rows,         columns, order, scale_a,   step_a, scale_b, step_b,
                     bias_mode, bias,   scale_result, *output, out,   out_stride};
  Mode mode;
  if (has_fma()) return run_avx2(call);
  run_any(call);
}
