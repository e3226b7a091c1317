// Weight gradient of a depthwise convolution: a thread keeps all taps of its pack in registers and walks
// down a column of outputs. A row of input meets the gradients of all outputs that see it, which wait in
// registers, so each row is read once, RN_AHEAD steps before its use. Pieces of the sum go to the
// workspace, and a second kernel adds them up in order.
#include "map.cuh"

using namespace rn;

constexpr int kTaps = RN_R * RN_S;
constexpr int kUnroll = RN_UNROLL, kAhead = RN_AHEAD;
constexpr int kLive = (RN_R + RN_STRIDE - 1) / RN_STRIDE;  // outputs that a row of input touches

// What step p reads: the rows of the input that window p - 1 did not see, and the gradient of the last
// output that they touch.
struct Fresh {
  Pack x[RN_STRIDE][RN_S], dy;

  __device__ __forceinline__ void read(const DepthwiseConvBackwardWeight& op, const Strip& strip, int p,
                                       int column) {
    const ConvShape& s = op.shape;
    int w0 = strip.across * RN_STRIDE - RN_PAD;
#pragma unroll
    for (int i = 0; i < RN_STRIDE; ++i) {
      if (RN_R - RN_STRIDE + i < 0) continue;
      int h = p * RN_STRIDE - RN_PAD + RN_R - RN_STRIDE + i;
      bool inside = h >= 0 && h < s.h;
      Index at = (strip.n * s.h + h) * s.w + w0;
#pragma unroll
      for (int t = 0; t < RN_S; ++t)
        x[i][t] = inside && w0 + t >= 0 && w0 + t < s.w ? fetch(op.x, at + t, column) : zeros();
    }
    int last = p + kLive - 1;
    bool counts = last >= strip.first && last < strip.end;
    dy = counts ? fetch(op.dy, (strip.n * s.p + last) * s.q + strip.across, column) : zeros();
  }
};

__device__ __forceinline__ void add_strip(Floats (&sum)[kTaps], const DepthwiseConvBackwardWeight& op,
                                          const Strip& strip, int column) {
  Floats dy[kLive];  // of outputs p and further ones
#pragma unroll
  for (int l = 0; l < kLive; ++l) zero(dy[l]);
  Fresh ahead[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) ahead[i].read(op, strip, strip.first - kLive + 1 + i, column);
#pragma unroll kUnroll
  for (int p = strip.first - kLive + 1; p < strip.end; ++p) {
    Fresh now = ahead[0];
#pragma unroll
    for (int i = 0; i + 1 < kAhead; ++i) ahead[i] = ahead[i + 1];
    if (p + kAhead < strip.end) ahead[kAhead - 1].read(op, strip, p + kAhead, column);
#pragma unroll
    for (int l = 0; l + 1 < kLive; ++l)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) dy[l][j] = dy[l + 1][j];
    unpack(dy[kLive - 1], now.dy);
#pragma unroll
    for (int i = 0; i < RN_STRIDE; ++i) {
      if (RN_R - RN_STRIDE + i < 0) continue;
#pragma unroll
      for (int t = 0; t < RN_S; ++t) {
        Floats x;
        unpack(x, now.x[i][t]);
#pragma unroll
        for (int l = 0; l < kLive; ++l) {
          const int r = RN_R - RN_STRIDE + i - l * RN_STRIDE;
          if (r < 0 || r >= RN_R) continue;
#pragma unroll
          for (int j = 0; j < kWidth; ++j) sum[r * RN_S + t][j] += dy[l][j] * x[j];
        }
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, RN_BLOCKS)
    depthwise_conv_backward_weight_kernel(const DepthwiseConvBackwardWeight op) {
  __shared__ float lanes[kRowLanes][kTile * kWidth];
  Reduction block;
  Floats sum[kTaps];
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) zero(sum[tap]);
  Index step = static_cast<Index>(gridDim.x) * kRowLanes;
  const ConvShape& s = op.shape;
  int steps = static_cast<int>(s.p), strips = static_cast<int>(s.q);
  Index count = Strip::count(s.n, steps, strips, RN_ROWS);
  if (block.active)
    for (Index i = static_cast<Index>(blockIdx.x) * kRowLanes + block.lane; i < count; i += step)
      add_strip(sum, op, Strip(i, steps, strips, RN_ROWS), block.column);
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
