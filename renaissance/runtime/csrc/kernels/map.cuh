// How kernels walk a map of RN_C channels: packs of RN_WIDTH channels, one thread to a pack.
//
// RN_WIDTH is 16 bytes of channels where RN_C allows it, less where rows would not be aligned.
// Reductions over pixels give a block RN_TILE neighbouring packs and as many rows at a time as fit.
#pragma once

#include "device.cuh"
#include "norm.h"

// Pixels that a thread fetches before it uses the first of them (in_groups).
#ifndef RN_AHEAD
#define RN_AHEAD 1
#endif

namespace rn {

constexpr int kWidth = RN_WIDTH;
constexpr int kColumns = RN_C / kWidth;
static_assert(RN_C % kWidth == 0, "packs must not straddle a pixel");

// Blocks of 256 threads to a multiprocessor that a norm's passes are launched with, all at once
// (lowering/launches/packs.py): each thread keeps the registers for what it fetches ahead.
constexpr int kResident = 2;

typedef Vector<Element, kWidth> Pack;
typedef float Floats[kWidth];

// A pack as it lies in memory: half the registers of its floats, so what is fetched ahead stays packed.
__device__ __forceinline__ Pack fetch(const void* map, Index pixel, int column) {
  Index at = (pixel * kColumns + column) * kWidth;
  return *reinterpret_cast<const Pack*>(static_cast<const Element*>(map) + at);
}

__device__ __forceinline__ void unpack(Floats& to, const Pack& pack) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) to[j] = widen(pack.value[j]);
}

__device__ __forceinline__ Pack zeros() {
  Pack pack;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) pack.value[j] = Element(0);  // all bits zero in either type
  return pack;
}

__device__ __forceinline__ void load(Floats& to, const void* map, Index pixel, int column) {
  unpack(to, fetch(map, pixel, column));
}

__device__ __forceinline__ void store(void* map, Index pixel, int column, const Floats& from) {
  Index at = (pixel * kColumns + column) * kWidth;
  if constexpr (sizeof(Element) == 2 && kWidth % 2 == 0) {
    Vector<uint, (kWidth + 1) / 2> pairs;
#pragma unroll
    for (int j = 0; j < kWidth; j += 2) pairs.value[j / 2] = pack_halves(from[j], from[j + 1]);
    *reinterpret_cast<Vector<uint, (kWidth + 1) / 2>*>(static_cast<Element*>(map) + at) = pairs;
  } else {
    Pack pack;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) pack.value[j] = narrow<Element>(from[j]);
    *reinterpret_cast<Pack*>(static_cast<Element*>(map) + at) = pack;
  }
}

// The byte of a mask that says of which channels of a pack the gradient passes the activation.
__device__ __forceinline__ void store_mask(void* mask, int activation, Index pixel, int column,
                                           const Floats& z) {
  static_assert(kWidth <= 8, "a pack's bits must fit its byte");
  uint bits = 0;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) bits |= is_open(activation, z[j]) ? 1u << j : 0u;
  static_cast<unsigned char*>(mask)[pixel * kColumns + column] = static_cast<unsigned char>(bits);
}

// Channel constants of a pack, four at a time; aligned, because RN_WIDTH divides RN_C.
__device__ __forceinline__ void constants(Floats& to, const float* from, int column) {
  constexpr int kLoad = kWidth < 4 ? kWidth : 4;
#pragma unroll
  for (int j = 0; j < kWidth; j += kLoad) {
    Vector<float, kLoad> some =
        *reinterpret_cast<const Vector<float, kLoad>*>(from + column * kWidth + j);
#pragma unroll
    for (int k = 0; k < kLoad; ++k) to[j + k] = some.value[k];
  }
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

// Pixels `first`, `first + step`... below `rows`, or as far from the end where kFromEnd: RN_AHEAD of
// them are fetched before the first is used, so that their bytes are on their way together.
template <bool kFromEnd, class Body>
__device__ __forceinline__ void in_groups(Index first, Index step, Index rows, Body& body) {
  for (Index begin = first; begin < rows; begin += RN_AHEAD * step) {
#pragma unroll
    for (int k = 0; k < RN_AHEAD; ++k) {
      Index row = begin + k * step;
      if (row < rows) body.fetch(k, kFromEnd ? rows - 1 - row : row);
    }
#pragma unroll
    for (int k = 0; k < RN_AHEAD; ++k) {
      Index row = begin + k * step;
      if (row < rows) body.use(k, kFromEnd ? rows - 1 - row : row);
    }
  }
}

// Strips of a map: columns of pixels, or of groups of them, cut into segments of at most RN_ROWS steps.
// A thread walks down a strip and keeps in registers what its next step needs again.
struct Strip {
  Index n;
  int across, first, end;  // its place along a row; its steps

  __device__ __forceinline__ Strip(Index index, int steps, int strips, int most) {
    uint line = static_cast<uint>(index) / static_cast<uint>(strips);
    int segments = (steps + most - 1) / most, rows = (steps + segments - 1) / segments;
    across = static_cast<int>(static_cast<uint>(index) - line * static_cast<uint>(strips));
    n = line / static_cast<uint>(segments);
    first = static_cast<int>(line % static_cast<uint>(segments)) * rows;
    end = first + rows < steps ? first + rows : steps;
  }

  static __device__ __forceinline__ Index count(Index n, int steps, int strips, int most) {
    return n * ((steps + most - 1) / most) * strips;
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

// A block of a reduction: its piece of the rows, blockIdx.x, and its tile of the columns, blockIdx.y, if
// not said otherwise.
struct Reduction {
  int piece, tile, lane, slot, column;
  bool active;

  __device__ __forceinline__ Reduction() : Reduction(blockIdx.x, blockIdx.y) {}
  __device__ __forceinline__ Reduction(int piece, int tile) : piece(piece), tile(tile) {
    slot = threadIdx.x % kTile, lane = threadIdx.x / kTile;
    column = tile * kTile + slot;
    active = lane < kRowLanes && column < kColumns;
  }

  // The first row of a thread, and how far it is to its next.
  __device__ __forceinline__ Index first() const {
    return static_cast<Index>(piece) * kRowLanes + lane;
  }
  __device__ __forceinline__ Index step() const {
    return static_cast<Index>(gridDim.x) * kRowLanes;
  }

  // Adds up the lanes in order and writes row `piece` of sums number `which` of `count`.
  __device__ __forceinline__ void write(float* partial, const Floats& sum, int which, int count) {
    __shared__ float lanes[kRowLanes][kTile * kWidth];
    __syncthreads();
    if (lane < kRowLanes)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) lanes[lane][slot * kWidth + j] = active ? sum[j] : 0.0f;
    __syncthreads();
    Index row = (static_cast<Index>(piece) * count + which) * RN_C;
    for (int i = threadIdx.x; i < kTile * kWidth; i += kThreads) {
      int c = tile * kTile * kWidth + i;
      if (c >= RN_C) continue;
      float total = 0.0f;
      for (int l = 0; l < kRowLanes; ++l) total += lanes[l][i];
      partial[row + c] = total;
    }
  }
};
#endif

// Sums of kCount columns of partial sums, RN_C apart, as column_sum makes one; their loads are on their
// way together, and warp k adds up the lanes of sum k. All are valid in the first warp.
template <int kCount>
__device__ __forceinline__ void column_sums(const float* partial, Index rows, Index column,
                                            bool inside, double (&total)[kCount]) {
  __shared__ double lanes[kCount][32][33];
  __shared__ double totals[kCount][32];
  int x = threadIdx.x % 32, lane = threadIdx.x / 32;
  double sum[kCount] = {};
  if (inside)
#pragma unroll 8
    for (Index row = lane; row < rows; row += 32)
#pragma unroll
      for (int k = 0; k < kCount; ++k) sum[k] += partial[(row * kCount + k) * RN_C + column];
#pragma unroll
  for (int k = 0; k < kCount; ++k) lanes[k][lane][x] = sum[k];
  __syncthreads();
  if (lane < kCount) {
    double all = 0.0;
#pragma unroll 8
    for (int l = 0; l < 32; ++l) all += lanes[lane][l][x];
    totals[lane][x] = all;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kCount; ++k) total[k] = totals[k][x];
}

// The sum of a column of partial sums: blocks of 32 columns by 32 lanes; valid in lane 0.
// partial holds `rows` rows of `stride` floats.
__device__ __forceinline__ double column_sum(const float* partial, Index rows, Index stride,
                                             Index column, bool inside) {
  __shared__ double lanes[32][33];
  int x = threadIdx.x % 32, lane = threadIdx.x / 32;
  double sum = 0.0;
  if (inside)
#pragma unroll 8
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
