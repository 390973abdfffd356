// SPDX-License-Identifier: Apache-2.0
// How this thread's floating-point unit rounds, for as long as a Mode lives; what it was before comes back.

#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mmaemu {

#if defined(__x86_64__)

// Nearest or toward zero; subnormals are kept in either, whatever the caller's thread had.
class Mode {
 public:
  Mode() : before_(_mm_getcsr()) { nearest(); }
  ~Mode() { _mm_setcsr(before_); }
  Mode(const Mode&) = delete;
  Mode& operator=(const Mode&) = delete;
  void nearest() { _mm_setcsr(0x1F80); }
  void toward_zero() { _mm_setcsr(0x1F80 | 0x6000); }

 private:
  unsigned before_;
};

#else

// The kernels that round toward zero are x86-64's; others leave the unit as every program has it.
class Mode {
 public:
  void nearest() {}
  void toward_zero() {}
};

#endif

}  // namespace mmaemu
