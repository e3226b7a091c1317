// Depthwise convolution: forward and data gradient.
//
// A thread walks down a strip of outputs, RN_ACROSS pixels wide, with one pack of channels: its filters
// and the sums of the outputs that the present row of input touches stay in registers, so each row of
// the input is read once, RN_AHEAD steps before its use: with so many registers to a thread, few
// threads fit, and each must have enough bytes on their way. RN_DATA: which of the two kernels this is.
#include "filters.cuh"

using namespace rn;

constexpr int kAcross = RN_ACROSS;
constexpr int kUnroll = RN_UNROLL, kAhead = RN_AHEAD;
constexpr int kLive = (RN_R + RN_STRIDE - 1) / RN_STRIDE;  // outputs that a row of input touches

__device__ __forceinline__ void add(Floats& sum, const Floats& x, const Floats& filter) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) sum[j] += x[j] * filter[j];
}

// Some pixels of a row, zeros beyond the map.
template <int kCount>
struct Row {
  Pack pack[kCount];

  __device__ __forceinline__ void read(const void* map, Index n, int row, int first, Index rows,
                                       Index columns, int column) {
    bool inside = row >= 0 && row < rows;
    Index at = (n * rows + row) * columns + first;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      pack[i] = inside && first + i >= 0 && first + i < columns ? fetch(map, at + i, column)
                                                                : zeros();
  }
};

template <int kCount>
__device__ __forceinline__ void clear(Floats (&sum)[kCount][kAcross]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
#pragma unroll
    for (int j = 0; j < kAcross; ++j) zero(sum[i][j]);
}

// Moves sums up by kBy rows.
template <int kBy, int kCount>
__device__ __forceinline__ void shift(Floats (&sum)[kCount][kAcross]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
#pragma unroll
    for (int j = 0; j < kAcross; ++j)
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        sum[i][j][k] = i + kBy < kCount ? sum[i + kBy < kCount ? i + kBy : 0][j][k] : 0.0f;
}

#if !RN_DATA

// Row p of the output is complete with the last row of its window: step p reads the RN_STRIDE rows that
// window p - 1 did not see.
constexpr int kSeen = (kAcross - 1) * RN_STRIDE + RN_S;

struct Fresh {
  Row<kSeen> row[RN_STRIDE];

  __device__ __forceinline__ void read(const DepthwiseConvForward& op, Index n, int p, int q0,
                                       int column) {
    const ConvShape& s = op.shape;
#pragma unroll
    for (int i = 0; i < RN_STRIDE; ++i)
      if (RN_R - RN_STRIDE + i >= 0)
        row[i].read(op.x, n, p * RN_STRIDE - RN_PAD + RN_R - RN_STRIDE + i,
                    q0 * RN_STRIDE - RN_PAD, s.h, s.w, column);
  }
};

extern "C" __global__ void __launch_bounds__(256, RN_BLOCKS)
    depthwise_conv_forward_kernel(const DepthwiseConvForward op) {
  const ConvShape& s = op.shape;
  Walk walk;
  int strips = (static_cast<int>(s.q) + kAcross - 1) / kAcross, steps = static_cast<int>(s.p);
  Index count = Strip::count(s.n, steps, strips, RN_ROWS);
  if (walk.row >= count) return;
  Filters filters(op.w, walk.column);
  for (Index index = walk.row; index < count; index += walk.step) {
    Strip strip(index, steps, strips, RN_ROWS);
    int q0 = strip.across * kAcross;
    Floats sum[kLive][kAcross];
    clear(sum);
    Fresh ahead[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      ahead[i].read(op, strip.n, strip.first - kLive + 1 + i, q0, walk.column);
#pragma unroll kUnroll
    for (int p = strip.first - kLive + 1; p < strip.end; ++p) {
      Fresh now = ahead[0];
#pragma unroll
      for (int i = 0; i + 1 < kAhead; ++i) ahead[i] = ahead[i + 1];
      if (p + kAhead < strip.end)
        ahead[kAhead - 1].read(op, strip.n, p + kAhead, q0, walk.column);
#pragma unroll
      for (int i = 0; i < RN_STRIDE; ++i) {
        if (RN_R - RN_STRIDE + i < 0) continue;
#pragma unroll
        for (int w = 0; w < kSeen; ++w) {
          Floats x;
          unpack(x, now.row[i].pack[w]);
#pragma unroll
          for (int l = 0; l < kLive; ++l)
#pragma unroll
            for (int q = 0; q < kAcross; ++q) {
              const int r = RN_R - RN_STRIDE + i - l * RN_STRIDE, t = w - q * RN_STRIDE;
              if (r >= 0 && r < RN_R && t >= 0 && t < RN_S)
                add(sum[l][q], x, filters.tap[r * RN_S + t]);
            }
        }
      }
      if (p >= strip.first) {
        Index row = (strip.n * s.p + p) * s.q + q0;
#pragma unroll
        for (int q = 0; q < kAcross; ++q)
          if (q0 + q < s.q) store(op.y, row + q, walk.column, sum[0][q]);
      }
      shift<1>(sum);
    }
  }
}

#else

// Step p reads row p of dy; the rows of dx that no later row of dy touches are then complete: RN_STRIDE
// of them, from p RN_STRIDE - RN_PAD on. With strips as wide as a multiple of the stride, which tap
// joins which pixel to which output is known when the kernel is compiled.
static_assert(kAcross % RN_STRIDE == 0, "strip and stride");

constexpr int floor_div(int a, int b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

constexpr int kFirst = -floor_div(RN_S - 1 - RN_PAD, RN_STRIDE);
constexpr int kSeen = floor_div(kAcross - 1 + RN_PAD, RN_STRIDE) - kFirst + 1;
constexpr int kSums = RN_R > RN_STRIDE ? RN_R : RN_STRIDE;

extern "C" __global__ void __launch_bounds__(256, RN_BLOCKS)
    depthwise_conv_backward_data_kernel(const DepthwiseConvBackwardData op) {
  const ConvShape& s = op.shape;
  Walk walk;
  int strips = (static_cast<int>(s.w) + kAcross - 1) / kAcross;
  int steps = (static_cast<int>(s.h) + RN_PAD + RN_STRIDE - 1) / RN_STRIDE;
  Index count = Strip::count(s.n, steps, strips, RN_ROWS);
  if (walk.row >= count) return;
  Filters filters(op.w, walk.column);
  for (Index index = walk.row; index < count; index += walk.step) {
    Strip strip(index, steps, strips, RN_ROWS);
    int w0 = strip.across * kAcross, q0 = w0 / RN_STRIDE + kFirst;
    Floats sum[kSums][kAcross];
    clear(sum);
    Row<kSeen> ahead[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      ahead[i].read(op.dy, strip.n, strip.first - kLive + 1 + i, q0, s.p, s.q, walk.column);
#pragma unroll kUnroll
    for (int p = strip.first - kLive + 1; p < strip.end; ++p) {
      Row<kSeen> now = ahead[0];
#pragma unroll
      for (int i = 0; i + 1 < kAhead; ++i) ahead[i] = ahead[i + 1];
      if (p + kAhead < strip.end)
        ahead[kAhead - 1].read(op.dy, strip.n, p + kAhead, q0, s.p, s.q, walk.column);
#pragma unroll
      for (int q = 0; q < kSeen; ++q) {
        Floats d;
        unpack(d, now.pack[q]);
#pragma unroll
        for (int r = 0; r < RN_R; ++r)
#pragma unroll
          for (int w = 0; w < kAcross; ++w) {
            const int t = w + RN_PAD - (q + kFirst) * RN_STRIDE;
            if (t >= 0 && t < RN_S) add(sum[r][w], d, filters.tap[r * RN_S + t]);
          }
      }
      if (p >= strip.first) {
        int h0 = p * RN_STRIDE - RN_PAD;
        Index row = (strip.n * s.h + h0) * s.w + w0;
#pragma unroll
        for (int i = 0; i < RN_STRIDE; ++i)
#pragma unroll
          for (int w = 0; w < kAcross; ++w)
            if (h0 + i >= 0 && h0 + i < s.h && w0 + w < s.w)
              store(op.dx, row + i * s.w + w, walk.column, sum[i][w]);
      }
      shift<RN_STRIDE>(sum);
    }
  }
}

#endif
