// LARS: norms with a block a tensor, then an update with a row of the grid a tensor.
#include "device.cuh"

using namespace rn;

extern "C" __global__ void __launch_bounds__(1024) lars_norms_kernel(const LarsNorms op) {
  int t = blockIdx.x;
  Index begin = Index{128} * op.tensors.begin[t];
  double w = 0.0, g = 0.0;  // the square of a float can neither overflow nor vanish in a double
  for (int i = threadIdx.x; i < op.tensors.count[t]; i += blockDim.x) {
    w += static_cast<double>(op.w[begin + i]) * op.w[begin + i];
    g += static_cast<double>(op.g[begin + i]) * op.g[begin + i];
  }
  w = block_sum(w), g = block_sum(g);
  if (threadIdx.x > 0) return;
  op.n[64 * t] = static_cast<float>(sqrt(w));
  op.n[64 * t + 1] = static_cast<float>(sqrt(g));
}

extern "C" __global__ void __launch_bounds__(256) lars_update_kernel(const LarsUpdate op) {
  if (*op.flag) return;
  int t = blockIdx.y;
  Index begin = Index{128} * op.tensors.begin[t];
  float ratio = trust_ratio(op, op.n[64 * t], op.n[64 * t + 1]);
  for (Index i = thread_index(); i < op.tensors.count[t]; i += thread_count()) {
    float m = op.m ? op.m[begin + i] : 0.0f;
    op.w[begin + i] = lars_updated(op, ratio, op.w[begin + i], op.g[begin + i], m);
    if (op.m) op.m[begin + i] = m;
  }
}
