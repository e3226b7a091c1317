// Backward of batch norm, the activation behind it and the add or the max-pool behind that, in two
// passes over memory: sums, then dx. The mask is computed again, not stored.
//
// RN_ADDEND: dy is a sum of two. RN_STASH: the first pass stores dz, so that the second reads one map
// where it would read all that dz is made of: 1 in dshortcut, where it is wanted anyway, 2 in dx,
// which the second pass then overwrites element by element.
// RN_GATED: the activation's output (or input) is given, else norm(x) is computed again. RN_POOLED:
// dy is a max-pool's. RN_SHORTCUT: 0 none, 1 dshortcut = dz, 2 the shortcut was normalised too.
#if RN_POOLED
#include "window.cuh"
#else
#include "map.cuh"
#endif

using namespace rn;

constexpr int kSums = RN_SHORTCUT == 2 ? 3 : 2;
constexpr bool kRecomputes = RN_ACTIVATION != 0 && !RN_GATED;

__device__ __forceinline__ void* stash(const BatchNormBackward& op) {
  return RN_STASH == 1 ? op.dshortcut : op.dx;
}

struct Gradient {
  PackNorm norm;

  // dz of a pack, and x beside it.
  __device__ __forceinline__ void read(const BatchNormBackward& op, Index row, int column,
                                       Floats& dz, Floats& x) const {
    Floats gate;
    load(x, op.x, row, column);
#if RN_POOLED
    gather_winners(dz, op.dy, op.argmax, op.pool, pixel_of(row, op.pool.h, op.pool.w), column);
#else
    load(dz, op.dy, row, column);
#endif
    if (RN_ADDEND) {
      Floats other;
      load(other, op.addend, row, column);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) dz[j] = rounded<Element>(dz[j] + other[j]);
    }
    if (RN_GATED && RN_ACTIVATION) load(gate, op.gate, row, column);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      float z = kRecomputes ? gate_of(RN_ACTIVATION, rounded<Element>(norm(x[j], j))) : 0.0f;
      if (RN_GATED && RN_ACTIVATION) z = gate[j];
      if (RN_ACTIVATION) dz[j] *= activation_slope(RN_ACTIVATION, z);
    }
  }
};

extern "C" __global__ void __launch_bounds__(256)
    batch_norm_backward_sums_kernel(const BatchNormBackward op) {
  Reduction block;
  Floats sum, product, other;
  zero(sum), zero(product), zero(other);
  if (block.active) {
    Gradient gradient;
    gradient.norm.read(op.norm, block.column);
    Floats center;
    if (RN_SHORTCUT == 2) constants(center, op.shortcut_norm.mean, block.column);
    Index step = static_cast<Index>(gridDim.x) * kRowLanes;
#pragma unroll 2
    for (Index row = static_cast<Index>(blockIdx.x) * kRowLanes + block.lane; row < op.rows;
         row += step) {
      Floats dz, x, shortcut;
      gradient.read(op, row, block.column, dz, x);
      if (RN_SHORTCUT == 2) load(shortcut, op.shortcut, row, block.column);
      if (RN_STASH) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) dz[j] = rounded<Element>(dz[j]);
        store(stash(op), row, block.column, dz);
      }
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        sum[j] += dz[j];
        product[j] += dz[j] * (x[j] - gradient.norm.mean[j]);
        if (RN_SHORTCUT == 2) other[j] += dz[j] * (shortcut[j] - center[j]);
      }
    }
  }
  block.write(op.partial, sum, 0, kSums);
  block.write(op.partial, product, 1, kSums);
  if (RN_SHORTCUT == 2) block.write(op.partial, other, 2, kSums);
}

extern "C" __global__ void __launch_bounds__(1024)
    batch_norm_backward_finalise_kernel(const BatchNormBackward op) {
  int c = blockIdx.x * 32 + threadIdx.x % 32;
  bool inside = c < RN_C;
  Index stride = kSums * RN_C;
  double sum = column_sum(op.partial, op.partial_rows, stride, c, inside);
  double product = column_sum(op.partial + RN_C, op.partial_rows, stride, c, inside);
  double other = 0.0;
  if (RN_SHORTCUT == 2)
    other = column_sum(op.partial + 2 * RN_C, op.partial_rows, stride, c, inside);
  if (threadIdx.x >= 32 || !inside) return;
  op.dbeta[c] = static_cast<float>(sum);
  op.dgamma[c] = static_cast<float>(product * op.norm.inverse_std[c]);
  if (RN_SHORTCUT != 2) return;
  op.dshortcut_beta[c] = static_cast<float>(sum);
  op.dshortcut_gamma[c] = static_cast<float>(other * op.shortcut_norm.inverse_std[c]);
}

// dx = scale (dz - offset - (x - mean) slope): what is left of the two sums for a pack.
struct Affine {
  Floats mean, scale, offset, slope;

  __device__ __forceinline__ void read(const Norm& n, const float* dgamma, const float* dbeta,
                                       Index rows, int column) {
    float count = static_cast<float>(rows);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      int c = column * kWidth + j;
      mean[j] = n.mean[c];
      scale[j] = n.gamma[c] * n.inverse_std[c];
      offset[j] = dbeta[c] / count;
      slope[j] = n.inverse_std[c] * dgamma[c] / count;
    }
  }

  __device__ __forceinline__ void operator()(Floats& x, const Floats& dz) const {
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      x[j] = scale[j] * (dz[j] - offset[j] - (x[j] - mean[j]) * slope[j]);
  }
};

extern "C" __global__ void __launch_bounds__(256)
    batch_norm_backward_apply_kernel(const BatchNormBackward op) {
  Walk walk;
  if (walk.row >= op.rows) return;
  Gradient gradient;
  if (kRecomputes && !RN_STASH) gradient.norm.read(op.norm, walk.column);
  Affine main, other;
  main.read(op.norm, op.dgamma, op.dbeta, op.rows, walk.column);
  if (RN_SHORTCUT == 2)
    other.read(op.shortcut_norm, op.dshortcut_gamma, op.dbeta, op.rows, walk.column);
  for (Index row = walk.row; row < op.rows; row += walk.step) {
    Floats dz, x, shortcut;
    if (RN_STASH) {
      load(dz, stash(op), row, walk.column);
      load(x, op.x, row, walk.column);
    } else {
      gradient.read(op, row, walk.column, dz, x);
    }
    if (RN_SHORTCUT == 2 && op.dshortcut) {
      load(shortcut, op.shortcut, row, walk.column);
      other(shortcut, dz);
      store(op.dshortcut, row, walk.column, shortcut);
    }
    if (RN_SHORTCUT == 1 && RN_STASH != 1) store(op.dshortcut, row, walk.column, dz);
    if (op.dx) {
      main(x, dz);
      store(op.dx, row, walk.column, x);
    }
  }
}
