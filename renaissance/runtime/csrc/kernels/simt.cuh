// A tile of a matrix product in fp32, without tensor cores: full precision, sums in order of k.
//
// The same interface as MatrixTile. A block of 16 x 16 threads computes 64 x 64; a thread 4 x 4.
#pragma once

#include "device.cuh"

namespace rn {

struct FloatOperand {
  const float* data;
  int rows, depth, stride;
};

template <bool kAAlongK, bool kBAlongK>
struct FloatTile {
  static constexpr int kTileM = 64, kTileN = 64, kTileK = 16, kThreads = 256;
  static constexpr int kPitch = 68;
  static constexpr int kSharedBytes = 2 * kTileK * kPitch * 4;

  float sum[4][4];

  __device__ __forceinline__ void compute(float* shared, const FloatOperand& a,
                                          const FloatOperand& b, int m0, int n0) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[i][j] = 0.0f;
    float *tile_a = shared, *tile_b = shared + kTileK * kPitch;
    int m = threadIdx.x / 16 * 4, n = threadIdx.x % 16 * 4;
    for (int k0 = 0; k0 < a.depth; k0 += kTileK) {
      __syncthreads();
      load<kAAlongK>(tile_a, a, m0, k0);
      load<kBAlongK>(tile_b, b, n0, k0);
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kTileK; ++k) {
        Vector<float, 4> left = *reinterpret_cast<Vector<float, 4>*>(tile_a + k * kPitch + m);
        Vector<float, 4> right = *reinterpret_cast<Vector<float, 4>*>(tile_b + k * kPitch + n);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(left.value[i], right.value[j], sum[i][j]);
      }
    }
  }

  // Shared tiles are stored across k, whichever way the operand lies in memory.
  template <bool kAlongK>
  __device__ __forceinline__ static void load(float* tile, const FloatOperand& a, int row0,
                                              int k0) {
#pragma unroll
    for (int i = 0; i < 64 * kTileK / kThreads; ++i) {
      int index = i * kThreads + threadIdx.x;
      int row = kAlongK ? index / kTileK : index % 64, k = kAlongK ? index % kTileK : index / 64;
      bool inside = row0 + row < a.rows && k0 + k < a.depth;
      Index offset = kAlongK ? static_cast<Index>(row0 + row) * a.stride + k0 + k
                             : static_cast<Index>(k0 + k) * a.stride + row0 + row;
      tile[k * kPitch + row] = inside ? a.data[offset] : 0.0f;
    }
  }

  template <class Function>
  __device__ __forceinline__ void each_pair(int m0, int n0, Function function) {
    int m = m0 + threadIdx.x / 16 * 4, n = n0 + threadIdx.x % 16 * 4;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; j += 2) function(m + i, n + j, sum[i][j], sum[i][j + 1]);
  }
};

}  // namespace rn
