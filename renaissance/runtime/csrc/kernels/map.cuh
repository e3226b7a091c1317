// How kernels walk a map of RN_C channels: packs of RN_WIDTH channels, one thread to a pack.
//
// RN_WIDTH is 16 bytes of channels where RN_C allows it, less where rows would not be aligned.
// Reductions over pixels give a block RN_TILE neighbouring packs and as many rows at a time as fit.
#pragma once

#include "device.cuh"
#include "norm.h"

namespace rn {

constexpr int kWidth = RN_WIDTH;
constexpr int kColumns = RN_C / kWidth;
static_assert(RN_C % kWidth == 0, "packs must not straddle a pixel");

typedef Vector<Element, kWidth> Pack;
typedef float Floats[kWidth];

__device__ __forceinline__ void load(Floats& to, const void* map, Index pixel, int column) {
  Index at = (pixel * kColumns + column) * kWidth;
  Pack pack = *reinterpret_cast<const Pack*>(static_cast<const Element*>(map) + at);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) to[j] = widen(pack.value[j]);
}

__device__ __forceinline__ void store(void* map, Index pixel, int column, const Floats& from) {
  Pack pack;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) pack.value[j] = narrow<Element>(from[j]);
  Index at = (pixel * kColumns + column) * kWidth;
  *reinterpret_cast<Pack*>(static_cast<Element*>(map) + at) = pack;
}

// Channel constants of a pack; aligned, because RN_WIDTH divides RN_C.
__device__ __forceinline__ void constants(Floats& to, const float* from, int column) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) to[j] = from[column * kWidth + j];
}

__device__ __forceinline__ void zero(Floats& x) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) x[j] = 0.0f;
}

// An element-wise pass: each thread keeps to one column, so that its constants are read once.
struct Walk {
  Index row, step;
  int column;

  __device__ __forceinline__ Walk() {
    Index thread = thread_index();
    step = thread_count() / kColumns;
    row = thread / kColumns;
    column = static_cast<int>(thread % kColumns);
    if (row >= step) row = static_cast<Index>(1) << 62;  // threads beyond the last whole row
  }
};

// norm(x) with the constants of a pack.
struct PackNorm {
  Floats mean, scale, beta;

  __device__ __forceinline__ void read(const Norm& n, int column) {
    Floats inverse_std;
    constants(mean, n.mean, column);
    constants(scale, n.gamma, column);
    constants(beta, n.beta, column);
    constants(inverse_std, n.inverse_std, column);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) scale[j] *= inverse_std[j];
  }

  __device__ __forceinline__ float operator()(float x, int j) const {
    return (x - mean[j]) * scale[j] + beta[j];
  }
};

#ifdef RN_TILE
constexpr int kThreads = 256, kTile = RN_TILE, kRowLanes = kThreads / kTile;

// A block of a reduction: blockIdx.x is its piece of the rows, blockIdx.y its tile of the columns.
struct Reduction {
  int lane, slot, column;
  bool active;

  __device__ __forceinline__ Reduction() {
    slot = threadIdx.x % kTile, lane = threadIdx.x / kTile;
    column = blockIdx.y * kTile + slot;
    active = lane < kRowLanes && column < kColumns;
  }

  // Adds up the lanes in order and writes row blockIdx.x of sums number `which` of `count`.
  __device__ __forceinline__ void write(float* partial, const Floats& sum, int which, int count) {
    __shared__ float lanes[kRowLanes][kTile * kWidth];
    __syncthreads();
    if (lane < kRowLanes)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) lanes[lane][slot * kWidth + j] = active ? sum[j] : 0.0f;
    __syncthreads();
    Index row = (static_cast<Index>(blockIdx.x) * count + which) * RN_C;
    for (int i = threadIdx.x; i < kTile * kWidth; i += kThreads) {
      int c = blockIdx.y * kTile * kWidth + i;
      if (c >= RN_C) continue;
      float total = 0.0f;
      for (int l = 0; l < kRowLanes; ++l) total += lanes[l][i];
      partial[row + c] = total;
    }
  }
};
#endif

// The sum of a column of partial sums: blocks of 32 columns by 32 lanes; valid in lane 0.
// partial holds `rows` rows of `stride` floats.
__device__ __forceinline__ double column_sum(const float* partial, Index rows, Index stride,
                                             Index column, bool inside) {
  __shared__ double lanes[32][33];
  int x = threadIdx.x % 32, lane = threadIdx.x / 32;
  double sum = 0.0;
  if (inside)
    for (Index row = lane; row < rows; row += 32) sum += partial[row * stride + column];
  __syncthreads();
  lanes[lane][x] = sum;
  __syncthreads();
  double total = 0.0;
  if (lane == 0)
    for (int l = 0; l < 32; ++l) total += lanes[l][x];
  return total;
}

}  // namespace rn
