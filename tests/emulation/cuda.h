// Runs device code on a processor, one block at a time: every thread of a block is a fiber, and fibers
// change over at barriers, shuffles and matrix instructions. Slow and exact: for tests. A barrier that is
// missing shows: between barriers a thread runs through alone, in odd blocks the last thread first.
#pragma once

#include <csetjmp>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ thread_local
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)

using std::max;
using std::min;

namespace emulation {

struct Dim3 {
  unsigned x = 0, y = 0, z = 0;
};

// Threads that wait for each other. A thread that has ended no longer counts.
struct Barrier {
  int members = 0, waiting = 0, round = 0;
};

struct Fiber {
  ucontext_t start;
  jmp_buf place;
  std::unique_ptr<char[]> stack;
  unsigned thread = 0;
  bool begun = false, ended = false;
};

struct Warp {
  Barrier barrier;
  uint64_t slot[32][12];
};

inline Dim3 block, grid, block_size;
inline std::vector<Fiber> fibers;
inline std::vector<Warp> warps;
inline Barrier block_barrier;
inline Barrier group_barriers[8];  // of four warps each
inline Fiber* current = nullptr;
inline jmp_buf scheduler;
inline void (*body)() = nullptr;

// Jumps, because changing contexts asks the system each time.
inline void give_way() {
  if (!_setjmp(current->place)) _longjmp(scheduler, 1);
}

inline void go_on_with(Fiber& fiber) {
  current = &fiber;
  if (_setjmp(scheduler)) return;
  if (fiber.begun) _longjmp(fiber.place, 1);
  fiber.begun = true;
  setcontext(&fiber.start);
}

inline void wait_at(Barrier& barrier) {
  int round = barrier.round;
  ++barrier.waiting;
  while (barrier.round == round) {
    if (barrier.waiting >= barrier.members) {
      barrier.waiting = 0;
      ++barrier.round;
      return;
    }
    give_way();
  }
}

inline Warp& warp() { return warps[current->thread / 32]; }
inline unsigned lane() { return current->thread % 32; }

inline void enter() {
  body();
  current->ended = true;
  --block_barrier.members;
  --warp().barrier.members;
  --group_barriers[current->thread / 128].members;
  give_way();
}

inline void run_block(unsigned threads) {
  fibers.resize(threads);
  warps.assign((threads + 31) / 32, Warp{});
  block_barrier = {static_cast<int>(threads), 0, 0};
  std::fill(std::begin(group_barriers), std::end(group_barriers), Barrier{});
  for (unsigned t = 0; t < threads; ++t) {
    Fiber& fiber = fibers[t];
    if (!fiber.stack) fiber.stack.reset(new char[128 * 1024]);
    fiber.thread = t;
    fiber.begun = fiber.ended = false;
    ++warps[t / 32].barrier.members;
    ++group_barriers[t / 128].members;
    getcontext(&fiber.start);
    fiber.start.uc_stack = {fiber.stack.get(), 0, 128 * 1024};
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, enter, 0);
  }
  for (bool busy = true; busy;) {
    busy = false;
    for (unsigned i = 0; i < threads; ++i) {
      Fiber& fiber = fibers[block.x % 2 ? threads - 1 - i : i];
      if (fiber.ended) continue;
      busy = true;
      go_on_with(fiber);
    }
  }
}

// Every lane shows `count` words; afterwards each may read all lanes' words.
inline void show(const uint64_t* words, int count) {
  std::copy(words, words + count, warp().slot[lane()]);
  wait_at(warp().barrier);
}

inline void done_reading() { wait_at(warp().barrier); }

}  // namespace emulation

struct ThreadIndex {
  struct X {
    operator unsigned() const { return emulation::current->thread; }
  } x;
};
inline ThreadIndex threadIdx;
#define blockIdx emulation::block
#define gridDim emulation::grid
#define blockDim emulation::block_size

inline void __syncthreads() { emulation::wait_at(emulation::block_barrier); }

template <class T>
T __shfl_xor_sync(unsigned, T value, int distance) {
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  emulation::show(&word, 1);
  word = emulation::warp().slot[emulation::lane() ^ distance][0];
  emulation::done_reading();
  std::memcpy(&value, &word, sizeof(T));
  return value;
}

inline unsigned __float_as_uint(float f) {
  unsigned u;
  std::memcpy(&u, &f, 4);
  return u;
}

inline float __uint_as_float(unsigned u) {
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}

extern thread_local unsigned char shared[];
