// SPDX-License-Identifier: Apache-2.0
// v1: one output a thread, every rule, format and option, in integers. Direct and plain: the oracle on the device.

#include "accumulator.cuh"
#include "epilogue.cuh"

using namespace mmaemu;

// Blocks of 16 x 16 outputs; x counts columns.
MMAEMU_KERNEL(256) mmaemu_v1_product(const Product p) {
  const i64 i = i64(blockIdx.y) * 16 + threadIdx.x / 16, j = i64(blockIdx.x) * 16 + threadIdx.x % 16;
  if (!wanted(p, i, j)) return;
  const Format format = format_of(kF32);
  const Line a = line_of(p.a, i), b = line_of(p.b, j);
  const i64* chunk = p.chunks;
  float reduced = 0.0f;
  for (i32 split = 0; split < p.split_count; ++split) {
    float total = 0.0f;
    for (i32 c = 0; c < p.splits[split]; ++c, chunk += 2) {
      const Line left = {a.at + chunk[0] * a.k_step, a.k_step, a.format}, right = {b.at + chunk[0] * b.k_step, b.k_step, b.format};
      const Accumulator acc = chain(left, right, chunk[1] - chunk[0], Accumulator{0, 0}, format, p.rule);
      total = join(p, i, j, chunk[0], c == 0, total, __uint_as_float(write_accumulator(acc, format, p.rule.nan)));
    }
    reduced = reduce(p, i, j, split == 0, reduced, total);
  }
  finish(p, i, j, reduced);
}

MMAEMU_KERNEL(256) mmaemu_v1_dot(const Dot d) {
  const i64 i = i64(blockIdx.x) * 256 + threadIdx.x;
  if (i >= d.count) return;
  const Format format = format_of(d.accumulator);
  const Accumulator start = read_accumulator(load_word(d.c + i * format.bytes, format.bytes), format);
  const Accumulator acc = chain(line_of(d.a, i), line_of(d.b, i), d.length, start, format, d.rule);
  store_word(d.d + i * format.bytes, format.bytes, write_accumulator(acc, format, d.rule.nan));
}

// Which lines hold NaN or Inf: a block a line. Threads that find one write the same byte.
MMAEMU_KERNEL(256) mmaemu_v1_mark(const Lines lines) {
  const u8* at = lines.words.at + i64(blockIdx.x) * lines.words.line_step;
  for (i64 k = threadIdx.x; k < lines.length; k += 256)
    if ((at[k * lines.words.k_step] & 0x7F) >= lines.lowest) lines.marks[blockIdx.x] = 1;
}
