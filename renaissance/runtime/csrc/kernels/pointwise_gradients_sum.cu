// What blocks of pointwise_gradients.cu leave, added up in order: the first blocks end the norm's sums,
// the others those of the filters' gradient, 32 of either each.
#include "map.cuh"
#include "pointwise_backward.h"

using namespace rn;

constexpr int kNormBlocks = (RN_C + 31) / 32;

extern "C" __global__ void __launch_bounds__(1024)
    pointwise_gradients_sum_kernel(const PointwiseBackward op) {
  const BatchNormBackward& norm = op.norm;
  int i = static_cast<int>(blockIdx.x) * 32 + threadIdx.x % 32;
  if (blockIdx.x < kNormBlocks) {
    bool inside = i < RN_C;
    double sums[2];
    column_sums(norm.partial, norm.partial_rows, i, inside, sums);
    if (threadIdx.x >= 32 || !inside) return;
    norm.dbeta[i] = static_cast<float>(sums[0]);
    norm.dgamma[i] = static_cast<float>(sums[1] * norm.norm.inverse_std[i]);
    return;
  }
  i -= kNormBlocks * 32;
  bool inside = i < RN_K * RN_C;
  double sum = column_sum(op.weight_partial, norm.partial_rows, RN_K * RN_C, i, inside);
  if (threadIdx.x >= 32 || !inside) return;
  static_cast<Element*>(op.dw)[i] = narrow<Element>(static_cast<float>(sum));
}
