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
  uint line = static_cast<uint>(row) / static_cast<uint>(width);
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

#if RN_SWEEPS
// Backward of small windows. A tile is RN_STRIDE x RN_STRIDE input pixels, the first at a multiple of
// the stride before the padding: which outputs see which of its pixels, and at which place, is then
// known when the kernel is compiled. A thread walks down a strip of tiles and keeps the outputs its
// next tile sees too.
constexpr int kSeen = (RN_WINDOW + RN_STRIDE - 1) / RN_STRIDE, kTilePixels = RN_STRIDE * RN_STRIDE;

__device__ __forceinline__ int tiles_along(Index extent) {
  return (static_cast<int>(extent) + RN_PAD + RN_STRIDE - 1) / RN_STRIDE;
}

// Outputs of a max-pool: their gradients and winners.
struct MaxOutputs {
  const void* dy;
  const void* argmax;
  struct Output {
    Pack dy;
    Places winners;
  };

  __device__ __forceinline__ Output read(const PoolShape& s, Index n, int p, int q,
                                         int column) const {
    Output output;
    if (p < 0 || p >= s.p || q < 0 || q >= s.q) {
      output.dy = zeros();
#pragma unroll
      for (int j = 0; j < kWidth; ++j) output.winners.value[j] = 0;
      return output;
    }
    Index at = (n * s.p + p) * s.q + q;
    output.dy = fetch(dy, at, column);
    output.winners = *reinterpret_cast<const Places*>(static_cast<const Place*>(argmax) +
                                                      (at * kColumns + column) * kWidth);
    return output;
  }

  static __device__ __forceinline__ void add(Floats& dx, const Output& from, int place) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      if (static_cast<int>(from.winners.value[j]) == place) dx[j] += widen(from.dy.value[j]);
  }
};

// dx of pixel (i, j) of a tile: the sum over the outputs that see it, the nearest to the begin first.
template <class Given, class Output>
__device__ __forceinline__ void add_outputs(Floats& dx, const Output (&seen)[kSeen][kSeen], int i,
                                            int j) {
  zero(dx);
#pragma unroll
  for (int l = kSeen - 1; l >= 0; --l)
#pragma unroll
    for (int m = kSeen - 1; m >= 0; --m) {
      const int r = l * RN_STRIDE + i, t = m * RN_STRIDE + j;
      if (r < RN_WINDOW && t < RN_WINDOW) Given::add(dx, seen[l][m], r * RN_WINDOW + t);
    }
}

// Hands dx of each pixel of a strip to visitor.use(k, row, inside, dx), k counting the pixels of a
// tile; visitor.fetch(k, row, inside) comes first, for all pixels of the tile.
template <class Given, class Visitor>
__device__ __forceinline__ void sweep(const Given& given, const PoolShape& s, Index index,
                                      int column, Visitor& visitor) {
  Strip strip(index, tiles_along(s.h), tiles_along(s.w), RN_ROWS);
  typename Given::Output seen[kSeen][kSeen];
#pragma unroll 1
  for (int step = strip.first - kSeen + 1; step < strip.end; ++step) {
#pragma unroll
    for (int m = 0; m < kSeen; ++m) {
#pragma unroll
      for (int l = kSeen - 1; l > 0; --l) seen[l][m] = seen[l - 1][m];
      seen[0][m] = given.read(s, strip.n, step, strip.across - m, column);
    }
    if (step < strip.first) continue;
    int h0 = step * RN_STRIDE - RN_PAD, w0 = strip.across * RN_STRIDE - RN_PAD;
    Index row = (strip.n * s.h + h0) * s.w + w0;
#pragma unroll
    for (int k = 0; k < kTilePixels; ++k) {
      const int i = k / RN_STRIDE, j = k % RN_STRIDE;
      bool inside = h0 + i >= 0 && h0 + i < s.h && w0 + j >= 0 && w0 + j < s.w;
      visitor.fetch(k, row + i * s.w + j, inside);
    }
#pragma unroll
    for (int k = 0; k < kTilePixels; ++k) {
      const int i = k / RN_STRIDE, j = k % RN_STRIDE;
      bool inside = h0 + i >= 0 && h0 + i < s.h && w0 + j >= 0 && w0 + j < s.w;
      Floats dx;
      add_outputs<Given>(dx, seen, i, j);
      visitor.use(k, row + i * s.w + j, inside, dx);
    }
  }
}

__device__ __forceinline__ Index strips_of(const PoolShape& s) {
  return Strip::count(s.n, tiles_along(s.h), tiles_along(s.w), RN_ROWS);
}

// Stores dx and no more.
struct StoreGradient {
  void* dx;
  int column;

  __device__ __forceinline__ void fetch(int, Index, bool) {}
  __device__ __forceinline__ void use(int, Index row, bool inside, const Floats& sum) {
    if (inside) store(dx, row, column, sum);
  }
};
#endif

}  // namespace rn
