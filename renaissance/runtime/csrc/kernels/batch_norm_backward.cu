// Backward of batch norm, the activation behind it and the add or the max-pool behind that, in two
// passes over memory: sums, then dx. Where no gate is given the mask is computed again, not stored.
//
// RN_ADDEND: dy is a sum of two. RN_STASH: the first pass stores dz, so that the second reads one map
// where it would read all that dz is made of: 1 in dshortcut, where it is wanted anyway, 2 in dx,
// which the second pass then overwrites element by element.
// RN_GATED: 1 the activation's output (or input) is given, 2 the mask that it left; else norm(x) is
// computed again. RN_POOLED:
// dy is a max-pool's. RN_SHORTCUT: 0 none, 1 dshortcut = dz, 2 the shortcut was normalised too.
#if RN_POOLED
#include "window.cuh"
#else
#include "map.cuh"
#endif
#include "norm_gradient.cuh"

using namespace rn;

constexpr int kSums = RN_SHORTCUT == 2 ? 3 : 2;
// Two blocks to a multiprocessor at least: a pool's pass would take more registers than it gains by.
constexpr int kBlocks = RN_POOLED ? 2 : 1;
constexpr bool kRecomputes = RN_ACTIVATION != 0 && !RN_GATED;
static_assert(RN_GATED != 2 || kWidth == 8, "a mask has a byte for eight channels");

__device__ __forceinline__ void* stash(const BatchNormBackward& op) {
  return RN_STASH == 1 ? op.dshortcut : op.dx;
}

struct Gradient {
  PackNorm norm;

  // dz of a pack from the gradient behind the activation.
  __device__ __forceinline__ void mask(const BatchNormBackward& op, Index row, int column, Floats& dz,
                                       const Floats& x) const {
    Floats gate;
    uint bits = 0;
    if (RN_GATED == 2) bits = static_cast<const unsigned char*>(op.mask)[row * kColumns + column];
    if (RN_GATED == 1 && RN_ACTIVATION) load(gate, op.gate, row, column);
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      if (RN_GATED == 2)
        dz[j] = bits >> j & 1 ? dz[j] : 0.0f * dz[j];
      else if (RN_GATED && RN_ACTIVATION)
        dz[j] *= activation_slope(RN_ACTIVATION, gate[j]);
      else if (RN_ACTIVATION)
        dz[j] = masked(dz[j], norm(x[j], j));
  }

  // dz of a pack, and x beside it.
  __device__ __forceinline__ void read(const BatchNormBackward& op, Index row, int column,
                                       Floats& dz, Floats& x) const {
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
    mask(op, row, column, dz, x);
  }
};

// The sums of a thread, pixel by pixel.
struct Sums {
  const BatchNormBackward& op;
  int column;
  Gradient gradient;
  Floats sum, product, other, center;

  __device__ __forceinline__ Sums(const BatchNormBackward& op, int column)
      : op(op), column(column) {
    zero(sum), zero(product), zero(other);
  }

  __device__ __forceinline__ void begin() {
    gradient.norm.read(op.norm, column);
    if (RN_SHORTCUT == 2) constants(center, op.shortcut_norm.mean, column);
  }

  __device__ __forceinline__ void add(Index row, const Floats& dz, const Floats& x) {
    Floats shortcut;
    if (RN_SHORTCUT == 2) load(shortcut, op.shortcut, row, column);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      sum[j] += dz[j];
      product[j] += dz[j] * (x[j] - gradient.norm.mean[j]);
      if (RN_SHORTCUT == 2) other[j] += dz[j] * (shortcut[j] - center[j]);
    }
  }

#if RN_POOLED && RN_SWEEPS
  Pack ahead[kTilePixels];

  __device__ __forceinline__ void fetch(int k, Index row, bool inside) {
    ahead[k] = inside ? rn::fetch(op.x, row, column) : zeros();
  }

  __device__ __forceinline__ void use(int k, Index row, bool inside, Floats& dz) {
    if (!inside) return;
    Floats x;
    unpack(x, ahead[k]);
    gradient.mask(op, row, column, dz, x);
    add(row, dz, x);
  }
#endif
};

extern "C" __global__ void __launch_bounds__(256, kBlocks)
    batch_norm_backward_sums_kernel(const BatchNormBackward op) {
  Reduction block;
  Sums sums(op, block.column);
  if (block.active) {
    sums.begin();
    Index step = static_cast<Index>(gridDim.x) * kRowLanes;
    Index first = static_cast<Index>(blockIdx.x) * kRowLanes + block.lane;
#if RN_POOLED && RN_SWEEPS
    MaxOutputs outputs{op.dy, op.argmax};
    for (Index strip = first; strip < strips_of(op.pool); strip += step)
      sweep(outputs, op.pool, strip, block.column, sums);
#else
#pragma unroll 2
    for (Index row = first; row < op.rows; row += step) {
      Floats dz, x;
      sums.gradient.read(op, row, block.column, dz, x);
      if (RN_STASH) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) dz[j] = rounded<Element>(dz[j]);
        store(stash(op), row, block.column, dz);
      }
      sums.add(row, dz, x);
    }
#endif
  }
  block.write(op.partial, sums.sum, 0, kSums);
  block.write(op.partial, sums.product, 1, kSums);
  if (RN_SHORTCUT == 2) block.write(op.partial, sums.other, 2, kSums);
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

// What a thread of the second pass does with a pixel.
struct Apply {
  const BatchNormBackward& op;
  int column;
  Gradient gradient;
  Affine main, other;

  __device__ __forceinline__ Apply(const BatchNormBackward& op, int column)
      : op(op), column(column) {
    if (kRecomputes && !RN_STASH) gradient.norm.read(op.norm, column);
    main.read(op.norm, op.dgamma, op.dbeta, op.rows, column);
    if (RN_SHORTCUT == 2)
      other.read(op.shortcut_norm, op.dshortcut_gamma, op.dbeta, op.rows, column);
  }

  __device__ __forceinline__ void write(Index row, const Floats& dz, Floats& x) {
    if (RN_SHORTCUT == 2 && op.dshortcut) {
      Floats shortcut;
      load(shortcut, op.shortcut, row, column);
      other(shortcut, dz);
      store(op.dshortcut, row, column, shortcut);
    }
    if (RN_SHORTCUT == 1 && RN_STASH != 1) store(op.dshortcut, row, column, dz);
    if (op.dx) {
      main(x, dz);
      store(op.dx, row, column, x);
    }
  }

#if RN_POOLED && RN_SWEEPS
  Pack ahead[kTilePixels];

  __device__ __forceinline__ void fetch(int k, Index row, bool inside) {
    ahead[k] = inside ? rn::fetch(op.x, row, column) : zeros();
  }

  __device__ __forceinline__ void use(int k, Index row, bool inside, Floats& dz) {
    if (!inside) return;
    Floats x;
    unpack(x, ahead[k]);
    gradient.mask(op, row, column, dz, x);
    write(row, dz, x);
  }
#endif
};

extern "C" __global__ void __launch_bounds__(256, kBlocks)
    batch_norm_backward_apply_kernel(const BatchNormBackward op) {
  Walk walk;
#if RN_POOLED && RN_SWEEPS
  if (walk.row >= strips_of(op.pool)) return;
  Apply apply(op, walk.column);
  MaxOutputs outputs{op.dy, op.argmax};
  for (Index strip = walk.row; strip < strips_of(op.pool); strip += walk.step)
    sweep(outputs, op.pool, strip, walk.column, apply);
#else
  if (walk.row >= op.rows) return;
  Apply apply(op, walk.column);
  // from the last row to the first: the cache still holds what the sums read last
  for (Index row = op.rows - 1 - walk.row; row >= 0; row -= walk.step) {
    Floats dz, x;
    if (RN_STASH) {
      load(dz, stash(op), row, walk.column);
      load(x, op.x, row, walk.column);
    } else {
      apply.gradient.read(op, row, walk.column, dz, x);
    }
    apply.write(row, dz, x);
  }
#endif
}
