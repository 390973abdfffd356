// SPDX-License-Identifier: Apache-2.0
// Fibers, one block after another on the calling thread. ucontext gives each its stack; from then on setjmp and longjmp
// go to and fro, which do not ask the kernel for anything.

#undef _FORTIFY_SOURCE  // its longjmp takes a jump to another stack for a fault

#include "cuda_on_host.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <setjmp.h>
#include <ucontext.h>
#include <vector>

thread_local uint3 threadIdx, blockIdx;

namespace cuda_on_host {

namespace {

constexpr std::size_t kStack = 64 << 10, kSharedMemory = 48 << 10;  // what every device gives a block
constexpr unsigned kWarp = 32;

enum State { kReady, kAtBlockBarrier, kAtWarpBarrier, kDone };

struct Fiber {
  ucontext_t start;
  jmp_buf place;
  bool begun;
  State state;
  std::unique_ptr<char[]> stack;
};

struct Block {
  std::vector<Fiber> fibers;
  jmp_buf scheduler;
  unsigned current = 0;
  const std::function<void()>* kernel = nullptr;
  alignas(64) char shared[kSharedMemory];
  const char* problem = nullptr;
};

thread_local Block* block = nullptr;

void enter() {
  (*block->kernel)();
  block->fibers[block->current].state = kDone;
  _longjmp(block->scheduler, 1);
}

void wait(State state) {
  Fiber& fiber = block->fibers[block->current];
  fiber.state = state;
  if (_setjmp(fiber.place) == 0) _longjmp(block->scheduler, 1);
}

void resume(unsigned thread) {
  Fiber& fiber = block->fibers[thread];
  block->current = thread;
  threadIdx = {thread, 0, 0};
  if (_setjmp(block->scheduler) != 0) return;
  if (fiber.begun) _longjmp(fiber.place, 1);
  fiber.begun = true;
  setcontext(&fiber.start);
}

// Lets those go on that wait for each other and are all there.
bool release(unsigned first, unsigned count, State waiting) {
  const auto begin = block->fibers.begin() + first, end = begin + count;
  if (std::none_of(begin, end, [=](const Fiber& fiber) { return fiber.state == waiting; })) return false;
  if (std::any_of(begin, end, [=](const Fiber& fiber) { return fiber.state != waiting; })) return false;
  std::for_each(begin, end, [](Fiber& fiber) { fiber.state = kReady; });
  return true;
}

void run_block(unsigned threads, int order, std::mt19937& random) {
  for (unsigned thread = 0; thread < threads; ++thread) {
    Fiber& fiber = block->fibers[thread];
    getcontext(&fiber.start);
    fiber.start.uc_stack = {fiber.stack.get(), 0, kStack};
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, enter, 0);
    fiber.begun = false;
    fiber.state = kReady;
  }
  std::memset(block->shared, 0xA5, kSharedMemory);
  std::vector<unsigned> turns(threads);
  std::iota(turns.begin(), turns.end(), 0u);
  if (order == kBackward) std::reverse(turns.begin(), turns.end());
  for (;;) {
    if (order == kShuffled) std::shuffle(turns.begin(), turns.end(), random);
    bool moved = false;
    for (unsigned thread : turns)
      if (block->fibers[thread].state == kReady) resume(thread), moved = true;
    for (unsigned first = 0; first < threads; first += kWarp)
      moved |= release(first, std::min(kWarp, threads - first), kAtWarpBarrier);
    moved |= release(0, threads, kAtBlockBarrier);
    if (moved) continue;
    const bool done = std::all_of(block->fibers.begin(), block->fibers.begin() + threads,
                                  [](const Fiber& fiber) { return fiber.state == kDone; });
    if (!done) block->problem = "threads wait at a barrier that others never reach";
    return;
  }
}

}  // namespace

void* shared_memory(std::size_t bytes) {
  if (bytes > kSharedMemory) block->problem = "more shared memory than a block has";
  return block->shared;
}

void wait_for_block() { wait(kAtBlockBarrier); }
void wait_for_warp() { wait(kAtWarpBarrier); }

const char* run(const std::function<void()>& kernel, Grid grid, unsigned threads, int order, unsigned seed) {
  static thread_local Block own;  // its stacks serve every launch
  own.kernel = &kernel;
  own.problem = nullptr;
  while (own.fibers.size() < threads) own.fibers.push_back({{}, {}, false, kDone, std::unique_ptr<char[]>(new char[kStack])});
  block = &own;
  std::mt19937 random(seed);
  for (unsigned y = 0; y < grid.y && own.problem == nullptr; ++y)
    for (unsigned x = 0; x < grid.x && own.problem == nullptr; ++x) {
      blockIdx = {x, y, 0};
      run_block(threads, order, random);
    }
  block = nullptr;
  return own.problem;
}

}  // namespace cuda_on_host
