// Backward of batch norm, the activation behind it and a max-pool whose windows tile the map: sums,
// then dx. Nobody stored who won: x is read anyway, and a window's winner is searched again in it.
#include "norm_gradient.cuh"
#include "window.cuh"

using namespace rn;

static_assert(RN_WINDOW == RN_STRIDE && RN_PAD == 0, "a pixel lies in one window at most");

constexpr int kPixels = RN_WINDOW * RN_WINDOW;

// A window of the map, cut off where the map ends. One that is cut off has no output.
struct Tile {
  Index out, corner;  // the row of its output, and of its first pixel
  int down, across;   // its pixels inside the map

  __device__ __forceinline__ Tile(const PoolShape& s, Pixel at)
      : out((at.n * s.p + at.h) * s.q + at.w),
        corner((at.n * s.h + at.h * RN_STRIDE) * s.w + at.w * RN_STRIDE),
        down(extent(at.h, s.h)),
        across(extent(at.w, s.w)) {}

  __device__ __forceinline__ bool whole() const { return down == RN_WINDOW && across == RN_WINDOW; }
  __device__ __forceinline__ bool holds(int k) const {
    return k / RN_WINDOW < down && k % RN_WINDOW < across;
  }
  __device__ __forceinline__ Index row(int k, const PoolShape& s) const {
    return corner + k / RN_WINDOW * s.w + k % RN_WINDOW;
  }

  static __device__ __forceinline__ int extent(int at, Index end) {
    int left = static_cast<int>(end) - at * RN_STRIDE;
    return left < RN_WINDOW ? left : RN_WINDOW;
  }
};

// The first of the largest activated values of a whole window, channel by channel; NaN is the largest.
struct Winner {
  Floats z, x;
  int place[kWidth];

  __device__ __forceinline__ Winner(const Pack (&pixels)[kPixels], const PackNorm& norm) {
    constexpr bool kClips = RN_ACTIVATION == kNone || RN_ACTIVATION == kRelu || RN_ACTIVATION == kRelu6;
    Floats best;
#pragma unroll
    for (int k = 0; k < kPixels; ++k)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        float value = widen(pixels[k].value[j]), here = norm(value, j);
        float y = rounded<Element>(activate(RN_ACTIVATION, kClips ? here : rounded<Element>(here)));
        if (k == 0 || y > best[j] || (y != y && best[j] == best[j]))
          best[j] = y, z[j] = here, x[j] = value, place[j] = k;
      }
  }
};

extern "C" __global__ void __launch_bounds__(256)
    batch_norm_max_pool_backward_sums_kernel(const BatchNormBackward op) {
  const PoolShape& s = op.pool;
  Reduction block;
  Floats sum, product;
  zero(sum), zero(product);
  if (block.active) {
    PackNorm norm;
    norm.read(op.norm, block.column);
    Index step = static_cast<Index>(gridDim.x) * kRowLanes;
    Index first = static_cast<Index>(blockIdx.x) * kRowLanes + block.lane;
    for (Index out = first; out < s.n * s.p * s.q; out += step) {
      Tile tile(s, pixel_of(out, s.p, s.q));
      Pack pixels[kPixels];
#pragma unroll
      for (int k = 0; k < kPixels; ++k) pixels[k] = fetch(op.x, tile.row(k, s), block.column);
      Floats dy;
      load(dy, op.dy, out, block.column);
      Winner winner(pixels, norm);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        float dz = masked(dy[j], winner.z[j]);
        sum[j] += dz;
        product[j] += dz * (winner.x[j] - norm.mean[j]);
      }
    }
  }
  block.write(op.partial, sum, 0, 2);
  block.write(op.partial, product, 1, 2);
}

extern "C" __global__ void __launch_bounds__(256)
    batch_norm_max_pool_backward_apply_kernel(const BatchNormBackward op) {
  const PoolShape& s = op.pool;
  Index down = (s.h + RN_STRIDE - 1) / RN_STRIDE, across = (s.w + RN_STRIDE - 1) / RN_STRIDE;
  Walk walk;
  if (walk.row >= s.n * down * across) return;
  PackNorm norm;
  Affine affine;
  norm.read(op.norm, walk.column);
  affine.read(op.norm, op.dgamma, op.dbeta, op.rows, walk.column);
  // from the last window to the first: the cache still holds what the sums read last
  for (Index i = s.n * down * across - 1 - walk.row; i >= 0; i -= walk.step) {
    Tile tile(s, pixel_of(i, down, across));
    Pack pixels[kPixels];
#pragma unroll
    for (int k = 0; k < kPixels; ++k)
      pixels[k] = tile.holds(k) ? fetch(op.x, tile.row(k, s), walk.column) : zeros();
    Floats dy;
    zero(dy);
    if (tile.whole()) load(dy, op.dy, tile.out, walk.column);
    Winner winner(pixels, norm);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) dy[j] = masked(dy[j], winner.z[j]);
#pragma unroll
    for (int k = 0; k < kPixels; ++k) {
      Floats x, dz;
      unpack(x, pixels[k]);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) dz[j] = winner.place[j] == k ? dy[j] : 0.0f;
      affine(x, dz);
      if (tile.holds(k)) store(op.dx, tile.row(k, s), walk.column, x);
    }
  }
}
