// Filters of a depthwise convolution: RN_R x RN_S taps of every channel, in registers.
#pragma once

#include "map.cuh"

namespace rn {

constexpr int kTaps = RN_R * RN_S;

// The filters of a pack of channels, which lie together in memory as (channel, tap).
struct Filters {
  Floats tap[kTaps];

  __device__ __forceinline__ Filters(const void* w, int column) {
    const Pack* from = static_cast<const Pack*>(w) + column * kTaps;
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
      Floats some;
      unpack(some, from[i]);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const int at = i * kWidth + j;
        tap[at % kTaps][at / kTaps] = some[j];
      }
    }
  }
};

}  // namespace rn
