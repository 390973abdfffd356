// SPDX-License-Identifier: Apache-2.0
// What every kernel stands on: names of integers, and how functions and kernels are declared. The same sources compile as
// C++ for the CPU, where tests/support/cuda_host/cuda_on_host.h stands in for the device.

#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define MMAEMU_FUNCTION __device__ __forceinline__
#define MMAEMU_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
// The one object of shared memory that a block has.
#define MMAEMU_SHARED(Type, name) __shared__ Type name
#define MMAEMU_UNROLL _Pragma("unroll")
#define MMAEMU_UNROLL_BY_4 _Pragma("unroll 4")
#else
#include "cuda_on_host.h"
#define MMAEMU_FUNCTION inline
#define MMAEMU_KERNEL(threads) extern "C" void
#define MMAEMU_SHARED(Type, name) Type& name = cuda_on_host::shared<Type>()
#define MMAEMU_UNROLL
#define MMAEMU_UNROLL_BY_4
#endif

namespace mmaemu {

using u8 = unsigned char;
using i8 = signed char;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

template <class T>
MMAEMU_FUNCTION T smaller(T x, T y) { return y < x ? y : x; }

template <class T>
MMAEMU_FUNCTION T larger(T x, T y) { return x < y ? y : x; }

}  // namespace mmaemu
