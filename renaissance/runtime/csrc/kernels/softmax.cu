// Softmax cross entropy: a warp a row, or with up to 32 classes a thread a row, its scores in
// registers (those of up to 1024 classes). Rows leave loss and hits in workspace; they are summed in a
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

// The scores of a row, dealt out to the lanes of a warp; read once where they fit in registers.
struct WarpRow {
  static constexpr int kOfLane = (RN_K + 31) / 32;
  static constexpr bool kHeld = kOfLane <= 32;

  const Element* z;
  float held[kHeld ? kOfLane : 1];

  __device__ __forceinline__ explicit WarpRow(const Element* row) : z(row) {
    if constexpr (kHeld)
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        int k = i * 32 + threadIdx.x % 32;
        held[i] = k < RN_K ? widen(z[k]) : 0.0f;
      }
  }

  // Calls function(k, score) for the lane's classes in rising order.
  template <class Function>
  __device__ __forceinline__ void each(Function function) const {
    if constexpr (kHeld) {
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        int k = i * 32 + threadIdx.x % 32;
        if (k < RN_K) function(k, held[i]);
      }
    } else {
      for (int k = threadIdx.x % 32; k < RN_K; k += 32) function(k, widen(z[k]));
    }
  }
};

// The first NaN, else the first of the largest values; RN_K if a lane saw no value.
__device__ __forceinline__ int best_class(const WarpRow& row, float largest, bool has_nan) {
  int best = RN_K;
  row.each([&](int k, float value) {
    if (best == RN_K && (has_nan ? is_nan(value) : value == largest)) best = k;
  });
  return warp_min(best);
}

__device__ __forceinline__ void store_row(const SoftmaxCrossEntropy& op, Index n, float loss,
                                          bool counts, int beaten_by) {
  op.rows[n] = loss;
  op.rows[op.n + n] = counts && beaten_by < 1 ? 1.0f : 0.0f;
  op.rows[2 * op.n + n] = counts && beaten_by < 5 ? 1.0f : 0.0f;
}

__device__ __forceinline__ float target_of(const SoftmaxCrossEntropy& op, int k, int label) {
  return (k == label ? 1.0f - op.smoothing : 0.0f) + op.smoothing / static_cast<float>(RN_K);
}

__device__ __forceinline__ float loss_of(const SoftmaxCrossEntropy& op, float sum, float own,
                                         float smooth) {
  float loss = logf(sum) - (1.0f - op.smoothing) * own;
  return op.smoothing != 0.0f ? loss - op.smoothing / static_cast<float>(RN_K) * smooth : loss;
}

__device__ __forceinline__ void row_of_thread(const SoftmaxCrossEntropy& op, Index n, float factor) {
  constexpr int kClasses = RN_K <= 32 ? RN_K : 1;  // the other form is never run
  const Element* logits = static_cast<const Element*>(op.logits) + n * RN_K;
  int label = op.labels[n], nans = 0, best = 0, beaten_by = 0;
  bool known = label >= 0 && label < RN_K;
  float z[kClasses], largest = -infinity(), own = 0.0f, sum = 0.0f, smooth = 0.0f;
#pragma unroll
  for (int k = 0; k < kClasses; ++k) {
    z[k] = widen(logits[k]);
    if (nans == 0 && (is_nan(z[k]) || z[k] > largest)) best = k;
    nans += is_nan(z[k]);
    largest = fmaxf(largest, z[k]);
    if (k == label) own = z[k];
  }
#pragma unroll
  for (int k = 0; k < kClasses; ++k) {
    beaten_by += z[k] > own || (z[k] == own && k < label);
    z[k] -= largest;
    smooth += z[k];
    sum += expf(z[k]);
  }
  if (op.predicted) op.predicted[n] = best;
  float loss = known ? loss_of(op, sum, own - largest, smooth) : not_a_number();
  store_row(op, n, loss, known && nans == 0, beaten_by);
  if (!op.dlogits) return;
  Gradient* dz = static_cast<Gradient*>(op.dlogits) + n * RN_K;
  float inverse = 1.0f / sum;
#pragma unroll
  for (int k = 0; k < kClasses; ++k) {
    float gradient = (expf(z[k]) * inverse - target_of(op, k, label)) * factor;
    dz[k] = narrow<Gradient>(known ? gradient : 0.0f);
  }
}

__device__ __forceinline__ void row_of_warp(const SoftmaxCrossEntropy& op, Index n, float factor) {
  const Element* z = static_cast<const Element*>(op.logits) + n * RN_K;
  WarpRow row(z);
  int lane = threadIdx.x % 32, label = op.labels[n];
  bool known = label >= 0 && label < RN_K;
  float own = known ? widen(z[label]) : 0.0f, largest = -infinity();
  row.each([&](int, float value) { largest = fmaxf(largest, value); });
  largest = warp_max(largest);
  float sum = 0.0f, smooth = 0.0f;
  int beaten_by = 0, nans = 0;
  row.each([&](int k, float value) {
    sum += expf(value - largest);
    smooth += value - largest;
    nans += is_nan(value);
    beaten_by += value > own || (value == own && k < label);
  });
  sum = warp_sum(sum), smooth = warp_sum(smooth);
  beaten_by = warp_sum(beaten_by), nans = warp_sum(nans);
  if (op.predicted) {
    int best = best_class(row, largest, nans > 0);
    if (lane == 0) op.predicted[n] = best;
  }
  if (lane == 0) {
    float loss = known ? loss_of(op, sum, own - largest, smooth) : not_a_number();
    store_row(op, n, loss, known && nans == 0, beaten_by);
  }
  if (!op.dlogits) return;
  Gradient* dz = static_cast<Gradient*>(op.dlogits) + n * RN_K;
  row.each([&](int k, float value) {
    float gradient = (expf(value - largest) / sum - target_of(op, k, label)) * factor;
    dz[k] = narrow<Gradient>(known ? gradient : 0.0f);
  });
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

extern "C" __global__ void __launch_bounds__(RN_THREADS)
    softmax_cross_entropy_kernel(const SoftmaxCrossEntropy op) {
  float factor = (op.loss_scale ? *op.loss_scale : 1.0f) / static_cast<float>(op.n);
  if (RN_K <= 32) {
    for (Index n = thread_index(); n < op.n; n += thread_count()) row_of_thread(op, n, factor);
  } else {
    Index warps = thread_count() / 32;
    for (Index n = thread_index() / 32; n < op.n; n += warps) row_of_warp(op, n, factor);
  }
  if (gridDim.x > 1) return;
  __syncthreads();
  add_rows(op);
}

extern "C" __global__ void __launch_bounds__(1024)
    softmax_sum_kernel(const SoftmaxCrossEntropy op) {
  add_rows(op);
}
