// SPDX-License-Identifier: Apache-2.0
// fp8 products by AVX2 and FMA: two rows by 32 columns are eight running sums, which leaves room in the registers to
// count inexact negative products along the way. Loads are what limits it, so bytes of a are repeated to 32 bits, which
// one load broadcasts.

#include "fp8.h"
#include "fp8_decode.h"

namespace mmaemu {

namespace {

constexpr int kRows = 2, kColumns = 32;

// As packs_epi32 and packs_epi16 leave 32 columns: within 128 bits. Unpacking brings them back.
constexpr uint8_t kOrder[kColumns] = {0, 1, 2,  3,  16, 17, 18, 19, 4,  5,  6,  7,  20, 21, 22, 23,
                                      8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31};

#if defined(__x86_64__)

bool runs_here() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

MMAEMU_AVX2 inline __m256i load(const void* from) { return _mm256_load_si256(static_cast<const __m256i*>(from)); }
MMAEMU_AVX2 inline void store(void* to, __m256i x) { _mm256_store_si256(static_cast<__m256i*>(to), x); }

MMAEMU_AVX2 void load_b(Block& block, const uint8_t* b, int64_t ldb, int format) {
  const __m256i shuffle = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  for (int k = 0; k < block.depth; ++k) {
    const Fields fields = decode_32(b + k * ldb, format, &block.b[k * kColumns]);
    store(&block.b_exponent[k * kColumns], _mm256_permutevar8x32_epi32(fields.exponent, shuffle));
    store(&block.b_place[k * kColumns], _mm256_permutevar8x32_epi32(fields.place, shuffle));
  }
}

// What a row's accumulators become before products join: on the grid of the common exponent.
struct Row {
  alignas(32) int32_t anchor[kColumns];  // words of 1.5 * 2^(emax + 10)
  alignas(32) int32_t start[kColumns];   // the same, and the accumulators cut to the grid
  __m256i below;                         // places of inexact negative products are less than this
};

MMAEMU_AVX2 inline void open(Row& row, __m256i most, const float* acc) {
  const __m256i zero = _mm256_setzero_si256(), byte = _mm256_set1_epi16(0xFF);
  __m256i old[4], field[4];
  for (int part = 0; part < 4; ++part) {
    old[part] = load(acc + 8 * part);
    field[part] = _mm256_srli_epi32(old[part], 23);
  }
  const __m256i low = _mm256_and_si256(_mm256_packus_epi32(field[0], field[1]), byte);  // without signs
  const __m256i high = _mm256_and_si256(_mm256_packus_epi32(field[2], field[3]), byte);
  const __m256i own = _mm256_sub_epi8(_mm256_packus_epi16(low, high), _mm256_set1_epi8(127));
  const __m256i emax = _mm256_max_epi8(most, own);
  row.below = _mm256_min_epi8(_mm256_subs_epi8(emax, _mm256_set1_epi8(77)), _mm256_set1_epi8(-33));
  const __m256i top = _mm256_add_epi8(emax, _mm256_set1_epi8(char(137))), half = _mm256_set1_epi16(0x40);
  const __m256i first = _mm256_or_si256(_mm256_srli_epi16(_mm256_unpacklo_epi8(zero, top), 1), half);
  const __m256i second = _mm256_or_si256(_mm256_srli_epi16(_mm256_unpackhi_epi8(zero, top), 1), half);
  const __m256i anchor[4] = {_mm256_unpacklo_epi16(zero, first), _mm256_unpackhi_epi16(zero, first),
                             _mm256_unpacklo_epi16(zero, second), _mm256_unpackhi_epi16(zero, second)};
  for (int part = 0; part < 4; ++part) {
    const __m256i magnitude = _mm256_and_si256(old[part], _mm256_set1_epi32(INT32_MAX));
    const __m256 cut = _mm256_add_ps(_mm256_castsi256_ps(magnitude), _mm256_castsi256_ps(anchor[part]));
    const __m256i kept = _mm256_sub_epi32(_mm256_castps_si256(cut), anchor[part]);
    store(&row.anchor[8 * part], anchor[part]);
    store(&row.start[8 * part], _mm256_add_epi32(anchor[part], _mm256_sign_epi32(kept, old[part])));
  }
}

MMAEMU_AVX2 inline void close(const Row& row, const __m256 (&sum)[4], __m256i inexact, float* acc) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i low = _mm256_unpacklo_epi8(inexact, zero), high = _mm256_unpackhi_epi8(inexact, zero);
  const __m256i more[4] = {_mm256_unpacklo_epi16(low, zero), _mm256_unpackhi_epi16(low, zero),
                           _mm256_unpacklo_epi16(high, zero), _mm256_unpackhi_epi16(high, zero)};
  for (int part = 0; part < 4; ++part) {
    const __m256i right = _mm256_add_epi32(_mm256_castps_si256(sum[part]), more[part]);
    const __m256 anchor = _mm256_castsi256_ps(load(&row.anchor[8 * part]));
    const __m256 exact = _mm256_sub_ps(_mm256_castsi256_ps(right), anchor);
    _mm256_store_ps(acc + 8 * part, _mm256_and_ps(exact, _mm256_castsi256_ps(_mm256_set1_epi32(int(kCut)))));
  }
}

// Two rows and a group: what multiply-adds start from. kCount: the number of products where it is known, so that loops
// have no end to guess; 0 else.
template <int kCount>
MMAEMU_AVX2 inline void prepare(Row (&row)[kRows], const Block& block, const uint32_t* a, int first, int some,
                                const float* acc) {
  const int count = kCount ? kCount : some;
  const int8_t* b = &block.b_exponent[first * kColumns];
  a += 3 * kRows * first;
  __m256i most0 = _mm256_set1_epi8(-128), most1 = most0;
#pragma GCC unroll 8
  for (int k = 0; k < count; ++k) {
    const __m256i other = load(b + k * kColumns);
    const int* own = reinterpret_cast<const int*>(a + 6 * k + 2);
    most0 = _mm256_max_epi8(most0, _mm256_add_epi8(other, _mm256_set1_epi32(own[0])));
    most1 = _mm256_max_epi8(most1, _mm256_add_epi8(other, _mm256_set1_epi32(own[1])));
  }
  open(row[0], most0, acc);
  open(row[1], most1, acc + kColumns);
}

template <int kCount>
MMAEMU_AVX2 inline void multiply(const Row (&row)[kRows], const Block& block, const uint32_t* a, int first, int some,
                                 float* acc) {
  const int count = kCount ? kCount : some;
  const float* b = &block.b[first * kColumns];
  const int8_t* b_place = &block.b_place[first * kColumns];
  a += 3 * kRows * first;
  __m256 sum0[4], sum1[4];
  for (int part = 0; part < 4; ++part) {
    sum0[part] = _mm256_castsi256_ps(load(&row[0].start[8 * part]));
    sum1[part] = _mm256_castsi256_ps(load(&row[1].start[8 * part]));
  }
  const __m256i below0 = row[0].below, below1 = row[1].below;
  __m256i inexact0 = _mm256_setzero_si256(), inexact1 = inexact0;
#pragma GCC unroll 4
  for (int k = 0; k < count; ++k) {
    const float* own = reinterpret_cast<const float*>(a + 6 * k);
    const int* place = reinterpret_cast<const int*>(a + 6 * k + 4);
    const __m256 x0 = _mm256_broadcast_ss(own), x1 = _mm256_broadcast_ss(own + 1);
    __m256 y = _mm256_load_ps(b + k * kColumns);
    sum0[0] = _mm256_fmadd_ps(x0, y, sum0[0]);
    sum1[0] = _mm256_fmadd_ps(x1, y, sum1[0]);
    y = _mm256_load_ps(b + k * kColumns + 8);
    sum0[1] = _mm256_fmadd_ps(x0, y, sum0[1]);
    sum1[1] = _mm256_fmadd_ps(x1, y, sum1[1]);
    const __m256i other = load(b_place + k * kColumns);
    const __m256i lowest0 = _mm256_add_epi8(other, _mm256_set1_epi32(place[0]));
    inexact0 = _mm256_sub_epi8(inexact0, _mm256_cmpgt_epi8(below0, lowest0));
    y = _mm256_load_ps(b + k * kColumns + 16);
    sum0[2] = _mm256_fmadd_ps(x0, y, sum0[2]);
    sum1[2] = _mm256_fmadd_ps(x1, y, sum1[2]);
    const __m256i lowest1 = _mm256_add_epi8(other, _mm256_set1_epi32(place[1]));
    inexact1 = _mm256_sub_epi8(inexact1, _mm256_cmpgt_epi8(below1, lowest1));
    y = _mm256_load_ps(b + k * kColumns + 24);
    sum0[3] = _mm256_fmadd_ps(x0, y, sum0[3]);
    sum1[3] = _mm256_fmadd_ps(x1, y, sum1[3]);
  }
  close(row[0], sum0, inexact0, acc);
  close(row[1], sum1, inexact1, acc + kColumns);
}

// One group of all rows. The next rows are prepared before the multiply-adds of these, which then wait for nothing.
template <int kCount>
MMAEMU_AVX2 void add_group(const Block& block, int first, int count, float* acc) {
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

MMAEMU_AVX2 void add(const Block& block, int group, float* acc) {
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

const Kernel kAvx2 = {kRows, kColumns, kOrder, runs_here, load_b, add};

}  // namespace mmaemu
