// Max-pool, a thread to a pack of outputs; backward gathers, so that no atomics are needed.
// RN_NORM: the pool reads activation(norm(x)), which is never stored.
#include "window.cuh"

using namespace rn;

constexpr int kUnrolled = RN_WINDOW <= 3 ? RN_WINDOW : 1;

extern "C" __global__ void __launch_bounds__(256) max_pool_forward_kernel(const MaxPoolForward op) {
  const PoolShape& s = op.pool;
  Walk walk;
  Index rows = s.n * s.p * s.q;
  if (walk.row >= rows) return;
  PackNorm norm;
  if (RN_NORM) norm.read(op.norm, walk.column);
  for (Index row = walk.row; row < rows; row += walk.step) {
    Pixel at = pixel_of(row, s.p, s.q);
    int h0 = at.h * RN_STRIDE - RN_PAD, w0 = at.w * RN_STRIDE - RN_PAD;
    Floats best;
    int winner[kWidth];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) best[j] = -infinity(), winner[j] = -1;
#pragma unroll kUnrolled
    for (int r = 0; r < RN_WINDOW; ++r)
#pragma unroll kUnrolled
      for (int t = 0; t < RN_WINDOW; ++t) {
        if (h0 + r < 0 || h0 + r >= s.h || w0 + t < 0 || w0 + t >= s.w) continue;
        Floats x;
        load(x, op.x, (at.n * s.h + h0 + r) * s.w + w0 + t, walk.column);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          float value = x[j];
          if (RN_NORM)
            value = rounded<Element>(activate(RN_ACTIVATION, rounded<Element>(norm(value, j))));
          bool wins = winner[j] < 0 || value > best[j] || (is_nan(value) && !is_nan(best[j]));
          if (wins) best[j] = value, winner[j] = r * RN_WINDOW + t;
        }
      }
    store(op.y, row, walk.column, best);
    if (RN_ARGMAX_BYTES) {
      Places places;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) places.value[j] = static_cast<Place>(winner[j]);
      *reinterpret_cast<Places*>(static_cast<Place*>(op.argmax) +
                                 (row * kColumns + walk.column) * kWidth) = places;
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 3)
    max_pool_backward_kernel(const MaxPoolBackward op) {
  const PoolShape& s = op.pool;
  Walk walk;
#if RN_SWEEPS
  MaxOutputs outputs{op.dy, op.argmax};
  StoreGradient visitor{op.dx, walk.column};
  for (Index strip = walk.row; strip < strips_of(s); strip += walk.step)
    sweep(outputs, s, strip, walk.column, visitor);
#else
  for (Index row = walk.row; row < s.n * s.h * s.w; row += walk.step) {
    Floats dx;
    gather_winners(dx, op.dy, op.argmax, s, pixel_of(row, s.h, s.w), walk.column);
    store(op.dx, row, walk.column, dx);
  }
#endif
}
