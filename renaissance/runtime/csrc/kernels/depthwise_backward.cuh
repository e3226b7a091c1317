// What the threads of kernels/depthwise_backward.cu share: packs as words, activations of ReLU's kind, the
// constants of both norms, and the steps of a block.
#pragma once

#include "map.cuh"

namespace rn {

static_assert(sizeof(Element) == 2 && kWidth % 2 == 0, "pairs of halves");

// A pack as it is fetched: in words, which the compiler does not take apart into halves.
typedef Vector<uint, kWidth / 2> Words;

__device__ __forceinline__ Words nothing() {
  Words words;
#pragma unroll
  for (int k = 0; k < kWidth / 2; ++k) words.value[k] = 0;
  return words;
}

__device__ __forceinline__ void widen_all(Floats& to, const Words& words) {
#pragma unroll
  for (int k = 0; k < kWidth; k += 2) unpack_halves(to[k], to[k + 1], words.value[k / 2]);
}

// Whether an activation lets a gradient pass, by the distance of its input, not yet rounded, from
// `middle`: comparing with the largest value that rounds to a kink says as much as rounding would.
constexpr float kZero = 0x1p-25f, kSix = 0x1.7fep2f;

constexpr float middle(int activation) {
  return activation == kRelu6 ? (kZero + kSix) / 2 : 0.0f;
}

__device__ __forceinline__ bool passes(int activation, float z) {
  if (activation == kRelu) return !(z <= kZero);
  if (activation == kRelu6) return !(fabsf(z) >= (kSix - kZero) / 2);
  return true;
}

// The activation of z, rounded before it.
__device__ __forceinline__ void activate_all(int activation, Floats& z) {
#pragma unroll
  for (int k = 0; k < kWidth; k += 2) {
    uint pair = pack_halves(z[k], z[k + 1]);
    if (activation != kNone) pair = larger_halves(pair, 0u);
    if (activation == kRelu6) pair = smaller_halves(pair, 0x46004600u);
    unpack_halves(z[k], z[k + 1], pair);
  }
}

// Whether an activation stops a gradient, by its output.
__device__ __forceinline__ bool is_flat(int activation, float y) {
  if (activation == kRelu) return y <= 0.0f;
  if (activation == kRelu6) return fabsf(y - 3.0f) >= 3.0f;
  return false;
}

// The norms' constants lie in shared memory, and each step reads them again: registers are short.
//   z - middle = y scale + shift, dy = dz scale + y slope + offset; the input's z = x scale + shift.
// A half times a float loses nothing that its own rounding has not lost: no mean need be subtracted.
enum { kScale, kShift, kSlope, kOffset, kInputScale, kInputShift, kConstants };
typedef float Table[kConstants][kTile * kWidth];

__device__ __forceinline__ void take(Floats& to, const Table& table, int which, int slot) {
#pragma unroll
  for (int k = 0; k < kWidth; ++k) to[k] = table[which][slot * kWidth + k];
}

__device__ __forceinline__ void prepare(Table& table, int slot, const DepthwiseConvBackward& op,
                                        int column) {
#if RN_Y_NORM
  float count = static_cast<float>(op.shape.n * op.shape.p * op.shape.q);
  PackNorm norm;
  Floats dgamma, dbeta, inverse_std;
  norm.read(op.y_norm, column);
  constants(dgamma, op.dgamma, column);
  constants(dbeta, op.dbeta, column);
  constants(inverse_std, op.y_norm.inverse_std, column);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    int c = slot * kWidth + k;
    float slope = -norm.scale[k] * (inverse_std[k] * dgamma[k] / count);
    table[kScale][c] = norm.scale[k];
    table[kShift][c] = norm.beta[k] - norm.mean[k] * norm.scale[k] - middle(RN_Y_ACTIVATION);
    table[kSlope][c] = slope;
    table[kOffset][c] = -norm.scale[k] * (dbeta[k] / count) - norm.mean[k] * slope;
  }
#endif
#if RN_X_NORM
  PackNorm before;
  before.read(op.x_norm, column);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    int c = slot * kWidth + k;
    table[kInputScale][c] = before.scale[k];
    table[kInputShift][c] = before.beta[k] - before.mean[k] * before.scale[k];
  }
#endif
}

// The steps of a block: all of its lanes walk down neighbouring strips, a group of them, and then the
// next group's. Each block has as many steps as any other, so groups are cut where it has to be.
struct Steps {
  int count, groups, first_group, first, last_group, end;

  __device__ __forceinline__ Steps(const ConvShape& s, int strips) {
    count = (static_cast<int>(s.h) + RN_PAD + RN_STRIDE - 1) / RN_STRIDE;
    groups = (strips + kRowLanes - 1) / kRowLanes;
    uint all = static_cast<uint>(groups) * static_cast<uint>(count);
    uint share = (all + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * share;
    uint beyond = begin + share < all ? begin + share : all;
    first_group = static_cast<int>(begin / static_cast<uint>(count));
    first = static_cast<int>(begin % static_cast<uint>(count));
    last_group = begin < beyond ? static_cast<int>((beyond - 1) / static_cast<uint>(count)) : -1;
    end = begin < beyond ? static_cast<int>((beyond - 1) % static_cast<uint>(count)) + 1 : 0;
  }
};

}  // namespace rn
