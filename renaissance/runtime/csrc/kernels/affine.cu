// Batch norm at inference: folded to an affine map, and that map with shortcut and activation.
#include "map.cuh"

using namespace rn;

extern "C" __global__ void __launch_bounds__(256) affine_forward_kernel(const AffineForward op) {
  Walk walk;
  if (walk.row >= op.rows) return;
  Floats scale, bias;
  constants(scale, op.scale, walk.column);
  constants(bias, op.bias, walk.column);
#pragma unroll 2
  for (Index row = walk.row; row < op.rows; row += walk.step) {
    Floats x, shortcut;
    load(x, op.x, row, walk.column);
    if (RN_SHORTCUT) load(shortcut, op.shortcut, row, walk.column);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      float z = x[j] * scale[j] + bias[j];
      if (RN_SHORTCUT) z += shortcut[j];
      x[j] = activate(RN_ACTIVATION, rounded<Element>(z));
    }
    store(op.y, row, walk.column, x);
  }
}
