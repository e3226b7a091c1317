// The sweep of window.cuh over a norm's input and the outputs of the max-pool behind it, brought to
// shared memory RN_STEPS_AHEAD steps ahead. A thread copies for itself alone, so no barrier is needed,
// and what is on its way takes no registers.
#pragma once

#include "window.cuh"

namespace rn {

struct Ahead {
  Pack x[kTilePixels][256], dy[kSeen][256];
  Places winners[kSeen][256];
};

template <class T>
__device__ __forceinline__ void copy_ahead(T& to, const void* map, Index pack, bool inside) {
  const T* from = static_cast<const T*>(map);
  copy_async<sizeof(T)>(shared_address(&to), inside ? from + pack : from, inside);
}

// Hands visitor.use(k, row, inside, dx) what sweep does, with x of the pixel in visitor.ahead[k].
// `stages` are RN_STEPS_AHEAD + 1 in shared memory.
template <class Visitor>
__device__ __forceinline__ void sweep_ahead(const BatchNormBackward& op, Index index, int column,
                                            Visitor& visitor, Ahead* stages) {
  const PoolShape& s = op.pool;
  const int thread = threadIdx.x;
  Strip strip(index, tiles_along(s.h), tiles_along(s.w), RN_ROWS);
  int w0 = strip.across * RN_STRIDE - RN_PAD, coming = 0, stage = 0;
  auto fetch = [&](int step) {
    if (step < strip.end) {
      Ahead& to = stages[coming];
#pragma unroll
      for (int m = 0; m < kSeen; ++m) {
        int q = strip.across - m;
        bool inside = step >= 0 && step < s.p && q >= 0 && q < s.q;
        Index pack = ((strip.n * s.p + step) * s.q + q) * kColumns + column;
        copy_ahead(to.dy[m][thread], op.dy, pack, inside);
        copy_ahead(to.winners[m][thread], op.argmax, pack, inside);
      }
      int h0 = step * RN_STRIDE - RN_PAD;
#pragma unroll
      for (int k = 0; k < kTilePixels; ++k) {
        int h = h0 + k / RN_STRIDE, w = w0 + k % RN_STRIDE;
        bool inside = step >= strip.first && h >= 0 && h < s.h && w >= 0 && w < s.w;
        copy_ahead(to.x[k][thread], op.x, ((strip.n * s.h + h) * s.w + w) * kColumns + column, inside);
      }
    }
    commit_copies();
    coming = coming == RN_STEPS_AHEAD ? 0 : coming + 1;
  };
  int begin = strip.first - kSeen + 1;
#pragma unroll
  for (int a = 0; a < RN_STEPS_AHEAD; ++a) fetch(begin + a);
  MaxOutputs::Output seen[kSeen][kSeen];
#pragma unroll 1
  for (int step = begin; step < strip.end; ++step) {
    fetch(step + RN_STEPS_AHEAD);
    wait_copies<RN_STEPS_AHEAD>();
    const Ahead& now = stages[stage];
    stage = stage == RN_STEPS_AHEAD ? 0 : stage + 1;
#pragma unroll
    for (int m = 0; m < kSeen; ++m) {
#pragma unroll
      for (int l = kSeen - 1; l > 0; --l) seen[l][m] = seen[l - 1][m];
      seen[0][m] = {now.dy[m][thread], now.winners[m][thread]};
    }
    if (step < strip.first) continue;
    int h0 = step * RN_STRIDE - RN_PAD;
    Index row = (strip.n * s.h + h0) * s.w + w0;
#pragma unroll
    for (int k = 0; k < kTilePixels; ++k) {
      const int i = k / RN_STRIDE, j = k % RN_STRIDE;
      bool inside = h0 + i >= 0 && h0 + i < s.h && w0 + j >= 0 && w0 + j < s.w;
      Floats dx;
      add_outputs<MaxOutputs>(dx, seen, i, j);
      visitor.ahead[k] = now.x[k][thread];
      visitor.use(k, row + i * s.w + j, inside, dx);
    }
  }
}

}  // namespace rn
