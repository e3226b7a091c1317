// Weight gradient of a depthwise convolution: a thread keeps all taps of its pack in registers and
// slides along a row of outputs, reading one new column of the input at each step. Pieces of the
// sum go to the workspace, and a second kernel adds them up in order.
#include "map.cuh"

using namespace rn;

constexpr int kTaps = RN_R * RN_S;

// Rows of the input that output row p sees, at one pixel.
__device__ __forceinline__ void load_column(Floats (&x)[RN_R], const DepthwiseConvBackwardWeight& op,
                                            Index n, int h0, int w, int column) {
  const ConvShape& s = op.shape;
#pragma unroll
  for (int r = 0; r < RN_R; ++r) {
    if (h0 + r < 0 || h0 + r >= s.h || w < 0 || w >= s.w)
      zero(x[r]);
    else
      load(x[r], op.x, (n * s.h + h0 + r) * s.w + w, column);
  }
}

__device__ __forceinline__ void add_row(Floats (&sum)[kTaps], const DepthwiseConvBackwardWeight& op,
                                        Index line, int column) {
  const ConvShape& s = op.shape;
  Index n = line / s.p;
  int h0 = static_cast<int>(line - n * s.p) * RN_STRIDE - RN_PAD;
  Floats seen[RN_S][RN_R];
#pragma unroll
  for (int t = 0; t + RN_STRIDE < RN_S; ++t)
    load_column(seen[t + RN_STRIDE], op, n, h0, t - RN_PAD, column);
  for (int q = 0; q < s.q; ++q) {
#pragma unroll
    for (int t = 0; t < RN_S; ++t) {
      if (t + RN_STRIDE < RN_S) {
#pragma unroll
        for (int r = 0; r < RN_R; ++r)
#pragma unroll
          for (int j = 0; j < kWidth; ++j) seen[t][r][j] = seen[t + RN_STRIDE][r][j];
      } else {
        load_column(seen[t], op, n, h0, q * RN_STRIDE - RN_PAD + t, column);
      }
    }
    Floats d;
    load(d, op.dy, line * s.q + q, column);
#pragma unroll
    for (int r = 0; r < RN_R; ++r)
#pragma unroll
      for (int t = 0; t < RN_S; ++t)
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sum[r * RN_S + t][j] += d[j] * seen[t][r][j];
  }
}

extern "C" __global__ void __launch_bounds__(256)
    depthwise_conv_backward_weight_kernel(const DepthwiseConvBackwardWeight op) {
  __shared__ float lanes[kRowLanes][kTile * kWidth];
  Reduction block;
  Floats sum[kTaps];
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) zero(sum[tap]);
  Index step = static_cast<Index>(gridDim.x) * kRowLanes;
  if (block.active)
    for (Index line = static_cast<Index>(blockIdx.x) * kRowLanes + block.lane;
         line < op.shape.n * op.shape.p; line += step)
      add_row(sum, op, line, block.column);
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) {
    __syncthreads();
    if (block.lane < kRowLanes)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) lanes[block.lane][block.slot * kWidth + j] = sum[tap][j];
    __syncthreads();
    for (int i = threadIdx.x; i < kTile * kWidth; i += kThreads) {
      int c = blockIdx.y * kTile * kWidth + i;
      if (c >= RN_C) continue;
      float total = 0.0f;
      for (int l = 0; l < kRowLanes; ++l) total += lanes[l][i];
      if (op.partial_rows > 1)
        op.partial[static_cast<Index>(blockIdx.x) * kTaps * RN_C + tap * RN_C + c] = total;
      else
        static_cast<Element*>(op.dw)[c * kTaps + tap] = narrow<Element>(total);
    }
  }
}

extern "C" __global__ void __launch_bounds__(1024)
    depthwise_conv_sum_kernel(const DepthwiseConvBackwardWeight op) {
  int i = blockIdx.x * 32 + threadIdx.x % 32;
  bool inside = i < kTaps * RN_C;
  double sum = column_sum(op.partial, op.partial_rows, kTaps * RN_C, i, inside);
  if (threadIdx.x >= 32 || !inside) return;
  static_cast<Element*>(op.dw)[i % RN_C * kTaps + i / RN_C] =
      narrow<Element>(static_cast<float>(sum));
}
