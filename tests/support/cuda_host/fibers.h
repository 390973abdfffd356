// SPDX-License-Identifier: Apache-2.0
// A block of threads as fibers. A thread runs until it ends or waits at a barrier; which one runs next is for the caller
// to say, so that a result that depends on the order of threads shows.

#pragma once

#include <functional>

namespace cuda_on_host {

enum ThreadOrder { kForward, kBackward, kShuffled };

struct Grid {
  unsigned x, y;
};

// Runs `kernel` for every block and thread. Returns null, or what the kernel did that a device would not forgive.
const char* run(const std::function<void()>& kernel, Grid grid, unsigned threads, int order, unsigned seed);

void wait_for_block();
void wait_for_warp();

}  // namespace cuda_on_host
