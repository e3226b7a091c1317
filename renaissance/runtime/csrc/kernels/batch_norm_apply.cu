// y = activation(norm(x) + shortcut) in one pass. RN_SHORTCUT: 0 none, 1 as it is, 2 normalised too.
// RN_MASK: the signs of z are left for the backward. It walks from the last row to the first: the end of x is still in the cache when it begins, and the
// begin of y when the next layer does.
#include "map.cuh"

using namespace rn;

static_assert(!RN_MASK || kWidth == 8, "a mask has a byte for eight channels");

extern "C" __global__ void __launch_bounds__(256) batch_norm_apply_kernel(const BatchNormApply op) {
  Walk walk;
  PackNorm norm, other;
  if (walk.row >= op.rows) return;
  norm.read(op.norm, walk.column);
  if (RN_SHORTCUT == 2) other.read(op.shortcut_norm, walk.column);
#pragma unroll 2
  for (Index row = op.rows - 1 - walk.row; row >= 0; row -= walk.step) {
    Floats x, shortcut;
    load(x, op.x, row, walk.column);
    if (RN_SHORTCUT) load(shortcut, op.shortcut, row, walk.column);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      float z = norm(x[j], j);
      if (RN_SHORTCUT == 1) z += shortcut[j];
      if (RN_SHORTCUT == 2) z += other(shortcut[j], j);
      x[j] = rounded<Element>(z);
    }
    if (RN_Z) store(op.z, row, walk.column, x);
    if (RN_MASK) store_mask(op.mask, RN_ACTIVATION, row, walk.column, x);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) x[j] = activate(RN_ACTIVATION, x[j]);
    store(op.y, row, walk.column, x);
  }
}
