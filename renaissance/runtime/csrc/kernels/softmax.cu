// Softmax cross entropy: a warp a row. Rows leave loss and hits in workspace; they are summed in a
// fixed order by the same block if it is the only one, else by a second kernel.
#include "device.cuh"

using namespace rn;

#if RN_GRADIENT_HALF
typedef half_bits Gradient;
#else
typedef float Gradient;
#endif

__device__ __forceinline__ float warp_max(float value) {
  for (int distance = 16; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
  return value;
}

__device__ __forceinline__ int warp_min(int value) {
  for (int distance = 16; distance > 0; distance /= 2)
    value = min(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
  return value;
}

// The first NaN, else the first of the largest values; RN_K if a lane saw no value.
__device__ __forceinline__ int best_class(const Element* z, float largest, bool has_nan) {
  int best = RN_K;
  for (int k = threadIdx.x % 32; k < RN_K; k += 32) {
    float value = widen(z[k]);
    if (best == RN_K && (has_nan ? is_nan(value) : value == largest)) best = k;
  }
  return warp_min(best);
}

__device__ __forceinline__ void row(const SoftmaxCrossEntropy& op, Index n, float factor) {
  const Element* z = static_cast<const Element*>(op.logits) + n * RN_K;
  int lane = threadIdx.x % 32, label = op.labels[n];
  bool known = label >= 0 && label < RN_K;
  float own = known ? widen(z[label]) : 0.0f, largest = -infinity();
  for (int k = lane; k < RN_K; k += 32) largest = fmaxf(largest, widen(z[k]));
  largest = warp_max(largest);
  float sum = 0.0f, smooth = 0.0f;
  int beaten_by = 0, nans = 0;
  for (int k = lane; k < RN_K; k += 32) {
    float value = widen(z[k]);
    sum += expf(value - largest);
    smooth += value - largest;
    nans += is_nan(value);
    beaten_by += value > own || (value == own && k < label);
  }
  sum = warp_sum(sum), smooth = warp_sum(smooth);
  beaten_by = warp_sum(beaten_by), nans = warp_sum(nans);
  if (op.predicted) {
    int best = best_class(z, largest, nans > 0);
    if (lane == 0) op.predicted[n] = best;
  }
  if (lane == 0) {
    float loss = logf(sum) - (1.0f - op.smoothing) * (own - largest);
    if (op.smoothing != 0.0f) loss -= op.smoothing / static_cast<float>(RN_K) * smooth;
    bool counts = known && nans == 0;
    op.rows[n] = known ? loss : not_a_number();
    op.rows[op.n + n] = counts && beaten_by < 1 ? 1.0f : 0.0f;
    op.rows[2 * op.n + n] = counts && beaten_by < 5 ? 1.0f : 0.0f;
  }
  if (!op.dlogits) return;
  Gradient* dz = static_cast<Gradient*>(op.dlogits) + n * RN_K;
  for (int k = lane; k < RN_K; k += 32) {
    float target =
        (k == label ? 1.0f - op.smoothing : 0.0f) + op.smoothing / static_cast<float>(RN_K);
    float gradient = known ? (expf(widen(z[k]) - largest) / sum - target) * factor : 0.0f;
    dz[k] = narrow<Gradient>(gradient);
  }
}

__device__ __forceinline__ void add_rows(const SoftmaxCrossEntropy& op) {
  float loss = 0.0f, top1 = 0.0f, top5 = 0.0f;
  for (Index n = threadIdx.x; n < op.n; n += blockDim.x) {
    loss += op.rows[n];
    top1 += op.rows[op.n + n];
    top5 += op.rows[2 * op.n + n];
  }
  loss = block_sum(loss), top1 = block_sum(top1), top5 = block_sum(top5);
  if (threadIdx.x > 0) return;
  *op.loss = loss, *op.top1 = top1, *op.top5 = top5, *op.total = static_cast<float>(op.n);
}

extern "C" __global__ void __launch_bounds__(1024)
    softmax_cross_entropy_kernel(const SoftmaxCrossEntropy op) {
  float factor = (op.loss_scale ? *op.loss_scale : 1.0f) / static_cast<float>(op.n);
  Index warps = thread_count() / 32;
  for (Index n = thread_index() / 32; n < op.n; n += warps) row(op, n, factor);
  if (gridDim.x > 1) return;
  __syncthreads();
  add_rows(op);
}

extern "C" __global__ void __launch_bounds__(1024)
    softmax_sum_kernel(const SoftmaxCrossEntropy op) {
  add_rows(op);
}
