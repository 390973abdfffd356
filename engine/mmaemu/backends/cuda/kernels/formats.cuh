// SPDX-License-Identifier: Apache-2.0
// The number formats, in the order in which Python counts them.

#pragma once

#include "platform.cuh"

namespace mmaemu {

struct Format {
  i32 exponent_bits, fraction_bits, bias;
  i32 has_infinity;  // e4m3 has none, and one NaN for each sign
  i32 ignored_bits;  // of storage, below the fraction: tf32 in float32
  i32 bytes;

  MMAEMU_FUNCTION constexpr u32 sign() const { return 1u << (8 * bytes - 1); }
  MMAEMU_FUNCTION constexpr i32 lowest() const { return 1 - bias; }  // exponent of the smallest normal number, and of subnormals
  MMAEMU_FUNCTION constexpr u32 top() const { return (1u << exponent_bits) - 1; }
  MMAEMU_FUNCTION constexpr i32 highest() const { return i32(top()) - (has_infinity ? 1 : 0) - bias; }
  // Of words without their ignored bits: the largest number, and what lies above it.
  MMAEMU_FUNCTION constexpr u32 largest() const {
    return ((top() << fraction_bits) | ((1u << fraction_bits) - 1)) - (has_infinity ? 1u << fraction_bits : 1u);
  }
  MMAEMU_FUNCTION constexpr u32 above() const { return largest() + 1; }  // infinity, or e4m3's NaN
};

enum FormatIndex { kE4M3, kE5M2, kF16, kBF16, kTF32, kF32 };

MMAEMU_FUNCTION constexpr Format format_of(i32 index) {
  switch (index) {
    case kE4M3: return {4, 3, 7, 0, 0, 1};
    case kE5M2: return {5, 2, 15, 1, 0, 1};
    case kF16: return {5, 10, 15, 1, 0, 2};
    case kBF16: return {8, 7, 127, 1, 0, 2};
    case kTF32: return {8, 10, 127, 1, 13, 4};
    default: return {8, 23, 127, 1, 0, 4};
  }
}

}  // namespace mmaemu
