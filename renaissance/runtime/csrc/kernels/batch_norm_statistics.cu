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

// Sums of a thread over its pixels.
struct Distances {
  const BatchNormStatistics& op;
  int column;
  Floats sum, squares, center;
  Pack ahead[RN_AHEAD];

  __device__ __forceinline__ Distances(const BatchNormStatistics& op, int column)
      : op(op), column(column) {
    zero(sum), zero(squares);
  }

  __device__ __forceinline__ void begin() {
    Floats middle, last;
    load(center, op.x, 0, column);
    load(middle, op.x, (op.rows - 1) / 2, column);
    load(last, op.x, op.rows - 1, column);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) center[j] = median(center[j], middle[j], last[j]);
  }

  __device__ __forceinline__ void fetch(int k, Index row) {
    ahead[k] = rn::fetch(op.x, row, column);
  }

  __device__ __forceinline__ void use(int k, Index) {
    Floats x;
    unpack(x, ahead[k]);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      float distance = x[j] - center[j];
      sum[j] += distance;
      squares[j] += distance * distance;
    }
  }
};

extern "C" __global__ void __launch_bounds__(256, kResident)
    batch_norm_statistics_kernel(const BatchNormStatistics op) {
  Reduction block;
  Distances distances(op, block.column);
  if (block.active) {
    distances.begin();
    in_groups<false>(block.first(), block.step(), op.rows, distances);
  }
  block.write(op.partial, distances.sum, 0, 2);
  block.write(op.partial, distances.squares, 1, 2);
}

extern "C" __global__ void __launch_bounds__(1024)
    batch_norm_finalise_kernel(const BatchNormStatistics op) {
  int c = blockIdx.x * 32 + threadIdx.x % 32;
  bool inside = c < RN_C;
  Index pieces = RN_PIECES ? RN_PIECES : op.partial_rows;
  // read before the barriers, so that these are on their way beside the sums
  float before = inside && !RN_SUMMED ? pivot(op, c) : 0.0f;
  float prev_mean = inside ? op.prev_mean[c] : 0.0f, prev_var = inside ? op.prev_var[c] : 0.0f;
  double sums[2];
  column_sums(op.partial, pieces, c, inside, sums);
  if (threadIdx.x >= 32 || !inside) return;
  double rows = static_cast<double>(op.rows), m = op.momentum;
  double offset = sums[0] / rows, var = sums[1] / rows - offset * offset;
  var = var < 0.0 ? 0.0 : var;  // NaN stays
  double mean = offset + before, unbiased = op.rows > 1 ? var * (rows / (rows - 1.0)) : var;
  op.mean[c] = static_cast<float>(mean);
  op.inverse_std[c] = static_cast<float>(1.0 / sqrt(var + op.eps));
  op.next_mean[c] = static_cast<float>((1.0 - m) * prev_mean + m * mean);
  op.next_var[c] = static_cast<float>((1.0 - m) * prev_var + m * unbiased);
}
