// SPDX-License-Identifier: Apache-2.0
// fp8 products by AVX-512: as fp8_avx2.cpp, four rows by 64 columns, for 32 registers hold all of it at once.
//
// With MMAEMU_SIMDE, its instructions are SIMDe's functions instead: `make avx512` runs its tests that way where the
// processor lacks them.

#if defined(MMAEMU_SIMDE)
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#define MMAEMU_AVX512 __attribute__((target("avx2,fma")))
#else
#define MMAEMU_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx2,fma")))
#endif

#include "fp8.h"
#include "fp8_decode.h"

namespace mmaemu {

namespace {

constexpr int kRows = 4, kColumns = 64, kParts = 4;

// As packs_epi32 and packs_epi16 leave 64 columns: within 128 bits. Unpacking brings them back.
struct Order {
  uint8_t place[kColumns] = {};
  constexpr Order() {
    for (int j = 0; j < kColumns; ++j) place[j] = uint8_t(16 * (j % 16 / 4) + 4 * (j / 16) + j % 4);
  }
};
constexpr Order kOrder;

#if defined(__x86_64__)

bool runs_here() {
#if defined(MMAEMU_SIMDE)
  return kAvx2.runs_here();
#else
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && kAvx2.runs_here();
#endif
}

MMAEMU_AVX512 inline __m512i load(const void* from) { return _mm512_load_si512(from); }
MMAEMU_AVX512 inline void store(void* to, __m512i x) { _mm512_store_si512(to, x); }

MMAEMU_AVX512 inline void store_in_order(int8_t* to, __m256i low, __m256i high) {
  const __m512i shuffle = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  alignas(64) int8_t words[kColumns];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), low);
  _mm256_store_si256(reinterpret_cast<__m256i*>(words + 32), high);
  store(to, _mm512_permutexvar_epi32(shuffle, load(words)));
}

MMAEMU_AVX512 void load_b(Block& block, const uint8_t* b, int64_t ldb, int format) {
  for (int k = 0; k < block.depth; ++k) {
    const Fields low = decode_32(b + k * ldb, format, &block.b[k * kColumns]);
    const Fields high = decode_32(b + k * ldb + 32, format, &block.b[k * kColumns + 32]);
    store_in_order(&block.b_exponent[k * kColumns], low.exponent, high.exponent);
    store_in_order(&block.b_place[k * kColumns], low.place, high.place);
  }
}

// What a row's accumulators become before products join: on the grid of the common exponent.
struct Row {
  alignas(64) int32_t anchor[kColumns];  // words of 1.5 * 2^(emax + 10)
  alignas(64) int32_t start[kColumns];   // the same, and the accumulators cut to the grid
  __m512i below;                         // places of inexact negative products are less than this
};

MMAEMU_AVX512 inline void open(Row& row, __m512i most, const float* acc) {
  const __m512i zero = _mm512_setzero_si512(), byte = _mm512_set1_epi16(0xFF);
  __m512i old[kParts], field[kParts];
  for (int part = 0; part < kParts; ++part) {
    old[part] = load(acc + 16 * part);
    field[part] = _mm512_srli_epi32(old[part], 23);
  }
  const __m512i low = _mm512_and_si512(_mm512_packus_epi32(field[0], field[1]), byte);  // without signs
  const __m512i high = _mm512_and_si512(_mm512_packus_epi32(field[2], field[3]), byte);
  const __m512i exponent = _mm512_sub_epi8(_mm512_packus_epi16(low, high), _mm512_set1_epi8(127));
  const __m512i emax = _mm512_max_epi8(most, exponent);
  row.below = _mm512_min_epi8(_mm512_subs_epi8(emax, _mm512_set1_epi8(77)), _mm512_set1_epi8(-33));
  const __m512i top = _mm512_add_epi8(emax, _mm512_set1_epi8(char(137))), half = _mm512_set1_epi16(0x40);
  const __m512i first = _mm512_or_si512(_mm512_srli_epi16(_mm512_unpacklo_epi8(zero, top), 1), half);
  const __m512i second = _mm512_or_si512(_mm512_srli_epi16(_mm512_unpackhi_epi8(zero, top), 1), half);
  const __m512i anchor[kParts] = {_mm512_unpacklo_epi16(zero, first), _mm512_unpackhi_epi16(zero, first),
                                  _mm512_unpacklo_epi16(zero, second), _mm512_unpackhi_epi16(zero, second)};
  for (int part = 0; part < kParts; ++part) {
    const __m512i magnitude = _mm512_and_si512(old[part], _mm512_set1_epi32(INT32_MAX));
    const __m512 cut = _mm512_add_ps(_mm512_castsi512_ps(magnitude), _mm512_castsi512_ps(anchor[part]));
    const __m512i kept = _mm512_sub_epi32(_mm512_castps_si512(cut), anchor[part]);
    store(&row.anchor[16 * part], anchor[part]);
    const __m512i own = _mm512_mask_sub_epi32(kept, _mm512_movepi32_mask(old[part]), zero, kept);
    store(&row.start[16 * part], _mm512_add_epi32(anchor[part], own));
  }
}

MMAEMU_AVX512 inline void close(const Row& row, const __m512 (&sum)[kParts], __m512i inexact, float* acc) {
  const __m512i zero = _mm512_setzero_si512();
  const __m512i low = _mm512_unpacklo_epi8(inexact, zero), high = _mm512_unpackhi_epi8(inexact, zero);
  const __m512i more[kParts] = {_mm512_unpacklo_epi16(low, zero), _mm512_unpackhi_epi16(low, zero),
                                _mm512_unpacklo_epi16(high, zero), _mm512_unpackhi_epi16(high, zero)};
  for (int part = 0; part < kParts; ++part) {
    const __m512i right = _mm512_add_epi32(_mm512_castps_si512(sum[part]), more[part]);
    const __m512 anchor = _mm512_castsi512_ps(load(&row.anchor[16 * part]));
    const __m512i exact = _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(right), anchor));
    store(acc + 16 * part, _mm512_and_si512(exact, _mm512_set1_epi32(int(kCut))));
  }
}

// Rows that the inner loop works on together, and a group: what multiply-adds start from. kCount: the number of products
// where it is known, so that loops have no end to guess; 0 else.
template <int kCount>
MMAEMU_AVX512 inline void prepare(Row (&row)[kRows], const Block& block, const uint32_t* a, int first, int some,
                                  const float* acc) {
  const int count = kCount ? kCount : some;
  const int8_t* b = &block.b_exponent[first * kColumns];
  a += 3 * kRows * first;
  __m512i most[kRows];
  for (int i = 0; i < kRows; ++i) most[i] = _mm512_set1_epi8(-128);
#pragma GCC unroll 4
  for (int k = 0; k < count; ++k) {
    const __m512i other = load(b + k * kColumns);
    const uint32_t* own = a + 3 * kRows * k + kRows;
    for (int i = 0; i < kRows; ++i)
      most[i] = _mm512_max_epi8(most[i], _mm512_add_epi8(other, _mm512_set1_epi32(int(own[i]))));
  }
  for (int i = 0; i < kRows; ++i) open(row[i], most[i], acc + i * kColumns);
}

template <int kCount>
MMAEMU_AVX512 inline void multiply(const Row (&row)[kRows], const Block& block, const uint32_t* a, int first, int some,
                                   float* acc) {
  const int count = kCount ? kCount : some;
  const float* b = &block.b[first * kColumns];
  const int8_t* b_place = &block.b_place[first * kColumns];
  a += 3 * kRows * first;
  __m512 sum[kRows][kParts];
  __m512i below[kRows], inexact[kRows];
  for (int i = 0; i < kRows; ++i) {
    below[i] = row[i].below;
    inexact[i] = _mm512_setzero_si512();
    for (int part = 0; part < kParts; ++part) sum[i][part] = _mm512_castsi512_ps(load(&row[i].start[16 * part]));
  }
  const __m512i one = _mm512_set1_epi8(1);
#pragma GCC unroll 2
  for (int k = 0; k < count; ++k) {
    const uint32_t *own = a + 3 * kRows * k, *place = own + 2 * kRows;
    const __m512i other = load(b_place + k * kColumns);
    for (int i = 0; i < kRows; ++i) {
      const __m512i lowest = _mm512_add_epi8(other, _mm512_set1_epi32(int(place[i])));
      inexact[i] = _mm512_mask_add_epi8(inexact[i], _mm512_cmpgt_epi8_mask(below[i], lowest), inexact[i], one);
    }
    __m512 y[kParts];
    for (int part = 0; part < kParts; ++part) y[part] = _mm512_castsi512_ps(load(b + k * kColumns + 16 * part));
    for (int i = 0; i < kRows; ++i) {
      const __m512 x = _mm512_set1_ps(bits_to_float(own[i]));
      for (int part = 0; part < kParts; ++part) sum[i][part] = _mm512_fmadd_ps(x, y[part], sum[i][part]);
    }
  }
  for (int i = 0; i < kRows; ++i) close(row[i], sum[i], inexact[i], acc + i * kColumns);
}

// One group of all rows. The next rows are prepared before the multiply-adds of these, which then wait for nothing.
template <int kCount>
MMAEMU_AVX512 void add_group(const Block& block, int first, int count, float* acc) {
  Row rows[2][kRows];
  constexpr int step = kRows * kDepth * 3;
  const uint32_t* a = block.a.data();
  prepare<kCount>(rows[0], block, a, first, count, acc);
  for (int row = 0; row < block.rows; row += kRows, a += step, acc += kRows * kColumns) {
    const int now = row / kRows & 1;
    if (row + kRows < block.rows) prepare<kCount>(rows[!now], block, a + step, first, count, acc + kRows * kColumns);
    multiply<kCount>(rows[now], block, a, first, count, acc);
  }
}

MMAEMU_AVX512 void add(const Block& block, int group, float* acc) {
  for (int first = 0; first < block.depth; first += group) {
    const int count = block.depth - first < group ? block.depth - first : group;
    if (count == 32)
      add_group<32>(block, first, count, acc);
    else if (count == 16)
      add_group<16>(block, first, count, acc);
    else
      add_group<0>(block, first, count, acc);
  }
}

#else

bool runs_here() { return false; }
void load_b(Block&, const uint8_t*, int64_t, int) {}
void add(const Block&, int, float*) {}

#endif

}  // namespace

const Kernel kAvx512 = {kRows, kColumns, kOrder.place, runs_here, load_b, add};

}  // namespace mmaemu
