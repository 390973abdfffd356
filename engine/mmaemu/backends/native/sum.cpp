// SPDX-License-Identifier: Apache-2.0
// A tile of a matrix product: chunks of K, each summed from zero by a kernel, joined in float32.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "fp8.h"
#include "general.h"
#include "mode.h"

namespace mmaemu {

namespace {

struct Operands {
  Words a, b;
  int64_t rows, columns;
};

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

// Float32 words of all rows and columns, panel by panel: [panels][rows][width], filled up to whole panels.
class Sums {
 public:
  Sums(int64_t rows, int64_t columns, int width)
      : rows_(rows), width_(width), size_(size_t((columns + width - 1) / width) * rows * width) {
    // Whole cache lines, as vectors load them.
    words_.reset(static_cast<uint32_t*>(std::aligned_alloc(64, (size_ * 4 + 63) / 64 * 64)));
  }
  void clear(int64_t index) { std::fill_n(panel(index), rows_ * width_, 0); }
  uint32_t* panel(int64_t index) { return words_.get() + index * rows_ * width_; }
  const float* values(int64_t row, int64_t panel) const {
    return reinterpret_cast<const float*>(words_.get()) + (panel * rows_ + row) * width_;
  }
  int width() const { return width_; }
  bool made() const { return words_ != nullptr; }

 private:
  int64_t rows_;
  int width_;
  size_t size_;
  std::unique_ptr<uint32_t, Free> words_;
};

class Fp8Chunks {
 public:
  Fp8Chunks(const Kernel& kernel, const Operands& operands, const Rule& rule)
      : kernel_(kernel), from_(operands), group_(rule.group), block_(new Block(kernel, operands.rows)) {}

  Sums sums() const { return Sums(block_->rows, from_.columns, kernel_.columns); }

  // Sums one chunk; `joined(panel)` for each panel that is whole, while it is in the cache.
  template <class Joined>
  void add(int64_t start, int64_t stop, Sums& sums, Mode& mode, const Joined& joined) {
    const int64_t step = kDepth / group_ * group_;
    for (int64_t k = start; k < stop; k += step) {
      load_a(*block_, kernel_, from_.a.from(0, k), int(std::min(step, stop - k)));
      for (int64_t first = 0; first < from_.columns; first += kernel_.columns) {
        const int width = int(std::min<int64_t>(kernel_.columns, from_.columns - first));
        load_b(*block_, kernel_, from_.b.from(first, k), width);
        const int64_t panel = first / kernel_.columns;
        if (k == start) sums.clear(panel);
        mode.toward_zero();
        kernel_.add(*block_, group_, reinterpret_cast<float*>(sums.panel(panel)));
        mode.nearest();
        if (k + step >= stop) joined(panel);
      }
    }
  }

 private:
  const Kernel& kernel_;
  const Operands from_;
  const int group_;
  std::unique_ptr<Block> block_;
};

class GeneralChunks {
 public:
  GeneralChunks(const Operands& operands, const Rule& rule)
      : from_(operands), rule_(rule), shifts_(shifts(rule, operands.a.format, operands.b.format)), a_(operands.rows) {}

  Sums sums() const { return Sums(from_.rows, from_.columns, kLanes); }

  template <class Joined>
  void add(int64_t start, int64_t stop, Sums& sums, Mode&, const Joined& joined) {
    const int64_t panels = (from_.columns + kLanes - 1) / kLanes;
    acc_.assign(size_t(panels * from_.rows), Accumulators{});
    const int64_t step = std::max(kAtOnce / rule_.instruction_k, 1) * rule_.instruction_k;
    for (int64_t k = start; k < stop; k += step) {
      const int64_t depth = std::min(step, stop - k);
      for (int64_t i = 0; i < from_.rows; ++i)
        a_[i].read(from_.a.from(i, k), 1, 1, depth, rule_, shifts_.up);
      for (int64_t panel = 0; panel < panels; ++panel) {
        const int count = int(std::min<int64_t>(kLanes, from_.columns - panel * kLanes));
        b_.read(from_.b.from(panel * kLanes, k), count, kLanes, depth, rule_, 0);
        for (int64_t i = 0; i < from_.rows; ++i)
          chain(a_[i], b_, rule_, shifts_.down, kF32, acc_[panel * from_.rows + i]);
      }
    }
    for (int64_t panel = 0; panel < panels; ++panel) {
      for (int64_t i = 0; i < from_.rows; ++i)
        acc_[panel * from_.rows + i].write(sums.panel(panel) + i * kLanes, kFormats[kF32], rule_.nan);
      joined(panel);
    }
  }

 private:
  static constexpr int kAtOnce = 256;  // k whose terms are in memory together
  const Operands from_;
  const Rule& rule_;
  const Shifts shifts_;
  std::vector<Terms> a_;
  Terms b_;
  std::vector<Accumulators> acc_;
};

struct Join {
  const float* scale_a;  // null: chunks are added
  int64_t lda;
  const float* scale_b;
  int64_t ldb;
  bool b_first;
};

// A panel of a chunk joins the sum, which begins with the `first` chunk.
void join(const Sums& sums, int64_t panel, int64_t rows, int64_t columns, int64_t block, bool first, const Join& how,
          float* total, int64_t stride) {
  const int64_t left = panel * sums.width(), width = std::min<int64_t>(sums.width(), columns - left);
  for (int64_t i = 0; i < rows; ++i) {
    const float* own = sums.values(i, panel);
    float* sum = total + i * stride + left;
    if (how.scale_a == nullptr) {
      // The first chunk as it is: an addition would touch its NaN.
      if (first)
        std::memcpy(sum, own, size_t(width) * sizeof(float));
      else
        for (int64_t j = 0; j < width; ++j) sum[j] += own[j];
      continue;
    }
    const float sa = how.scale_a[i * how.lda + block];
    const float* sb = how.scale_b + block * how.ldb + left;
    for (int64_t j = 0; j < width; ++j) {
      const float before = first ? 0.0f : sum[j];
      sum[j] = how.b_first ? std::fma(own[j] * sb[j], sa, before) : std::fma(own[j] * sa, sb[j], before);
    }
  }
}

template <class Chunks>
int run(Chunks&& summed, const Operands& operands, int64_t chunks, const int64_t* ends, const Join& how, float* total,
        int64_t stride) {
  Mode mode;
  Sums sums = summed.sums();
  if (!sums.made()) return 2;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t start = ends[2 * chunk], stop = ends[2 * chunk + 1];
    summed.add(start, stop, sums, mode, [&](int64_t panel) {
      join(sums, panel, operands.rows, operands.columns, start / 128, chunk == 0, how, total, stride);
    });
  }
  // An addition's NaN has a sign and payload that depend on the processor; the GPU has one NaN.
  if (chunks > 1 || how.scale_a != nullptr)
    for (int64_t i = 0; i < operands.rows; ++i)
      for (int64_t j = 0; j < operands.columns; ++j)
        if (total[i * stride + j] != total[i * stride + j]) total[i * stride + j] = bits_to_float(0x7FFFFFFF);
  return 0;
}

constexpr const Kernel* kKernels[] = {nullptr, &kPlain, &kAvx2, &kAvx512};

}  // namespace

}  // namespace mmaemu

extern "C" {

// 1 where `kernel` (0 general, 1 plain, 2 AVX2, 3 AVX-512) runs on this processor.
int mmaemu_has(int kernel) { return kernel == 0 || (kernel < 4 && mmaemu::kKernels[kernel]->runs_here()); }

// total[rows][columns] = the sum over chunks of K, each from zero; ends: [chunks][start, stop]. a: words at
// row * row_a + k * k_a bytes, b: at column * column_b + k * k_b, formats as in formats.h. Kernels 1 to 3 are for fp8 and
// the rule that fp8.h describes; of `rule` they read the group. scale_a, scale_b null: chunks are added. Else
// [rows][blocks] and [blocks][columns] of strides lda_scale and ldb_scale: total = fma(chunk * first, second, total) with
// the scales of k / 128, b's first where b_first. Returns 0; 1 where the kernel does not run here, 2 where there is no
// memory.
int mmaemu_sum(int kernel, const uint8_t* a, int64_t row_a, int64_t k_a, int format_a, const uint8_t* b,
               int64_t column_b, int64_t k_b, int format_b, int64_t rows, int64_t columns, const mmaemu::Rule* rule,
               int64_t chunks, const int64_t* ends, const float* scale_a, int64_t lda_scale, const float* scale_b,
               int64_t ldb_scale, int b_first, float* total, int64_t stride) try {
  using namespace mmaemu;
  if (!mmaemu_has(kernel)) return 1;
  const Operands operands = {{a, row_a, k_a, format_a}, {b, column_b, k_b, format_b}, rows, columns};
  const Join how = {scale_a, lda_scale, scale_b, ldb_scale, b_first != 0};
  if (kernel == 0) return run(GeneralChunks(operands, *rule), operands, chunks, ends, how, total, stride);
  return run(Fp8Chunks(*kKernels[kernel], operands, *rule), operands, chunks, ends, how, total, stride);
} catch (const std::bad_alloc&) {
  return 2;
}

}  // extern "C"
