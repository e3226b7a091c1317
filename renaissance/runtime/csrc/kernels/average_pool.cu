// Average pool over the real pixels of a window, a thread to a pack; backward gathers.
#include "window.cuh"

using namespace rn;

// Real positions under the window of an output along one axis.
__device__ __forceinline__ int real(int output, Index extent) {
  int begin = output * RN_STRIDE - RN_PAD, end = begin + RN_WINDOW;
  return (end < extent ? end : static_cast<int>(extent)) - (begin > 0 ? begin : 0);
}

extern "C" __global__ void __launch_bounds__(256)
    average_pool_forward_kernel(const AveragePoolForward op) {
  const PoolShape& s = op.pool;
  Walk walk;
  for (Index row = walk.row; row < s.n * s.p * s.q; row += walk.step) {
    Pixel at = pixel_of(row, s.p, s.q);
    int h0 = at.h * RN_STRIDE - RN_PAD, w0 = at.w * RN_STRIDE - RN_PAD;
    Floats sum;
    zero(sum);
    for (int r = 0; r < RN_WINDOW; ++r)
      for (int t = 0; t < RN_WINDOW; ++t) {
        if (h0 + r < 0 || h0 + r >= s.h || w0 + t < 0 || w0 + t >= s.w) continue;
        Floats x;
        load(x, op.x, (at.n * s.h + h0 + r) * s.w + w0 + t, walk.column);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sum[j] += x[j];
      }
    float pixels = static_cast<float>(real(at.h, s.h) * real(at.w, s.w));
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum[j] /= pixels;
    store(op.y, row, walk.column, sum);
  }
}

#if RN_SWEEPS
// Outputs of an average pool: the part of their gradient that each pixel gets.
struct AverageOutputs {
  const void* dy;
  struct Output {
    Floats part;
  };

  __device__ __forceinline__ Output read(const PoolShape& s, Index n, int p, int q,
                                         int column) const {
    Output output;
    zero(output.part);
    if (p < 0 || p >= s.p || q < 0 || q >= s.q) return output;
    load(output.part, dy, (n * s.p + p) * s.q + q, column);
    float each = 1.0f / static_cast<float>(real(p, s.h) * real(q, s.w));
#pragma unroll
    for (int j = 0; j < kWidth; ++j) output.part[j] *= each;
    return output;
  }

  static __device__ __forceinline__ void add(Floats& dx, const Output& from, int) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) dx[j] += from.part[j];
  }
};
#endif

extern "C" __global__ void __launch_bounds__(256)
    average_pool_backward_kernel(const AveragePoolBackward op) {
  const PoolShape& s = op.pool;
  Walk walk;
#if RN_SWEEPS
  AverageOutputs outputs{op.dy};
  StoreGradient visitor{op.dx, walk.column};
  for (Index strip = walk.row; strip < strips_of(s); strip += walk.step)
    sweep(outputs, s, strip, walk.column, visitor);
#else
  for (Index row = walk.row; row < s.n * s.h * s.w; row += walk.step) {
    Pixel at = pixel_of(row, s.h, s.w);
    int p1 = last_output(at.h, s.p), q1 = last_output(at.w, s.q);
    Floats dx;
    zero(dx);
    for (int p = first_output(at.h); p <= p1; ++p)
      for (int q = first_output(at.w); q <= q1; ++q) {
        Floats d;
        load(d, op.dy, (at.n * s.p + p) * s.q + q, walk.column);
        float pixels = static_cast<float>(real(p, s.h) * real(q, s.w));
#pragma unroll
        for (int j = 0; j < kWidth; ++j) dx[j] += d[j] / pixels;
      }
    store(op.dx, row, walk.column, dx);
  }
#endif
}
