// SPDX-License-Identifier: Apache-2.0
// The part of CUDA C++ that the kernels use, on a CPU: threads of a block are fibers that run one after another, from
// barrier to barrier. Functions that CUDA defines keep CUDA's names and, bit for bit, CUDA's results.

#pragma once

#include <cstdint>
#include <cstring>
#include <immintrin.h>

#include "fibers.h"

struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

extern thread_local uint3 threadIdx, blockIdx;

namespace cuda_on_host {

// The block's shared memory, holding rubbish when the block begins.
void* shared_memory(std::size_t bytes);

template <class T>
T& shared() {
  return *static_cast<T*>(shared_memory(sizeof(T)));
}

}  // namespace cuda_on_host

inline void __syncthreads() { cuda_on_host::wait_for_block(); }
inline void __syncwarp() { cuda_on_host::wait_for_warp(); }

inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

inline int __clzll(long long value) { return value ? __builtin_clzll(static_cast<unsigned long long>(value)) : 64; }
inline int __ffs(int value) { return __builtin_ffs(value); }

// One operation in one rounding mode. Written as instructions, which the compiler neither moves nor merges.
namespace cuda_on_host {

constexpr unsigned kNearest = 0x1F80, kTowardZero = 0x1F80 | 0x6000;

template <class Operation>
inline float rounded(unsigned mode, Operation operation) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(mode);
  const float result = operation();
  _mm_setcsr(before);
  return result;
}

inline float fma(unsigned mode, float x, float y, float z) {
  return rounded(mode, [=] {
    float result = z;
    asm volatile("vfmadd231ss %2, %1, %0" : "+x"(result) : "x"(x), "x"(y));
    return result;
  });
}

inline float add(unsigned mode, float x, float y) {
  return rounded(mode, [=] {
    float result;
    asm volatile("vaddss %2, %1, %0" : "=x"(result) : "x"(x), "x"(y));
    return result;
  });
}

inline float multiply(unsigned mode, float x, float y) {
  return rounded(mode, [=] {
    float result;
    asm volatile("vmulss %2, %1, %0" : "=x"(result) : "x"(x), "x"(y));
    return result;
  });
}

}  // namespace cuda_on_host

inline float __fmaf_rn(float x, float y, float z) { return cuda_on_host::fma(cuda_on_host::kNearest, x, y, z); }
inline float __fmaf_rz(float x, float y, float z) { return cuda_on_host::fma(cuda_on_host::kTowardZero, x, y, z); }
inline float __fadd_rn(float x, float y) { return cuda_on_host::add(cuda_on_host::kNearest, x, y); }
inline float __fadd_rz(float x, float y) { return cuda_on_host::add(cuda_on_host::kTowardZero, x, y); }
inline float __fsub_rz(float x, float y) { return cuda_on_host::add(cuda_on_host::kTowardZero, x, -y); }
inline float __fmul_rn(float x, float y) { return cuda_on_host::multiply(cuda_on_host::kNearest, x, y); }

inline unsigned __viaddmax_u16x2(unsigned a, unsigned b, unsigned c) {
  unsigned result = 0;
  for (int half = 0; half < 32; half += 16) {
    const unsigned sum = ((a >> half) + (b >> half)) & 0xFFFF, other = c >> half & 0xFFFF;
    result |= (sum > other ? sum : other) << half;
  }
  return result;
}

inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int byte = 0; byte < 32; byte += 8) c += (a >> byte & 0xFF) * (b >> byte & 0xFF);
  return c;
}
