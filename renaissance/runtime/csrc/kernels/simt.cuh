// A tile of a matrix product in fp32, without tensor cores: full precision, sums in order of k.
//
// The same interface as MatrixTile. A block of 16 x 16 threads computes kTileM x kTileN, a thread a
// sixteenth of each. The next stage travels through registers while this one is multiplied.
#pragma once

#include "device.cuh"

namespace rn {

struct FloatOperand {
  const float* data;
  int rows, depth, stride;
};

// One operand's part of a stage: kRows rows, kTileK deep, stored across k.
template <int kRows, bool kAlongK>
struct FloatStage {
  static constexpr int kTileK = 16, kThreads = 256, kPitch = kRows + 4;
  static constexpr int kEach = kRows * kTileK / kThreads;

  float value[kEach];

  __device__ __forceinline__ static int row_of(int i) {
    int index = i * kThreads + threadIdx.x;
    return kAlongK ? index / kTileK : index % kRows;
  }

  __device__ __forceinline__ static int k_of(int i) {
    int index = i * kThreads + threadIdx.x;
    return kAlongK ? index % kTileK : index / kRows;
  }

  __device__ __forceinline__ void fetch(const FloatOperand& a, int row0, int k0) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      int row = row0 + row_of(i), k = k0 + k_of(i);
      Index offset = kAlongK ? static_cast<Index>(row) * a.stride + k
                             : static_cast<Index>(k) * a.stride + row;
      value[i] = row < a.rows && k < a.depth ? a.data[offset] : 0.0f;
    }
  }

  __device__ __forceinline__ void put(float* tile) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) tile[k_of(i) * kPitch + row_of(i)] = value[i];
  }
};

template <int kRowsM, int kRowsN, bool kAAlongK, bool kBAlongK>
struct FloatTile {
  static constexpr int kTileM = kRowsM, kTileN = kRowsN, kTileK = 16, kThreads = 256;
  static constexpr int kM = kTileM / 16, kN = kTileN / 16;
  typedef FloatStage<kTileM, kAAlongK> StageA;
  typedef FloatStage<kTileN, kBAlongK> StageB;
  static constexpr int kSharedBytes = kTileK * (StageA::kPitch + StageB::kPitch) * 4;
  static_assert(kN % 2 == 0, "sums are handed out in pairs");

  float sum[kM][kN];

  __device__ __forceinline__ void compute(float* shared, const FloatOperand& a,
                                          const FloatOperand& b, int m0, int n0) {
#pragma unroll
    for (int i = 0; i < kM; ++i)
#pragma unroll
      for (int j = 0; j < kN; ++j) sum[i][j] = 0.0f;
    float *tile_a = shared, *tile_b = shared + kTileK * StageA::kPitch;
    StageA next_a;
    StageB next_b;
    next_a.fetch(a, m0, 0);
    next_b.fetch(b, n0, 0);
    for (int k0 = 0; k0 < a.depth; k0 += kTileK) {
      __syncthreads();
      next_a.put(tile_a);
      next_b.put(tile_b);
      __syncthreads();
      next_a.fetch(a, m0, k0 + kTileK);
      next_b.fetch(b, n0, k0 + kTileK);
      multiply(tile_a, tile_b);
    }
  }

  __device__ __forceinline__ void multiply(const float* tile_a, const float* tile_b) {
    typedef Vector<float, kM> Left;
    typedef Vector<float, kN> Right;
    int m = threadIdx.x / 16 * kM, n = threadIdx.x % 16 * kN;
#pragma unroll
    for (int k = 0; k < kTileK; ++k) {
      Left left = *reinterpret_cast<const Left*>(tile_a + k * StageA::kPitch + m);
      Right right = *reinterpret_cast<const Right*>(tile_b + k * StageB::kPitch + n);
#pragma unroll
      for (int i = 0; i < kM; ++i)
#pragma unroll
        for (int j = 0; j < kN; ++j) sum[i][j] = fmaf(left.value[i], right.value[j], sum[i][j]);
    }
  }

  template <class Function>
  __device__ __forceinline__ void each_pair(int m0, int n0, Function function) {
    int m = m0 + threadIdx.x / 16 * kM, n = n0 + threadIdx.x % 16 * kN;
#pragma unroll
    for (int i = 0; i < kM; ++i)
#pragma unroll
      for (int j = 0; j < kN; j += 2) function(m + i, n + j, sum[i][j], sum[i][j + 1]);
  }
};

}  // namespace rn
