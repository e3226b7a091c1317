// Batch statistics in one pass over x, then the little kernel that finishes them.
// Sums run over distances from a pivot (norm.h), so the variance does not cancel.
//
// With RN_SUMMED the sums come from a convolution, over y itself, in RN_PIECES rows (partial_rows where
// it is not given). A variance from them loses about (mean / std)^2 2^-24 of itself; halves far from
// zero lose more than that when they are rounded, so it is good for them, and floats never take this
// path.
#include "map.cuh"

#ifndef RN_SUMMED
#define RN_SUMMED 0
#endif
#ifndef RN_PIECES
#define RN_PIECES 0
#endif

using namespace rn;

__device__ __forceinline__ float pivot(const BatchNormStatistics& op, int c) {
  const Element* x = static_cast<const Element*>(op.x);
  return median(widen(x[c]), widen(x[(op.rows - 1) / 2 * RN_C + c]),
                widen(x[(op.rows - 1) * RN_C + c]));
}

extern "C" __global__ void __launch_bounds__(256)
    batch_norm_statistics_kernel(const BatchNormStatistics op) {
  Reduction block;
  Floats sum, squares, center;
  zero(sum), zero(squares);
  if (block.active) {
    Floats middle, last;
    load(center, op.x, 0, block.column);
    load(middle, op.x, (op.rows - 1) / 2, block.column);
    load(last, op.x, op.rows - 1, block.column);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) center[j] = median(center[j], middle[j], last[j]);
    Index step = static_cast<Index>(gridDim.x) * kRowLanes;
#pragma unroll 4
    for (Index row = static_cast<Index>(blockIdx.x) * kRowLanes + block.lane; row < op.rows;
         row += step) {
      Floats x;
      load(x, op.x, row, block.column);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        float distance = x[j] - center[j];
        sum[j] += distance;
        squares[j] += distance * distance;
      }
    }
  }
  block.write(op.partial, sum, 0, 2);
  block.write(op.partial, squares, 1, 2);
}

extern "C" __global__ void __launch_bounds__(1024)
    batch_norm_finalise_kernel(const BatchNormStatistics op) {
  int c = blockIdx.x * 32 + threadIdx.x % 32;
  bool inside = c < RN_C;
  Index pieces = RN_PIECES ? RN_PIECES : op.partial_rows;
  double sum = column_sum(op.partial, pieces, 2 * RN_C, c, inside);
  double squares = column_sum(op.partial + RN_C, pieces, 2 * RN_C, c, inside);
  if (threadIdx.x >= 32 || !inside) return;
  double rows = static_cast<double>(op.rows), m = op.momentum;
  double offset = sum / rows, var = squares / rows - offset * offset;
  var = var < 0.0 ? 0.0 : var;  // NaN stays
  double mean = offset + (RN_SUMMED ? 0.0f : pivot(op, c)), unbiased = op.rows > 1 ? var * (rows / (rows - 1.0)) : var;
  op.mean[c] = static_cast<float>(mean);
  op.inverse_std[c] = static_cast<float>(1.0 / sqrt(var + op.eps));
  op.next_mean[c] = static_cast<float>((1.0 - m) * op.prev_mean[c] + m * mean);
  op.next_var[c] = static_cast<float>((1.0 - m) * op.prev_var[c] + m * unbiased);
}
