// SPDX-License-Identifier: Apache-2.0
// The device's sources, compiled for the host, and one entry that launches any of them.

#include <cstddef>
#include <cstring>

#include "v1.cu"
#include "v4.cu"
#include "v9.cu"

namespace {

using namespace mmaemu;

struct Kernel {
  const char* name;
  void (*run)(const void* arguments);
};

#define PRODUCT(name) {#name, [](const void* p) { name(*static_cast<const Product*>(p)); }}

#define TILES(name)                                                                  \
  PRODUCT(name##_g16_fast), PRODUCT(name##_g16_slow), PRODUCT(name##_g16_split),     \
      PRODUCT(name##_g32_fast), PRODUCT(name##_g32_slow), PRODUCT(name##_g32_split),

const Kernel kKernels[] = {
    PRODUCT(mmaemu_v1_product),
    {"mmaemu_v1_dot", [](const void* d) { mmaemu_v1_dot(*static_cast<const Dot*>(d)); }},
    {"mmaemu_v1_mark", [](const void* lines) { mmaemu_v1_mark(*static_cast<const Lines*>(lines)); }},
    TILES(mmaemu_v4)
    TILES(mmaemu_v9)
};

}  // namespace

extern "C" {

const char* host_launch(const char* name, unsigned grid_x, unsigned grid_y, unsigned threads, const void* arguments,
                        int order, unsigned seed) {
  for (const Kernel& kernel : kKernels)
    if (std::strcmp(kernel.name, name) == 0)
      return cuda_on_host::run([&] { kernel.run(arguments); }, {grid_x, grid_y}, threads, order, seed);
  return "no such kernel";
}

// Sizes and the places of last fields, as arguments.py must have them.
unsigned long host_layout(int structure) {
  switch (structure) {
    case 0: return sizeof(Product) << 16 | offsetof(Product, column_marks);
    case 1: return sizeof(Dot) << 16 | offsetof(Dot, accumulator);
    default: return sizeof(Lines) << 16 | offsetof(Lines, lowest);
  }
}

// The shim's own arithmetic, for tests.
float host_fma_rz(float x, float y, float z) { return __fmaf_rz(x, y, z); }
float host_fma_rn(float x, float y, float z) { return __fmaf_rn(x, y, z); }
float host_add_rz(float x, float y) { return __fadd_rz(x, y); }

}
