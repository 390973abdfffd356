// SPDX-License-Identifier: Apache-2.0
// Chains of one instruction, one dot product each: d[i] = sum over k of a[i][k] * b[i][k], and c[i].

#include <algorithm>
#include <cstdint>
#include <new>

#include "general.h"
#include "mode.h"

// a, b: [count][K] words; c, d: [count] words of the accumulator's format (kF32 or kF16). Returns 0, or 2 where there is
// no memory.
extern "C" int mmaemu_dot(const uint8_t* a, int format_a, const uint8_t* b, int format_b, const uint8_t* c, uint8_t* d,
                          int accumulator, int64_t count, int64_t length, const mmaemu::Rule* rule) try {
  using namespace mmaemu;
  Mode mode;
  const Format& format = kFormats[accumulator];
  const Shifts by = shifts(*rule, format_a, format_b);
  const int wide_a = kFormats[format_a].bytes, wide_b = kFormats[format_b].bytes;
  const Words all_a = {a, length * wide_a, wide_a, format_a}, all_b = {b, length * wide_b, wide_b, format_b};
  Terms left, right;
  for (int64_t first = 0; first < count; first += kLanes) {
    const int lanes = int(std::min<int64_t>(kLanes, count - first));
    left.read(all_a.from(first, 0), lanes, kLanes, length, *rule, by.up);
    right.read(all_b.from(first, 0), lanes, kLanes, length, *rule, 0);
    uint32_t words[kLanes] = {};
    for (int j = 0; j < lanes; ++j) words[j] = load_word(c + (first + j) * format.bytes, format.bytes);
    Accumulators acc;
    acc.read(words, format);
    chain(left, right, *rule, by.down, accumulator, acc);
    acc.write(words, format, rule->nan);
    for (int j = 0; j < lanes; ++j) std::memcpy(d + (first + j) * format.bytes, &words[j], size_t(format.bytes));
  }
  return 0;
} catch (const std::bad_alloc&) {
  return 2;
}
