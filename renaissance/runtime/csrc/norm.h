// Batch norm on one value; shared by the host twins and the kernels.
#pragma once

#include "activation.h"
#include "map_operations.h"

namespace rn {

// Subtracting the mean before scaling keeps the digits that x scale + shift would cancel.
RN_INLINE float normalised(float x, float mean, float inverse_std, float gamma, float beta) {
  return (x - mean) * (gamma * inverse_std) + beta;
}

// What activation_slope reads: the activation's input where its output does not tell, else its output.
RN_INLINE float gate_of(int activation, float z) {
  return activation == kSilu || activation == kHardswish ? z : activate(activation, z);
}

// dx of batch norm from the two sums over its rows.
RN_INLINE float norm_gradient(float dz, float xhat, float scale, float dbeta_mean,
                              float dgamma_mean) {
  return scale * (dz - dbeta_mean - xhat * dgamma_mean);
}

// The median of a channel's first, middle and last value lies within a few deviations of its mean:
// sums of distances from it do not cancel, and one outlier among the three does no harm.
RN_INLINE float median(float a, float b, float c) {
  float low = a < b ? a : b, high = a < b ? b : a;
  float at_most = high < c ? high : c;
  return low > at_most ? low : at_most;
}

}  // namespace rn
