// SPDX-License-Identifier: Apache-2.0
// Products of fp8 matrices as tensor cores sum them, for processors: two kernels that work differently and agree.
//
// A step of a tensor core cuts every product and the accumulator, toward zero, to a grid 13 bits below the largest
// exponent, and adds them exactly.
//
// `plain` does that in integers: a product times 2^(13 - emax) is converted to an integer, which truncates.
//
// `avx2` lets the FMA unit do the cutting. In round-toward-zero mode, R = 1.5 * 2^(emax + 10) has that grid as its last
// bit, so R = fma(a, b, R) adds a product rounded down to the grid. The hardware rounds negative products up, so each
// negative product that does not lie on the grid makes R one unit too small; those are counted in bytes, 32 outputs at
// once, and added at the end. No sum leaves the binade of R: |sum| <= 32 * 4 * 2^emax + 2 * 2^emax < 2^(emax + 9).
//
// Compiled without flags for a processor; functions name the instructions they use and are chosen at run time.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

constexpr int kColumns = 32;   // outputs of a panel
constexpr int kDepth = 64;     // k of a block: its planes stay in the first-level cache
constexpr int kZero = -50;     // exponent of a zero operand: with any partner below every real product
constexpr uint32_t kCut = ~0x3FFu;  // float32 to 13 fraction bits

struct Code {
  float value;
  int8_t exponent;  // as the format states it, not normalised
  int8_t last;      // exponent of the lowest bit that is set
  bool negative, zero;
};

struct Tables {
  Code code[2][256];
  Tables() {
    for (int format = 0; format < 2; ++format)
      for (int word = 0; word < 256; ++word) code[format][word] = decode(format, word);
  }
  // Infinities and NaN count as zeros: the caller computes rows and columns that hold them in another way.
  static Code decode(int format, int word) {
    const int fraction_bits = format == 0 ? 3 : 2, bias = format == 0 ? 7 : 15;
    const int body = word & 0x7F;
    const bool special = format == 0 ? body == 0x7F : body >= 0x7C;
    const int field = body >> fraction_bits, fraction = body & ((1 << fraction_bits) - 1);
    const int exponent = (field ? field : 1) - bias;
    const int significand = fraction | (field ? 1 << fraction_bits : 0);
    if (special || significand == 0) return {0.0f, kZero, 0, false, true};
    int trailing = 0;
    while (!(significand >> trailing & 1)) ++trailing;
    const float magnitude = std::ldexp(float(significand), exponent - fraction_bits);
    const bool negative = word & 0x80;
    return {negative ? -magnitude : magnitude, int8_t(exponent), int8_t(exponent - fraction_bits + trailing), negative,
            false};
  }
};

const Tables& tables() {
  static const Tables made;
  return made;
}

// A byte whose sum over both operands is below -33 for negative products alone, by the place of their lowest bit.
int8_t place(const Code& code, bool second) {
  if (code.zero) return 16;
  const int flip = (second ? !code.negative : code.negative) ? 0x80 : 0;
  return int8_t(uint8_t(code.last - 32) ^ flip);
}

struct Bytes {
  int8_t exponent[2][256], place[2][2][256];
  float value[2][256];
  Bytes() {
    for (int format = 0; format < 2; ++format)
      for (int word = 0; word < 256; ++word) {
        const Code& code = tables().code[format][word];
        exponent[format][word] = code.exponent;
        value[format][word] = code.value;
        for (int second = 0; second < 2; ++second) place[format][second][word] = ::place(code, second);
      }
  }
};

const Bytes& bytes() {
  static const Bytes made;
  return made;
}

float bits_to_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

uint32_t float_to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

struct Block {  // a's rows and b's columns for a few k, decoded
  int rows, real_rows;       // rows are filled up to a multiple of four
  std::vector<float> a;  // [rows][depth]
  std::vector<int8_t> a_exponent, a_place;
  alignas(64) float b[kDepth][kColumns];
  alignas(64) int8_t b_exponent[kDepth][kColumns], b_place[kDepth][kColumns];
};

// One group of products joins the accumulators of a panel: rows x kColumns, `stride` floats a row.
using Step = void (*)(const Block& block, int first, int count, float* acc, int64_t stride);

void plain_step(const Block& block, int first, int count, float* acc, int64_t stride) {
  for (int row = 0; row < block.rows; ++row) {
    const float* a = &block.a[size_t(row) * kDepth];
    const int8_t* a_exponent = &block.a_exponent[size_t(row) * kDepth];
    float* out = acc + row * stride;
    int emax[kColumns];
    int32_t sum[kColumns];
    float scale[kColumns];
    for (int j = 0; j < kColumns; ++j) {
      const uint32_t field = float_to_bits(out[j]) >> 23 & 0xFF;
      emax[j] = field ? int(field) - 127 : 2 * kZero;
    }
    for (int k = first; k < first + count; ++k)
      for (int j = 0; j < kColumns; ++j) {
        const int exponent = a_exponent[k] + block.b_exponent[k][j];
        emax[j] = exponent > emax[j] ? exponent : emax[j];
      }
    for (int j = 0; j < kColumns; ++j) {
      scale[j] = bits_to_float(uint32_t(13 - emax[j] + 127) << 23);
      sum[j] = int32_t(out[j] * scale[j]);
    }
    for (int k = first; k < first + count; ++k)
      for (int j = 0; j < kColumns; ++j) sum[j] += int32_t(a[k] * block.b[k][j] * scale[j]);
    for (int j = 0; j < kColumns; ++j) {
      const float grid = bits_to_float(uint32_t(emax[j] - 13 + 127) << 23);
      out[j] = bits_to_float(float_to_bits(float(sum[j]) * grid) & kCut);
      if (sum[j] == 0) out[j] = 0.0f;
    }
  }
}

#if defined(__x86_64__)

#define MMAEMU_AVX2 __attribute__((target("avx2,fma")))

// Rows of one call to the inner loops. Four rows by sixteen columns are eight running sums in registers.
constexpr int kRows = 4;

// kCount: the number of products where it is known, so that loops have no end to guess; 0 else.
template <int kCount>
MMAEMU_AVX2 inline void avx2_rows(const Block& block, int row, int first, int some, float* acc, int64_t stride) {
  const int count = kCount ? kCount : some;
  const int8_t* ea = &block.a_exponent[size_t(row) * kDepth];
  const int8_t* pa = &block.a_place[size_t(row) * kDepth];
  const float* a = &block.a[size_t(row) * kDepth];
  __m256i most[kRows], below[kRows];
  for (int i = 0; i < kRows; ++i) most[i] = _mm256_set1_epi8(-128);
#pragma GCC unroll 4
  for (int k = first; k < first + count; ++k) {
    const __m256i eb = _mm256_load_si256(reinterpret_cast<const __m256i*>(block.b_exponent[k]));
    for (int i = 0; i < kRows; ++i)
      most[i] = _mm256_max_epi8(most[i], _mm256_add_epi8(eb, _mm256_set1_epi8(ea[i * kDepth + k])));
  }
  alignas(32) float anchor[kRows][kColumns];
  const __m256i sign = _mm256_set1_epi32(INT32_MIN), half = _mm256_set1_epi32(0x400000);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (int i = 0; i < kRows; ++i) {
    __m256i limit[4];
    alignas(32) int8_t spread[kColumns];
    _mm256_store_si256(reinterpret_cast<__m256i*>(spread), most[i]);
    for (int part = 0; part < 4; ++part) {
      const __m256i old = _mm256_castps_si256(_mm256_loadu_ps(acc + i * stride + 8 * part));
      const __m256i own = _mm256_sub_epi32(_mm256_srli_epi32(_mm256_slli_epi32(old, 1), 24), _mm256_set1_epi32(127));
      __m256i emax = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(spread + 8 * part)));
      emax = _mm256_max_epi32(emax, own);
      limit[part] = _mm256_min_epi32(_mm256_sub_epi32(emax, _mm256_set1_epi32(77)), _mm256_set1_epi32(-33));
      const __m256i top = _mm256_slli_epi32(_mm256_add_epi32(emax, _mm256_set1_epi32(137)), 23);
      _mm256_store_ps(&anchor[i][8 * part], _mm256_castsi256_ps(_mm256_or_si256(top, half)));
    }
    const __m256i low = _mm256_packs_epi32(limit[0], limit[1]), high = _mm256_packs_epi32(limit[2], limit[3]);
    below[i] = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
  }
  __m256i inexact[kRows];
  for (int i = 0; i < kRows; ++i) inexact[i] = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int k = first; k < first + count; ++k) {
    const __m256i pb = _mm256_load_si256(reinterpret_cast<const __m256i*>(block.b_place[k]));
    for (int i = 0; i < kRows; ++i) {
      const __m256i lowest = _mm256_add_epi8(pb, _mm256_set1_epi8(pa[i * kDepth + k]));
      inexact[i] = _mm256_sub_epi8(inexact[i], _mm256_cmpgt_epi8(below[i], lowest));
    }
  }
  alignas(32) int8_t counts[kRows][kColumns];
  for (int i = 0; i < kRows; ++i) _mm256_store_si256(reinterpret_cast<__m256i*>(counts[i]), inexact[i]);
  for (int half_panel = 0; half_panel < kColumns; half_panel += 16) {
    __m256 sum[kRows][2];
    for (int i = 0; i < kRows; ++i)
      for (int part = 0; part < 2; ++part) {
        const int j = half_panel + 8 * part;
        const __m256 m = _mm256_load_ps(&anchor[i][j]);
        const __m256 old = _mm256_loadu_ps(acc + i * stride + j);
        const __m256 signed_m = _mm256_or_ps(m, _mm256_and_ps(old, _mm256_castsi256_ps(sign)));
        sum[i][part] = _mm256_add_ps(m, _mm256_sub_ps(_mm256_add_ps(old, signed_m), signed_m));
      }
#pragma GCC unroll 4
    for (int k = first; k < first + count; ++k) {
      const __m256 b0 = _mm256_load_ps(&block.b[k][half_panel]), b1 = _mm256_load_ps(&block.b[k][half_panel + 8]);
      for (int i = 0; i < kRows; ++i) {
        const __m256 x = _mm256_broadcast_ss(a + i * kDepth + k);
        sum[i][0] = _mm256_fmadd_ps(x, b0, sum[i][0]);
        sum[i][1] = _mm256_fmadd_ps(x, b1, sum[i][1]);
      }
    }
    for (int i = 0; i < kRows; ++i)
      for (int part = 0; part < 2; ++part) {
        const int j = half_panel + 8 * part;
        const __m256i more = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(&counts[i][j])));
        const __m256i right = _mm256_add_epi32(_mm256_castps_si256(sum[i][part]), more);
        const __m256 exact = _mm256_sub_ps(_mm256_castsi256_ps(right), _mm256_load_ps(&anchor[i][j]));
        _mm256_storeu_ps(acc + i * stride + j, _mm256_and_ps(exact, _mm256_castsi256_ps(_mm256_set1_epi32(int(kCut)))));
      }
  }
}

MMAEMU_AVX2 void avx2_step(const Block& block, int first, int count, float* acc, int64_t stride) {
  for (int row = 0; row < block.rows; row += kRows) {
    float* own = acc + row * stride;
    if (count == 32)
      avx2_rows<32>(block, row, first, count, own, stride);
    else if (count == 16)
      avx2_rows<16>(block, row, first, count, own, stride);
    else
      avx2_rows<0>(block, row, first, count, own, stride);
  }
}

// load_b for 32 columns at once. The format's fields are cut out of bytes; a table of 16 gives trailing zeros.
MMAEMU_AVX2 void avx2_load_b(Block& block, const uint8_t* b, int64_t ldb, int format, int64_t start, int depth) {
  const int fraction_bits = format == 0 ? 3 : 2, bias = format == 0 ? 7 : 15;
  const __m256i low7 = _mm256_set1_epi8(0x7F), lowest_special = _mm256_set1_epi8(format == 0 ? 0x7E : 0x7B);
  const __m256i trailing = format == 0 ? _mm256_broadcastsi128_si256(_mm_setr_epi8(3, 0, 1, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0))
                                       : _mm256_broadcastsi128_si256(_mm_setr_epi8(2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  const __m256i fraction_mask = _mm256_set1_epi8((1 << fraction_bits) - 1);
  const __m256 power = _mm256_set1_ps(bits_to_float(uint32_t(127 - bias + 127) << 23));
  for (int k = 0; k < depth; ++k) {
    __m256i word = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + (start + k) * ldb));
    word = _mm256_andnot_si256(_mm256_cmpgt_epi8(_mm256_and_si256(word, low7), lowest_special), word);
    const __m256i body = _mm256_and_si256(word, low7);
    const __m256i zero = _mm256_cmpeq_epi8(body, _mm256_setzero_si256());
    __m256i field = _mm256_and_si256(_mm256_srli_epi16(body, fraction_bits), _mm256_set1_epi8(0x7F >> fraction_bits));
    field = _mm256_max_epi8(field, _mm256_set1_epi8(1));
    const __m256i exponent = _mm256_sub_epi8(field, _mm256_set1_epi8(int8_t(bias)));
    const __m256i last = _mm256_add_epi8(_mm256_sub_epi8(exponent, _mm256_set1_epi8(int8_t(fraction_bits))),
                                         _mm256_shuffle_epi8(trailing, _mm256_and_si256(body, fraction_mask)));
    const __m256i flip = _mm256_andnot_si256(word, _mm256_set1_epi8(int8_t(0x80)));
    const __m256i at = _mm256_xor_si256(_mm256_sub_epi8(last, _mm256_set1_epi8(32)), flip);
    _mm256_store_si256(reinterpret_cast<__m256i*>(block.b_exponent[k]),
                       _mm256_blendv_epi8(exponent, _mm256_set1_epi8(kZero), zero));
    _mm256_store_si256(reinterpret_cast<__m256i*>(block.b_place[k]), _mm256_blendv_epi8(at, _mm256_set1_epi8(16), zero));
    alignas(32) uint8_t spread[kColumns];
    _mm256_store_si256(reinterpret_cast<__m256i*>(spread), word);
    for (int part = 0; part < 4; ++part) {
      const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(spread + 8 * part)));
      const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(wide, _mm256_set1_epi32(0x80)), 24);
      const __m256i magnitude = _mm256_slli_epi32(_mm256_and_si256(wide, _mm256_set1_epi32(0x7F)), 23 - fraction_bits);
      const __m256 value = _mm256_mul_ps(_mm256_castsi256_ps(magnitude), power);  // exact, subnormals included
      _mm256_store_ps(&block.b[k][8 * part], _mm256_or_ps(value, _mm256_castsi256_ps(sign)));
    }
  }
}

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

// The mode of this thread's unit for as long as the object lives: nearest or toward zero, subnormals kept.
class Mode {
 public:
  Mode() : before_(_mm_getcsr()) { nearest(); }
  ~Mode() { _mm_setcsr(before_); }
  void nearest() { _mm_setcsr(0x1F80); }
  void toward_zero() { _mm_setcsr(0x1F80 | 0x6000); }

 private:
  unsigned before_;
};

#else

bool has_avx2() { return false; }
void avx2_load_b(Block&, const uint8_t*, int64_t, int, int64_t, int) {}
void avx2_step(const Block&, int, int, float*, int64_t) {}

class Mode {
 public:
  void nearest() {}
  void toward_zero() {}
};

#endif

void load_a(Block& block, const uint8_t* a, int64_t lda, int format, int64_t start, int depth) {
  const Bytes& table = bytes();
  for (int row = 0; row < block.rows; ++row)
    for (int k = 0; k < depth; ++k) {
      const size_t at = size_t(row) * kDepth + k;
      const int word = row < block.real_rows ? a[row * lda + start + k] : 0;
      block.a[at] = table.value[format][word];
      block.a_exponent[at] = table.exponent[format][word];
      block.a_place[at] = table.place[format][0][word];
    }
}

void load_b(Block& block, const uint8_t* b, int64_t ldb, int format, int64_t start, int depth, int width) {
  const Bytes& table = bytes();
  for (int k = 0; k < depth; ++k) {
    const uint8_t* row = b + (start + k) * ldb;
    for (int j = 0; j < kColumns; ++j) {
      const int word = j < width ? row[j] : 0;
      block.b[k][j] = table.value[format][word];
      block.b_exponent[k][j] = table.exponent[format][word];
      block.b_place[k][j] = table.place[format][1][word];
    }
  }
}

}  // namespace

extern "C" {

// 1 where `kernel` (0 plain, 1 avx2) runs on this processor.
int mmaemu_has(int kernel) { return kernel == 0 || (kernel == 1 && has_avx2()); }

// total[rows][columns] = the sum over chunks, each from zero. a: [rows][lda], b: [K][ldb], bytes of e4m3 (0) or e5m2 (1).
// scale_a, scale_b null: chunks are added. Else [rows][blocks] and [blocks][columns] of strides lda_scale and ldb_scale:
// total = fma(chunk * first, second, total) with the scales of k / 128, b's first where b_first.
// Returns 0, or 1 where the kernel does not run here.
int mmaemu_fp8_sum(int kernel, const uint8_t* a, int64_t lda, int format_a, const uint8_t* b, int64_t ldb, int format_b,
                   int64_t rows, int64_t columns, int group, int64_t chunks, const int64_t* starts, const int64_t* stops,
                   const float* scale_a, int64_t lda_scale, const float* scale_b, int64_t ldb_scale, int b_first,
                   float* total, int64_t stride) {
  if (!mmaemu_has(kernel)) return 1;
  const Step step = kernel == 1 ? avx2_step : plain_step;
  const int padded = int((rows + 3) / 4 * 4);
  const int64_t panels = (columns + kColumns - 1) / kColumns, width = panels * kColumns;
  std::vector<float> acc(size_t(padded) * width);
  Block block;
  block.rows = padded;
  block.real_rows = int(rows);
  block.a.resize(size_t(padded) * kDepth);
  block.a_exponent.resize(size_t(padded) * kDepth);
  block.a_place.resize(size_t(padded) * kDepth);
  Mode mode;
  for (int64_t i = 0; i < rows; ++i) std::memset(total + i * stride, 0, size_t(columns) * sizeof(float));
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    std::fill(acc.begin(), acc.end(), 0.0f);
    if (kernel == 1) mode.toward_zero();
    for (int64_t start = starts[chunk]; start < stops[chunk]; start += kDepth) {
      const int depth = int(stops[chunk] - start < kDepth ? stops[chunk] - start : kDepth);
      load_a(block, a, lda, format_a, start, depth);
      for (int64_t panel = 0; panel < panels; ++panel) {
        const int64_t left = columns - panel * kColumns;
        if (kernel == 1 && left >= kColumns)
          avx2_load_b(block, b + panel * kColumns, ldb, format_b, start, depth);
        else
          load_b(block, b + panel * kColumns, ldb, format_b, start, depth, int(left < kColumns ? left : kColumns));
        for (int first = 0; first < depth; first += group)
          step(block, first, depth - first < group ? depth - first : group, &acc[size_t(panel) * kColumns], width);
      }
    }
    mode.nearest();
    const int64_t scale = starts[chunk] / 128;
    for (int64_t i = 0; i < rows; ++i) {
      float* sum = total + i * stride;
      const float* own = &acc[size_t(i) * width];
      if (scale_a == nullptr) {
        for (int64_t j = 0; j < columns; ++j) sum[j] = chunk == 0 ? own[j] : sum[j] + own[j];
        continue;
      }
      const float sa = scale_a[i * lda_scale + scale];
      const float* sb = scale_b + scale * ldb_scale;
      for (int64_t j = 0; j < columns; ++j)
        sum[j] = b_first ? std::fma(own[j] * sb[j], sa, sum[j]) : std::fma(own[j] * sa, sb[j], sum[j]);
    }
  }
  // Scales can bring NaN, of a sign and payload that depend on the processor; the GPU has one NaN.
  if (scale_a != nullptr)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        if (total[i * stride + j] != total[i * stride + j]) total[i * stride + j] = bits_to_float(0x7FFFFFFF);
  return 0;
}

}  // extern "C"
