// SPDX-License-Identifier: Apache-2.0
// 32 fp8 words of b to values, exponents and places at once, for the kernels that use vectors.

#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include "fp8.h"

#define MMAEMU_AVX2 __attribute__((target("avx2,fma")))

namespace mmaemu {

// The fields are cut out of bytes; a table of 16 gives the trailing zeros of fractions. NaN and infinities become zeros.
struct Fields {
  __m256i exponent, place;  // in the order of the words
};

MMAEMU_AVX2 inline Fields decode_32(const uint8_t* words, int format, float* values) {
  const int fraction_bits = kFormats[format].fraction_bits, bias = kFormats[format].bias;
  const bool e4m3 = format == kE4M3;
  const __m256i low7 = _mm256_set1_epi8(0x7F), largest = _mm256_set1_epi8(int8_t(kFormats[format].largest()));
  const __m256i trailing = _mm256_broadcastsi128_si256(
      e4m3 ? _mm_setr_epi8(3, 0, 1, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
           : _mm_setr_epi8(2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  const __m256i fraction_mask = _mm256_set1_epi8(int8_t((1 << fraction_bits) - 1));
  const __m256 power = _mm256_set1_ps(bits_to_float(uint32_t(127 - bias + 127) << 23));
  __m256i word = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
  word = _mm256_andnot_si256(_mm256_cmpgt_epi8(_mm256_and_si256(word, low7), largest), word);
  const __m256i body = _mm256_and_si256(word, low7);
  const __m256i zero = _mm256_cmpeq_epi8(body, _mm256_setzero_si256());
  __m256i field = _mm256_and_si256(_mm256_srli_epi16(body, fraction_bits), _mm256_set1_epi8(int8_t(0x7F >> fraction_bits)));
  field = _mm256_max_epi8(field, _mm256_set1_epi8(1));
  const __m256i exponent = _mm256_sub_epi8(field, _mm256_set1_epi8(int8_t(bias)));
  const __m256i last = _mm256_add_epi8(_mm256_sub_epi8(exponent, _mm256_set1_epi8(int8_t(fraction_bits))),
                                       _mm256_shuffle_epi8(trailing, _mm256_and_si256(body, fraction_mask)));
  const __m256i flip = _mm256_andnot_si256(word, _mm256_set1_epi8(int8_t(0x80)));
  const __m256i at = _mm256_xor_si256(_mm256_sub_epi8(last, _mm256_set1_epi8(32)), flip);
  alignas(32) uint8_t spread[32];
  _mm256_store_si256(reinterpret_cast<__m256i*>(spread), word);
  for (int part = 0; part < 4; ++part) {
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(spread + 8 * part)));
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(wide, _mm256_set1_epi32(0x80)), 24);
    const __m256i magnitude = _mm256_slli_epi32(_mm256_and_si256(wide, _mm256_set1_epi32(0x7F)), 23 - fraction_bits);
    const __m256 value = _mm256_mul_ps(_mm256_castsi256_ps(magnitude), power);  // exact, subnormals included
    _mm256_store_ps(values + 8 * part, _mm256_or_ps(value, _mm256_castsi256_ps(sign)));
  }
  return {_mm256_blendv_epi8(exponent, _mm256_set1_epi8(kZero), zero),
          _mm256_blendv_epi8(at, _mm256_set1_epi8(16), zero)};
}

}  // namespace mmaemu

#endif
