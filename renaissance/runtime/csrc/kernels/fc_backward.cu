// All gradients of a fully connected layer in one launch: the blocks of dx, of dw and of dbias share
// the grid, so that one node of the graph does what would be three dependent or forked ones.
//
// Blocks are numbered dx tiles first, then dw tiles, then groups of 32 biases. RN_DX, RN_DW and
// RN_DBIAS say which are wanted. A gradient of a weight that is not finite raises the flag.
#include "fc_tile.cuh"

using namespace rn;

typedef FcTile<true, false, RN_K, RN_C> InputTile;
typedef FcTile<false, false, RN_K, RN_C> WeightTile;

constexpr int kTileM = InputTile::kTileM, kTileN = InputTile::kTileN;
constexpr int kThreads = InputTile::kThreads;

static_assert(RN_SHARED_BYTES >= InputTile::kSharedBytes &&
                  RN_SHARED_BYTES >= WeightTile::kSharedBytes,
              "the launch was planned for another tile");

__device__ __forceinline__ void input_gradient(const FcBackward& op, Element* shared, int m0,
                                               int n0) {
  InputTile tile;
  tile.compute(shared, operand(op.dy, op.n, RN_K, RN_K), operand(op.w, RN_C, RN_K, RN_C), m0, n0);
  const Element* gate = static_cast<const Element*>(op.gate);
  Element* dx = static_cast<Element*>(op.dx);
  tile.each_pair(m0, n0, [&](int n, int c, float first, float second) {
    if (n >= op.n || c >= RN_C) return;
    Index row = static_cast<Index>(n) * RN_C;
    first = rounded<Element>(first);
    second = rounded<Element>(second);
    if (RN_ACTIVATION != kNone) {
      first *= activation_slope(RN_ACTIVATION, widen(gate[row + c]));
      if (c + 1 < RN_C) second *= activation_slope(RN_ACTIVATION, widen(gate[row + c + 1]));
    }
    store_pair<RN_C>(dx + row, c, first, second);
  });
}

__device__ __forceinline__ void weight_gradient(const FcBackward& op, Element* shared, int m0,
                                                int n0) {
  WeightTile tile;
  tile.compute(shared, operand(op.dy, RN_K, op.n, RN_K), operand(op.x, RN_C, op.n, RN_C), m0, n0);
  Element* dw = static_cast<Element*>(op.dw);
  bool finite = true;
  tile.each_pair(m0, n0, [&](int k, int c, float first, float second) {
    if (k >= RN_K || c >= RN_C) return;
    first = rounded<Element>(first);
    second = c + 1 < RN_C ? rounded<Element>(second) : 0.0f;
    finite = finite && is_finite(first) && is_finite(second);
    store_pair<RN_C>(dw + static_cast<Index>(k) * RN_C, c, first, second);
  });
  if (op.flag && !finite) *op.flag = 1;
}

// A warp sums rows of 32 neighbouring columns; the warps' sums are added in their order.
__device__ __forceinline__ void bias_gradient(const FcBackward& op, float* shared, int k0) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, k = k0 + lane;
  constexpr int kWarps = kThreads / 32;
  const Element* dy = static_cast<const Element*>(op.dy);
  float sum = 0.0f;
  if (k < RN_K) {
#pragma unroll 8
    for (int n = warp; n < static_cast<int>(op.n); n += kWarps)
      sum += widen(dy[static_cast<Index>(n) * RN_K + k]);
  }
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (warp > 0 || k >= RN_K) return;
  for (int other = 1; other < kWarps; ++other) sum += shared[other * 32 + lane];
  op.dbias[k] = sum;
  if (op.flag && !is_finite(sum)) *op.flag = 1;
}

extern "C" __global__ void __launch_bounds__(kThreads) fc_backward_kernel(const FcBackward op) {
  extern __shared__ __align__(16) unsigned char shared[];
  constexpr int kColumns = (RN_C + kTileN - 1) / kTileN;
  constexpr int kWeightBlocks = RN_DW ? kColumns * ((RN_K + kTileM - 1) / kTileM) : 0;
  int block = blockIdx.x;
  int input_blocks = RN_DX ? kColumns * ((static_cast<int>(op.n) + kTileM - 1) / kTileM) : 0;
  if (RN_DX && block < input_blocks) {
    input_gradient(op, reinterpret_cast<Element*>(shared), block / kColumns * kTileM,
                   block % kColumns * kTileN);
    return;
  }
  block -= input_blocks;
  if (RN_DW && block < kWeightBlocks) {
    weight_gradient(op, reinterpret_cast<Element*>(shared), block / kColumns * kTileM,
                    block % kColumns * kTileN);
    return;
  }
  if (RN_DBIAS) bias_gradient(op, reinterpret_cast<float*>(shared), (block - kWeightBlocks) * 32);
}
