// Operations that a depthwise convolution shares its passes over memory with.
#pragma once

#include "map_operations.h"

namespace rn {

// BatchNormApply without a shortcut, DepthwiseConvForward of its y, BatchNormStatistics of that one's y.
// Without a norm (its mean is null) the convolution reads x as it is. `activated`, the y of the first,
// is written where wanted. The sums in partial are of y itself, not of distances from a pivot.
//
// The statistics come first, because the kernel that finishes them takes the begin of the record.
struct DepthwiseNormForward : BatchNormStatistics {
  const void* input;
  Norm norm;
  void* activated;
  const void* w;
  void* y;
  ConvShape shape;
  int activation;
};

}  // namespace rn
