// SPDX-License-Identifier: Apache-2.0
// Accumulators to outputs: scales, bias, scale of the result, conversion; float32 to nearest even at every step.

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

enum Order { kCombined, kAThenB, kBThenA, kAlreadyScaled };
enum Bias { kNone, kSeparate, kFused };

struct Format {
  int fraction_bits, bias, bytes;
  uint32_t sign, largest, infinity;  // infinity: what too large becomes where it does not saturate
};

// float32, bfloat16, float16, e4m3, e5m2. e4m3 has no infinity: the conversion gives NaN of the same sign.
constexpr Format kFormats[] = {{23, 127, 4, 0x80000000, 0x7F7FFFFF, 0x7F800000},
                               {7, 127, 2, 0x8000, 0x7F7F, 0x7F80},
                               {10, 15, 2, 0x8000, 0x7BFF, 0x7C00},
                               {3, 7, 1, 0x80, 0x7E, 0x7F},
                               {2, 15, 1, 0x80, 0x7B, 0x7C}};

inline __attribute__((always_inline)) uint32_t convert(float value, const Format& to, bool saturate, uint32_t nan) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint32_t magnitude = bits & 0x7FFFFFFF, sign = bits >> 31 ? to.sign : 0;
  if (magnitude > 0x7F800000) return nan;
  const uint32_t too_large = sign | (saturate ? to.largest : to.infinity);
  if (magnitude == 0x7F800000) return too_large;
  if (to.bytes == 4) return bits;
  const int field = int(magnitude >> 23), exponent = (field ? field : 1) - 127, lowest = 1 - to.bias;
  const uint32_t significand = (magnitude & 0x7FFFFF) | (field ? 0x800000 : 0);
  int shift = 23 - to.fraction_bits + (exponent < lowest ? lowest - exponent : 0);
  if (shift > 31) shift = 31;
  const uint32_t rest = significand & ((1u << shift) - 1), half = 1u << (shift - 1);
  uint32_t code = significand >> shift;
  code += rest > half || (rest == half && (code & 1));
  if (exponent > lowest) code += uint32_t(exponent - lowest) << to.fraction_bits;
  return code > to.largest ? too_large : sign | code;
}

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
  int format, saturate;
  uint32_t nan;
  uint8_t* out;
  int64_t out_stride;
};

inline __attribute__((always_inline)) void run(const Call& c) {
  const Format& to = kFormats[c.format];
  for (int64_t i = 0; i < c.rows; ++i) {
    const float* acc = c.acc + i * c.stride;
    uint8_t* out = c.out + i * c.out_stride * to.bytes;
    const float sa = c.order == kAlreadyScaled ? 1.0f : c.scale_a[i * c.step_a];
    for (int64_t j = 0; j < c.columns; ++j) {
      float x = acc[j], last = 1.0f;
      const float sb = c.order == kAlreadyScaled ? 1.0f : c.scale_b[j * c.step_b];
      const float bias = c.bias == nullptr ? 0.0f : c.bias[j];
      if (c.order == kCombined) last = sa * sb;
      if (c.order == kAThenB) x = x * sa, last = sb;
      if (c.order == kBThenA) x = x * sb, last = sa;
      if (c.bias_mode == kFused && c.order != kAlreadyScaled) {
        x = __builtin_fmaf(x, last, bias);
      } else {
        if (c.order != kAlreadyScaled) x = x * last;
        if (c.bias_mode != kNone) x = x + bias;
      }
      if (c.scale_result != nullptr) x = x * *c.scale_result;
      const uint32_t word = convert(x, to, c.saturate, c.nan);
      if (to.bytes == 1) out[j] = uint8_t(word);
      if (to.bytes == 2) reinterpret_cast<uint16_t*>(out)[j] = uint16_t(word);
      if (to.bytes == 4) reinterpret_cast<uint32_t*>(out)[j] = word;
    }
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void run_avx2(const Call& call) { run(call); }
#endif

}  // namespace

extern "C" void mmaemu_epilogue(const float* acc, int64_t stride, int64_t rows, int64_t columns, int order,
                                const float* scale_a, int64_t step_a, const float* scale_b, int64_t step_b,
                                int bias_mode, const float* bias, const float* scale_result, int format, int saturate,
                                uint32_t nan, uint8_t* out, int64_t out_stride) {
  const Call call = {acc,  stride,       rows,   columns,  order, scale_a, step_a,    scale_b, step_b, bias_mode,
                     bias, scale_result, format, saturate, nan,   out,     out_stride};
#if defined(__x86_64__)
  const unsigned before = _mm_getcsr();
  _mm_setcsr(0x1F80);  // nearest, subnormals kept, whatever this thread had
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    run_avx2(call);
  } else {
    run(call);
  }
  _mm_setcsr(before);
#else
  run(call);
#endif
}
