// y = activation(norm(x) + shortcut) on packs in registers, with the constants of all channels in shared
// memory. RN_PROLOGUE: 0 x as it is, 1 norm, 2 with a shortcut, 3 with a normalised one.
#pragma once

#include "norm.h"
#include "pointwise_operations.h"
#include "pointwise_tile.cuh"

namespace rn {

constexpr bool kNorm = RN_PROLOGUE > 0, kShortcut = RN_PROLOGUE > 1, kBothNorms = RN_PROLOGUE > 2;
constexpr int kPadded = kSteps * 32, kNorms = kNorm + kBothNorms;

// Mean, scale and shift of all channels in shared memory, a row each; zeros behind the last channel.
__device__ __forceinline__ void load_norm(float* to, const Norm& norm) {
  for (int c = threadIdx.x; c < kPadded; c += kThreads) {
    bool real = c < RN_C;
    to[c] = real ? norm.mean[c] : 0.0f;
    to[kPadded + c] = real ? norm.gamma[c] * norm.inverse_std[c] : 0.0f;
    to[2 * kPadded + c] = real ? norm.beta[c] : 0.0f;
  }
}

// The constants of four channels.
struct FourNorms {
  float mean[4], scale[4], beta[4];

  __device__ __forceinline__ FourNorms(const float* from) {
    read(mean, from), read(scale, from + kPadded), read(beta, from + 2 * kPadded);
  }
  static __device__ __forceinline__ void read(float (&to)[4], const float* from) {
    Vector<float, 4> four = *reinterpret_cast<const Vector<float, 4>*>(from);
#pragma unroll
    for (int j = 0; j < 4; ++j) to[j] = four.value[j];
  }
  __device__ __forceinline__ float operator()(float x, int j) const {
    return (x - mean[j]) * scale[j] + beta[j];
  }
};

// ReLU and ReLU6 of a value are exact: rounding it first changes nothing.
__device__ __forceinline__ float activated(float z) {
  constexpr bool kExact = RN_ACTIVATION == kNone || RN_ACTIVATION == kRelu || RN_ACTIVATION == kRelu6;
  return activate(RN_ACTIVATION, kExact ? z : rounded<half_bits>(z));
}

// Whether the gradient passes the activation: a question to z as a half, answered without rounding it.
__device__ __forceinline__ bool passes(float z) {
  constexpr float kZero = 0x1p-25f, kSix = 6.0f - 0x1p-9f;  // the last to become 0, the first to be 6
  if (RN_ACTIVATION == kRelu) return !(z <= kZero);
  if (RN_ACTIVATION == kRelu6) return !(z <= kZero || z >= kSix);
  return is_open(RN_ACTIVATION, rounded<half_bits>(z));
}

// x becomes y; bits become a byte of the mask for every row.
__device__ __forceinline__ void apply(Pack (&x)[kRowsOfLane], const Pack (&shortcut)[kRowsOfLane],
                                      const float* constants, uint (&bits)[kRowsOfLane]) {
#pragma unroll
  for (int r = 0; r < kRowsOfLane; ++r) bits[r] = 0;
#pragma unroll
  for (int four = 0; four < 2; ++four) {
    FourNorms norm(constants + 4 * four);
    FourNorms other(constants + 4 * four + (kBothNorms ? 3 * kPadded : 0));
#pragma unroll
    for (int r = 0; r < kRowsOfLane; ++r)
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        uint pair = x[r].value[2 * four + p], along = shortcut[r].value[2 * four + p];
        float z[2] = {norm(low_half(pair), 2 * p), norm(high_half(pair), 2 * p + 1)};
        float s[2] = {low_half(along), high_half(along)};
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (kBothNorms) z[e] += other(s[e], 2 * p + e);
          else if (kShortcut) z[e] += s[e];
          if (RN_MASK) bits[r] |= passes(z[e]) ? 1u << (4 * four + 2 * p + e) : 0u;
        }
        x[r].value[2 * four + p] = pack_halves(activated(z[0]), activated(z[1]));
      }
  }
}

}  // namespace rn
