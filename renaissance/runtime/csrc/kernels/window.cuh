// Windows of a pool over a map: RN_WINDOW, RN_STRIDE, RN_PAD.
#pragma once

#include "map.cuh"

namespace rn {

#if RN_ARGMAX_BYTES == 4
typedef int Place;
#else
typedef unsigned char Place;
#endif
typedef Vector<Place, kWidth> Places;

struct Pixel {
  Index n;
  int h, w;
};

// The pixel that row number `row` of a map (n, height, width) is.
__device__ __forceinline__ Pixel pixel_of(Index row, Index height, Index width) {
  uint line = static_cast<uint>(row / width);
  uint n = line / static_cast<uint>(height);
  return {n, static_cast<int>(line - n * static_cast<uint>(height)),
          static_cast<int>(row - static_cast<Index>(line) * width)};
}

// Outputs first..last whose windows see input position `at`.
__device__ __forceinline__ int first_output(int at) {
  int beyond = at + RN_PAD - RN_WINDOW + 1;
  return beyond <= 0 ? 0 : (beyond + RN_STRIDE - 1) / RN_STRIDE;
}

__device__ __forceinline__ int last_output(int at, Index outputs) {
  int last = (at + RN_PAD) / RN_STRIDE;
  return last < outputs ? last : static_cast<int>(outputs) - 1;
}

// The gradient of a max-pool's input at a pixel: gathered from the windows it wins, in order.
__device__ __forceinline__ void gather_winners(Floats& dx, const void* dy, const void* argmax,
                                               const PoolShape& s, Pixel at, int column) {
  zero(dx);
  int p1 = last_output(at.h, s.p), q1 = last_output(at.w, s.q);
  for (int p = first_output(at.h); p <= p1; ++p)
    for (int q = first_output(at.w); q <= q1; ++q) {
      Index out = (at.n * s.p + p) * s.q + q;
      int place = (at.h - p * RN_STRIDE + RN_PAD) * RN_WINDOW + at.w - q * RN_STRIDE + RN_PAD;
      Places winners = *reinterpret_cast<const Places*>(static_cast<const Place*>(argmax) +
                                                        (out * kColumns + column) * kWidth);
      Floats d;
      load(d, dy, out, column);
#pragma unroll
      for (int j = 0; j < kWidth; ++j)
        if (static_cast<int>(winners.value[j]) == place) dx[j] += d[j];
    }
}

}  // namespace rn
