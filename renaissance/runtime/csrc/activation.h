// The activations and their derivatives on one float; shared by the host twins and the kernels.
#pragma once

#include "operations.h"

#ifdef __CUDACC__
#define RN_INLINE __device__ __forceinline__
#else
#include <cmath>
#define RN_INLINE inline
#endif

namespace rn {

RN_INLINE float logistic(float x) { return 1.0f / (1.0f + expf(-x)); }

// NaN passes through: a diverging run is seen, not clamped.
RN_INLINE float activate(int activation, float x) {
  switch (activation) {
    case kRelu: return x <= 0.0f ? 0.0f : x;
    case kRelu6: return x <= 0.0f ? 0.0f : (x >= 6.0f ? 6.0f : x);
    case kLeakyRelu: return x > 0.0f ? x : 0.01f * x;
    case kSilu: return x * logistic(x);
    case kHardswish: return x * (x <= -3.0f ? 0.0f : (x >= 3.0f ? 6.0f : x + 3.0f)) / 6.0f;
    case kElu: return x > 0.0f ? x : expm1f(x);
    case kSigmoid: return logistic(x);
    case kTanh: return tanhf(x);
    default: return x;
  }
}

// The derivative, read off the activation's output; off its input for silu and hardswish, whose output
// does not tell. At a kink it is that of the flat side.
RN_INLINE float activation_slope(int activation, float gate) {
  switch (activation) {
    case kRelu: return gate <= 0.0f ? 0.0f : 1.0f;
    case kRelu6: return gate <= 0.0f || gate >= 6.0f ? 0.0f : 1.0f;
    case kLeakyRelu: return gate > 0.0f ? 1.0f : 0.01f;
    case kSilu: {
      float s = logistic(gate);
      return s * (1.0f + gate * (1.0f - s));
    }
    case kHardswish:
      return gate <= -3.0f ? 0.0f : (gate >= 3.0f ? 1.0f : (2.0f * gate + 3.0f) / 6.0f);
    case kElu: return gate > 0.0f ? 1.0f : gate + 1.0f;
    case kSigmoid: return gate * (1.0f - gate);
    case kTanh: return 1.0f - gate * gate;
    default: return 1.0f;
  }
}

// Whether a mask lets the gradient through where the slope is 0 or 1.
RN_INLINE bool is_open(int activation, float gate) {
  return activation_slope(activation, gate) != 0.0f;
}

}  // namespace rn
