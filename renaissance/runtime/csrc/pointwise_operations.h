// A 1x1 convolution joined with the norm in front of it and the statistics behind it.
#pragma once

#include "map_operations.h"

namespace rn {

// BatchNormApply of x (rows, c), the convolution of its y with filters w (k, c) into statistics.x
// (rows, k), and the statistics of that. Without a norm (apply.norm.mean is null) x itself is
// convolved, and neither y nor a mask is written; with one, y is written where wanted. Half precision only; c and k are multiples of 8.
//
// The statistics come first: the kernel that finishes them takes no more of the record than that.
// statistics.partial holds partial_rows rows: sums of the output, then of its squares.
struct PointwiseForward {
  BatchNormStatistics statistics;
  BatchNormApply apply;
  const void* w;
};

}  // namespace rn
