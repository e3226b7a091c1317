// Backward of batch norm, the activation behind it and the add or the max-pool behind that, in two
// passes over memory: sums, then dx. Where no gate is given the mask is computed again, not stored.
//
// RN_ADDEND: dy is a sum of two (addend.cuh). RN_STASH: the first pass stores dz, so that the second reads one map
// where it would read all that dz is made of: 1 in dshortcut, where it is wanted anyway, 2 in dx,
// which the second pass then overwrites element by element.
// RN_GATED: 1 the activation's output (or input) is given, 2 the mask that it left; else norm(x) is
// computed again. RN_POOLED: dy is a max-pool's. RN_SHORTCUT: 0 none, 1 dshortcut = dz, 2 the shortcut
// was normalised too. The second pass walks the other way round than the first: the cache still holds
// what that read last.
#if RN_POOLED && RN_SWEEPS && RN_STEPS_AHEAD
#include "window_ahead.cuh"
#elif RN_POOLED
#include "window.cuh"
#else
#include "map.cuh"
#endif
#include "addend.cuh"
#include "norm_gradient.cuh"

using namespace rn;

constexpr int kSums = RN_SHORTCUT == 2 ? 3 : 2;
constexpr bool kRecomputes = RN_ACTIVATION != 0 && !RN_GATED;
static_assert(RN_GATED != 2 || kWidth == 8, "a mask has a byte for eight channels");

__device__ __forceinline__ void* stash(const BatchNormBackward& op) {
  return RN_STASH == 1 ? op.dshortcut : op.dx;
}

// What tells the slope of the activation for a pack, where it is not computed again.
struct Gate {
  Pack pack;
  uint bits;

  __device__ __forceinline__ void fetch(const BatchNormBackward& op, Index row, int column) {
    if (RN_GATED == 2) bits = static_cast<const unsigned char*>(op.mask)[row * kColumns + column];
    if (RN_GATED == 1 && RN_ACTIVATION) pack = rn::fetch(op.gate, row, column);
  }
};

struct Gradient {
  PackNorm norm;

  __device__ __forceinline__ void mask(const BatchNormBackward& op, Index row, int column, Floats& dz,
                                       const Floats& x) const {
    Gate found;
    found.fetch(op, row, column);
    mask(found, dz, x);
  }

  // dz of a pack from the gradient behind the activation.
  __device__ __forceinline__ void mask(const Gate& found, Floats& dz, const Floats& x) const {
    Floats gate;
    if (RN_GATED == 1 && RN_ACTIVATION) unpack(gate, found.pack);
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      if (RN_GATED == 2)
        dz[j] = found.bits >> j & 1 ? dz[j] : 0.0f * dz[j];
      else if (RN_GATED && RN_ACTIVATION)
        dz[j] *= activation_slope(RN_ACTIVATION, gate[j]);
      else if (RN_ACTIVATION)
        dz[j] = masked(dz[j], norm(x[j], j));
  }

#if RN_POOLED
  // dz of a pack, and x beside it.
  __device__ __forceinline__ void read(const BatchNormBackward& op, Index row, int column,
                                       Floats& dz, Floats& x) const {
    load(x, op.x, row, column);
    gather_winners(dz, op.dy, op.argmax, op.pool, pixel_of(row, op.pool.h, op.pool.w), column);
    mask(op, row, column, dz, x);
  }
#endif
};

// What a pass reads of a pixel, as it lies in memory; where kStashed, dz as the first pass left it.
template <bool kStashed>
struct Pixel {
  Pack x, dy, addend, shortcut;
  Gate gate;

  __device__ __forceinline__ void fetch(const BatchNormBackward& op, Index row, int column) {
    x = rn::fetch(op.x, row, column);
    dy = rn::fetch(kStashed ? stash(op) : op.dy, row, column);
#if RN_ADDEND
    Index other = addend_pixel(row);
    if (!kStashed) addend = other < 0 ? zeros() : rn::fetch(op.addend, other, column);
#endif
    if (!kStashed) gate.fetch(op, row, column);
    if (RN_SHORTCUT == 2) shortcut = rn::fetch(op.shortcut, row, column);
  }

  __device__ __forceinline__ void unpack(const Gradient& gradient, Floats& dz, Floats& x) const {
    rn::unpack(x, this->x);
    rn::unpack(dz, dy);
    if (kStashed) return;
    if (RN_ADDEND) {
      Floats other;
      rn::unpack(other, addend);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) dz[j] = rounded<Element>(dz[j] + other[j]);
    }
    gradient.mask(gate, dz, x);
  }
};

#if RN_POOLED && RN_SWEEPS
template <class Visitor>
__device__ __forceinline__ void sweep_outputs(const BatchNormBackward& op, Index strip, int column,
                                              Visitor& visitor, void* stages) {
#if RN_STEPS_AHEAD
  sweep_ahead(op, strip, column, visitor, static_cast<Ahead*>(stages));
#else
  sweep(MaxOutputs{op.dy, op.argmax}, op.pool, strip, column, visitor);
#endif
}
#endif

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

  __device__ __forceinline__ void add(const Floats& dz, const Floats& x) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      sum[j] += dz[j];
      product[j] += dz[j] * (x[j] - gradient.norm.mean[j]);
    }
  }

#if !RN_POOLED
  Pixel<false> ahead[RN_AHEAD];

  __device__ __forceinline__ void fetch(int k, Index row) { ahead[k].fetch(op, row, column); }

  __device__ __forceinline__ void use(int k, Index row) {
    Floats dz, x;
    ahead[k].unpack(gradient, dz, x);
    if (RN_STASH) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) dz[j] = rounded<Element>(dz[j]);
      store(stash(op), row, column, dz);
    }
    add(dz, x);
    if (RN_SHORTCUT == 2) {
      Floats shortcut;
      unpack(shortcut, ahead[k].shortcut);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) other[j] += dz[j] * (shortcut[j] - center[j]);
    }
  }
#elif RN_SWEEPS
  Pack ahead[kTilePixels];

  __device__ __forceinline__ void fetch(int k, Index row, bool inside) {
    ahead[k] = inside ? rn::fetch(op.x, row, column) : zeros();
  }

  __device__ __forceinline__ void use(int k, Index row, bool inside, Floats& dz) {
    if (!inside) return;
    Floats x;
    unpack(x, ahead[k]);
    gradient.mask(op, row, column, dz, x);
    add(dz, x);
  }
#endif
};

extern "C" __global__ void __launch_bounds__(256, kResident)
    batch_norm_backward_sums_kernel(const BatchNormBackward op) {
  Reduction block;
  Sums sums(op, block.column);
  if (block.active) {
    sums.begin();
#if !RN_POOLED
    in_groups<false>(block.first(), block.step(), op.rows, sums);
#elif RN_SWEEPS
    extern __shared__ __align__(16) unsigned char shared[];
    for (Index strip = block.first(); strip < strips_of(op.pool); strip += block.step())
      sweep_outputs(op, strip, block.column, sums, shared);
#else
    for (Index row = block.first(); row < op.rows; row += block.step()) {
      Floats dz, x;
      sums.gradient.read(op, row, block.column, dz, x);
      sums.add(dz, x);
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
  double sums[kSums];
  column_sums(op.partial, op.partial_rows, c, inside, sums);
  if (threadIdx.x >= 32 || !inside) return;
  op.dbeta[c] = static_cast<float>(sums[0]);
  op.dgamma[c] = static_cast<float>(sums[1] * op.norm.inverse_std[c]);
  if (RN_SHORTCUT != 2) return;
  op.dshortcut_beta[c] = static_cast<float>(sums[0]);
  op.dshortcut_gamma[c] = static_cast<float>(sums[kSums - 1] * op.shortcut_norm.inverse_std[c]);
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
    if (RN_SHORTCUT == 1 && RN_STASH != 1) store(op.dshortcut, row, column, dz);
    if (op.dx) {
      main(x, dz);
      store(op.dx, row, column, x);
    }
  }

#if !RN_POOLED
  Pixel<RN_STASH != 0> ahead[RN_AHEAD];

  __device__ __forceinline__ void fetch(int k, Index row) { ahead[k].fetch(op, row, column); }

  __device__ __forceinline__ void use(int k, Index row) {
    Floats dz, x;
    ahead[k].unpack(gradient, dz, x);
    if (RN_SHORTCUT == 2 && op.dshortcut) {
      Floats shortcut;
      unpack(shortcut, ahead[k].shortcut);
      other(shortcut, dz);
      store(op.dshortcut, row, column, shortcut);
    }
    write(row, dz, x);
  }
#elif RN_SWEEPS
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

extern "C" __global__ void __launch_bounds__(256, kResident)
    batch_norm_backward_apply_kernel(const BatchNormBackward op) {
  Walk walk;
#if !RN_POOLED
  if (walk.row >= op.rows) return;
  Apply apply(op, walk.column);
  in_groups<true>(walk.row, walk.step, op.rows, apply);
#elif RN_SWEEPS
  if (walk.row >= strips_of(op.pool)) return;
  extern __shared__ __align__(16) unsigned char shared[];
  Apply apply(op, walk.column);
  for (Index strip = walk.row; strip < strips_of(op.pool); strip += walk.step)
    sweep_outputs(op, strip, walk.column, apply, shared);
#else
  if (walk.row >= op.rows) return;
  Apply apply(op, walk.column);
  for (Index row = op.rows - 1 - walk.row; row >= 0; row -= walk.step) {
    Floats dz, x;
    apply.gradient.read(op, row, walk.column, dz, x);
    apply.write(row, dz, x);
  }
#endif
}
