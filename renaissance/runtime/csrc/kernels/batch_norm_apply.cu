// y = activation(norm(x) + shortcut) in one pass. RN_SHORTCUT: 0 none, 1 as it is, 2 normalised too.
// RN_MASK: the signs of z are left for the backward. It walks from the last row to the first: the end of x is still in the cache when it begins, and the
// begin of y when the next layer does.
#include "map.cuh"

using namespace rn;

static_assert(!RN_MASK || kWidth == 8, "a mask has a byte for eight channels");

// What a thread does with its pixels.
struct Apply {
  const BatchNormApply& op;
  int column;
  PackNorm norm, other;
  Pack x_ahead[RN_AHEAD], shortcut_ahead[RN_AHEAD];

  __device__ __forceinline__ Apply(const BatchNormApply& op, int column) : op(op), column(column) {
    norm.read(op.norm, column);
    if (RN_SHORTCUT == 2) other.read(op.shortcut_norm, column);
  }

  __device__ __forceinline__ void fetch(int k, Index row) {
    x_ahead[k] = rn::fetch(op.x, row, column);
    if (RN_SHORTCUT) shortcut_ahead[k] = rn::fetch(op.shortcut, row, column);
  }

  __device__ __forceinline__ void use(int k, Index row) {
    Floats x, shortcut;
    unpack(x, x_ahead[k]);
    if (RN_SHORTCUT) unpack(shortcut, shortcut_ahead[k]);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      float z = norm(x[j], j);
      if (RN_SHORTCUT == 1) z += shortcut[j];
      if (RN_SHORTCUT == 2) z += other(shortcut[j], j);
      x[j] = rounded<Element>(z);
    }
    if (RN_Z) store(op.z, row, column, x);
    if (RN_MASK) store_mask(op.mask, RN_ACTIVATION, row, column, x);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) x[j] = activate(RN_ACTIVATION, x[j]);
    store(op.y, row, column, x);
  }
};

extern "C" __global__ void __launch_bounds__(256, kResident)
    batch_norm_apply_kernel(const BatchNormApply op) {
  Walk walk;
  if (walk.row >= op.rows) return;
  Apply apply(op, walk.column);
  in_groups<true>(walk.row, walk.step, op.rows, apply);
}
