// What the passes of a batch norm's backward do with a channel.
#pragma once

#include "map.cuh"

namespace rn {

// dy activation'(z) for a z not yet rounded. Where the slope is 0 or 1, comparing with the largest
// value that rounds to a kink says as much as rounding would.
__device__ __forceinline__ float masked(float dy, float z) {
  constexpr bool kHalf = sizeof(Element) == 2;
  constexpr float kZero = kHalf ? 0x1p-25f : 0.0f, kSix = kHalf ? 0x1.7fep2f : 6.0f;
  if (RN_ACTIVATION == kRelu) return z <= kZero ? 0.0f * dy : dy;
  if (RN_ACTIVATION == kRelu6) return z <= kZero || z >= kSix ? 0.0f * dy : dy;
  return dy * activation_slope(RN_ACTIVATION, gate_of(RN_ACTIVATION, rounded<Element>(z)));
}

// dx = scale (dz - offset - (x - mean) slope): what is left of the two sums for a pack.
struct Affine {
  Floats mean, scale, offset, slope;

  __device__ __forceinline__ void read(const Norm& n, const float* dgamma, const float* dbeta,
                                       Index rows, int column) {
    float count = static_cast<float>(rows);
    Floats inverse_std;
    constants(mean, n.mean, column);
    constants(scale, n.gamma, column);
    constants(offset, dbeta, column);
    constants(slope, dgamma, column);
    constants(inverse_std, n.inverse_std, column);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      scale[j] *= inverse_std[j];
      offset[j] /= count;
      slope[j] = inverse_std[j] * slope[j] / count;
    }
  }

  __device__ __forceinline__ void operator()(Floats& x, const Floats& dz) const {
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      x[j] = scale[j] * (dz[j] - offset[j] - (x[j] - mean[j]) * slope[j]);
  }
};

}  // namespace rn
