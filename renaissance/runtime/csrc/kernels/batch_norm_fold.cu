// scale = gamma / sqrt(var + eps), bias = beta - mean scale.
#include "device.cuh"
#include "map_operations.h"

using namespace rn;

extern "C" __global__ void __launch_bounds__(256) batch_norm_fold_kernel(const BatchNormFold op) {
  Index c = thread_index();
  if (c >= op.c) return;
  float scale = op.gamma[c] / sqrtf(op.var[c] + op.eps);
  op.scale[c] = scale;
  op.bias[c] = op.beta[c] - op.mean[c] * scale;
}
