// A tile of a matrix product on the tensor cores: fp16 operands, fp32 sums in a fixed order.
//
// out[m][n] = sum over k of A[m][k] B[n][k]. An operand is stored either along k (rows of m or n) or
// across it (rows of k). A block computes kTileM x kTileN; its warps are laid over the tile and, with
// kSplits > 1, over k as well: a short chain of products matters more than reuse when a whole layer
// fits on the chip at once. Shared rows are padded by 16 bytes, which keeps ldmatrix free of bank
// conflicts; stages arrive by cp.async, so loads of the next stages overlap the products of this one.
#pragma once

#include "device.cuh"

namespace rn {

// An operand: `rows` x `depth` elements. Along k, element (row, k) lies at row * stride + k; across
// k, at k * stride + row. kVector elements are loaded at once: stride, and the extent of the
// contiguous axis, are multiples of it.
struct Operand {
  const half_bits* data;
  int rows, depth, stride;
};

template <int kRows, int kDepth, bool kAlongK, int kVector, int kThreads>
struct OperandTile {
  static constexpr int kOuter = kAlongK ? kRows : kDepth;
  static constexpr int kInner = kAlongK ? kDepth : kRows;
  static constexpr int kPitch = kInner + 8;
  static constexpr int kElements = kOuter * kPitch;

  // Brings rows [row0, row0 + kRows) and k [k0, k0 + kDepth) into shared memory, zeros outside.
  static __device__ __forceinline__ void load(half_bits* shared, const Operand& a, int row0, int k0) {
    int outer0 = kAlongK ? row0 : k0, inner0 = kAlongK ? k0 : row0;
    int outer_end = kAlongK ? a.rows : a.depth, inner_end = kAlongK ? a.depth : a.rows;
    constexpr int kPerRow = kInner / kVector, kTotal = kOuter * kPerRow;
#pragma unroll
    for (int i = 0; i < (kTotal + kThreads - 1) / kThreads; ++i) {
      int index = i * kThreads + threadIdx.x;
      if (kTotal % kThreads != 0 && index >= kTotal) break;
      int outer = index / kPerRow, inner = index % kPerRow * kVector;
      bool inside = outer0 + outer < outer_end && inner0 + inner < inner_end;
      Index offset = static_cast<Index>(outer0 + outer) * a.stride + inner0 + inner;
      half_bits* to = shared + outer * kPitch + inner;
      if constexpr (kVector == 1)
        *to = inside ? a.data[offset] : half_bits(0);
      else
        copy_async<kVector * 2>(shared_address(to), inside ? a.data + offset : a.data, inside);
    }
  }

  // The 16 x 16 block of rows from `row` and k from `k` as the left operand of a product.
  static __device__ __forceinline__ void left(uint (&r)[4], const half_bits* shared, int row, int k) {
    int lane = threadIdx.x % 32;
    if constexpr (kAlongK)
      load_matrices(r, shared_address(shared + (row + lane % 16) * kPitch + k + lane / 16 * 8));
    else
      load_matrices_transposed(
          r, shared_address(shared + (k + lane / 16 * 8 + lane % 8) * kPitch + row +
                            lane % 16 / 8 * 8));
  }

  // Two neighbouring 8 x 16 blocks of rows from `row`, as right operands: r[0..1] and r[2..3].
  static __device__ __forceinline__ void right(uint (&r)[4], const half_bits* shared, int row,
                                               int k) {
    int lane = threadIdx.x % 32;
    if constexpr (kAlongK)
      load_matrices(r, shared_address(shared + (row + lane / 16 * 8 + lane % 8) * kPitch + k +
                                      lane % 16 / 8 * 8));
    else
      load_matrices_transposed(
          r, shared_address(shared + (k + lane % 16) * kPitch + row + lane / 16 * 8));
  }
};

template <int kTileM, int kTileN, int kTileK, int kWarpsM, int kWarpsN, int kSplits, int kStages,
          bool kAAlongK, bool kBAlongK, int kAVector, int kBVector>
struct MatrixTile {
  static constexpr int kThreads = kWarpsM * kWarpsN * kSplits * 32;
  static constexpr int kWarpM = kTileM / kWarpsM, kWarpN = kTileN / kWarpsN;
  static constexpr int kBlocksM = kWarpM / 16, kBlocksN = kWarpN / 8;
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0 && kTileK % (16 * kSplits) == 0, "tile");
  typedef OperandTile<kTileM, kTileK, kAAlongK, kAVector, kThreads> TileA;
  typedef OperandTile<kTileN, kTileK, kBAlongK, kBVector, kThreads> TileB;
  static constexpr int kStageElements = TileA::kElements + TileB::kElements;
  static constexpr int kSumBytes = (kSplits - 1) * kTileM * kTileN * 4;
  static constexpr int kStageBytes = kStages * kStageElements * 2;
  static constexpr int kSharedBytes = kStageBytes > kSumBytes ? kStageBytes : kSumBytes;

  float sum[kBlocksM][kBlocksN][4];

  __device__ __forceinline__ static int warp() { return threadIdx.x / 32 % (kWarpsM * kWarpsN); }
  __device__ __forceinline__ static int split() { return threadIdx.x / 32 / (kWarpsM * kWarpsN); }

  __device__ __forceinline__ void compute(half_bits* shared, const Operand& a, const Operand& b,
                                          int m0, int n0) {
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
      for (int j = 0; j < kBlocksN; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[i][j][e] = 0.0f;
    int steps = (a.depth + kTileK - 1) / kTileK;
#pragma unroll
    for (int stage = 0; stage < kStages - 1; ++stage) {
      if (stage < steps) fetch(shared, a, b, m0, n0, stage);
      commit_copies();
    }
    for (int step = 0; step < steps; ++step) {
      wait_copies<kStages - 2>();
      __syncthreads();
      if (step + kStages - 1 < steps) fetch(shared, a, b, m0, n0, step + kStages - 1);
      commit_copies();
      multiply(shared + step % kStages * kStageElements);
    }
    wait_copies<0>();
    if constexpr (kSplits > 1) add_splits(reinterpret_cast<float*>(shared));
  }

  __device__ __forceinline__ static void fetch(half_bits* shared, const Operand& a,
                                               const Operand& b, int m0, int n0, int step) {
    half_bits* stage = shared + step % kStages * kStageElements;
    TileA::load(stage, a, m0, step * kTileK);
    TileB::load(stage + TileA::kElements, b, n0, step * kTileK);
  }

  __device__ __forceinline__ void multiply(const half_bits* stage) {
    const half_bits* b_tile = stage + TileA::kElements;
    int row_m = warp() / kWarpsN * kWarpM, row_n = warp() % kWarpsN * kWarpN;
#pragma unroll
    for (int step = 0; step < kTileK / 16 / kSplits; ++step) {
      int k = (step * kSplits + split()) * 16;
      uint left[kBlocksM][4], right[kBlocksN / 2][4];
#pragma unroll
      for (int i = 0; i < kBlocksM; ++i) TileA::left(left[i], stage, row_m + 16 * i, k);
#pragma unroll
      for (int j = 0; j < kBlocksN / 2; ++j) TileB::right(right[j], b_tile, row_n + 16 * j, k);
#pragma unroll
      for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
        for (int j = 0; j < kBlocksN; ++j)
          multiply_add(sum[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
    }
  }

  // Splits are added in their order, by the warps of split 0.
  __device__ __forceinline__ void add_splits(float* partial) {
    constexpr int kPerWarp = kBlocksM * kBlocksN * 4 * 32, kWarps = kWarpsM * kWarpsN;
    float* mine = partial + warp() * kPerWarp + threadIdx.x % 32;
    __syncthreads();
    each([&](int index, float& value) {
      if (split() > 0) mine[(split() - 1) * kWarps * kPerWarp + index * 32] = value;
    });
    __syncthreads();
    if (split() > 0) return;
    each([&](int index, float& value) {
#pragma unroll
      for (int s = 0; s < kSplits - 1; ++s) value += mine[s * kWarps * kPerWarp + index * 32];
    });
  }

  template <class Function>
  __device__ __forceinline__ void each(Function function) {
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
      for (int j = 0; j < kBlocksN; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) function((i * kBlocksN + j) * 4 + e, sum[i][j][e]);
  }

  // Calls function(m, n, first, second) for every pair of neighbouring sums, n even.
  template <class Function>
  __device__ __forceinline__ void each_pair(int m0, int n0, Function function) {
    if (split() > 0) return;
    int lane = threadIdx.x % 32;
    int m = m0 + warp() / kWarpsN * kWarpM + lane / 4;
    int n = n0 + warp() % kWarpsN * kWarpN + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
      for (int j = 0; j < kBlocksN; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          function(m + 16 * i + 8 * h, n + 8 * j, sum[i][j][2 * h], sum[i][j][2 * h + 1]);
  }
};

}  // namespace rn
