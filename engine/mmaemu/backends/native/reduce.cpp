// SPDX-License-Identifier: Apache-2.0
// Split-K: the partial sums of all ranges become one accumulator, ranges in ascending order, float32 to nearest even.

#include <cstdint>

#include "convert.h"
#include "mode.h"

namespace mmaemu {

namespace {

enum Scheme { kComputeType, kOutputType, kInPlace };
enum Scales { kUnscaled = -1, kCombined, kAThenB, kBThenA };

float scaled(float x, float sa, float sb, int order) {
  if (order == kCombined) return x * (sa * sb);
  if (order == kAThenB) return x * sa * sb;
  if (order == kBThenA) return x * sb * sa;
  return x;
}

}  // namespace

}  // namespace mmaemu

// partials: [count][rows][stride], count 2 or more; the sum is left in the first. order -1: no scales, else those of
// the epilogue, applied to each partial first.
extern "C" void mmaemu_reduce(float* partials, int64_t stride, int64_t count, int64_t rows, int64_t columns,
                              int scheme, int order, const float* scale_a, int64_t step_a, const float* scale_b, int64_t step_b,
                              const mmaemu::Output* output) {
  using namespace mmaemu;
  Mode mode;
  const Format& format = kFormats[output->format];
  const auto through = [&](float x) { return widen(narrow(x, format, output->saturates, output->nan), format); };
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      float* own = partials + i * stride + j;
      const float sa = order == kUnscaled ? 1.0f : scale_a[i * step_a];
      const float sb = order == kUnscaled ? 1.0f : scale_b[j * step_b];
      float total = 0.0f;
      for (int64_t part = 0; part < count; ++part) {
        float x = scaled(own[part * rows * stride], sa, sb, order);
        if (scheme == kOutputType) x = through(x);
        if (scheme == kInPlace && part > 0) total = through(total);
        total = part == 0 ? x : total + x;
      }
      *own = total == total ? total : bits_to_float(0x7FFFFFFF);
    }
}
