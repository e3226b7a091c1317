// What begins and ends a step: the batch into its slot, the scalars, the sums, the report.
//
// Scalars are the work of one thread; so as not to cost a launch of their own, they ride along with
// the batch at the begin and with the sums at the end.
#include "device.cuh"

using namespace rn;

template <class T, int kCount>
__device__ __forceinline__ bool is_aligned(const T* pointer) {
  return reinterpret_cast<ulong64>(pointer) % sizeof(Vector<T, kCount>) == 0;
}

// Three channels become four, the fourth zero: two pixels a thread, so that a warp writes one stretch
// of memory, 16 bytes a lane in halves; kAhead such pairs are read before the first is written.
template <class From, class To>
__device__ __forceinline__ void pad_to_four(const From* from, To* to, Index pairs) {
  constexpr int kAhead = 4, kOut = 16 / sizeof(To), kOuts = 8 / kOut;
  typedef Vector<From, 2> In;
  typedef Vector<To, kOut> Out;
  Index step = thread_count();
  for (Index first = thread_index(); first < pairs; first += kAhead * step) {
    In in[kAhead][3];
#pragma unroll
    for (int a = 0; a < kAhead; ++a)
#pragma unroll
      for (int j = 0; j < 3; ++j)
        if (first + a * step < pairs)
          in[a][j] = reinterpret_cast<const In*>(from)[3 * (first + a * step) + j];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      Out out[kOuts];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        int at = j / 4 * 3 + j % 4;
        To value = j % 4 < 3 ? narrow<To>(widen(in[a][at / 2].value[at % 2])) : To(0);
        out[j / kOut].value[j % kOut] = value;
      }
      if (first + a * step >= pairs) break;
#pragma unroll
      for (int j = 0; j < kOuts; ++j)
        reinterpret_cast<Out*>(to)[kOuts * (first + a * step) + j] = out[j];
    }
  }
}

template <class From, class To>
__device__ __forceinline__ void load(const LoadBatch& op) {
  Index batch = op.batch ? *op.batch : 0, count = op.pixels * op.padded_channels;
  const From* images = static_cast<const From*>(op.images) + batch * op.pixels * op.channels;
  To* data = static_cast<To*>(op.data);
  for (Index i = thread_index(); i < op.rows; i += thread_count())
    op.label[i] = op.labels[batch * op.rows + i];
  bool in_pairs = op.pixels % 2 == 0 && is_aligned<From, 2>(images);
  if (op.channels == 3 && op.padded_channels == 4 && in_pairs)
    return pad_to_four(images, data, op.pixels / 2);
  bool padded = op.channels != op.padded_channels;
  for (Index i = thread_index(); i < count; i += thread_count()) {
    Index pixel = padded ? i / op.padded_channels : 0, c = i - pixel * op.padded_channels;
    float value = 0.0f;
    if (!padded || c < op.channels) value = widen(images[padded ? pixel * op.channels + c : i]);
    data[i] = narrow<To>(value);
  }
}

__device__ __forceinline__ void load_any(const LoadBatch& op) {
  if (op.from_type == kFloat32 && op.type == kFloat16)
    load<float, half_bits>(op);
  else if (op.from_type == kFloat32)
    load<float, float>(op);
  else if (op.type == kFloat16)
    load<half_bits, half_bits>(op);
  else
    load<half_bits, float>(op);
}

__device__ __forceinline__ void accumulate(const Accumulate& op) {
  if (op.flag && *op.flag) return;
  for (Index i = thread_index(); i < op.count; i += thread_count()) op.target[i] += op.source[i];
}

extern "C" __global__ void __launch_bounds__(256) load_batch_kernel(const LoadBatch op) {
  load_any(op);
}

extern "C" __global__ void __launch_bounds__(256) accumulate_kernel(const Accumulate op) {
  accumulate(op);
}

extern "C" __global__ void set_step_scalars_kernel(const SetStepScalars op) { set_scalars(op); }

extern "C" __global__ void advance_counters_kernel(const AdvanceCounters op) { advance(op); }

extern "C" __global__ void report_metrics_kernel(const ReportMetrics op) { report(op); }

extern "C" __global__ void __launch_bounds__(256) begin_step_kernel(const BeginStep op) {
  if (thread_index() == 0) set_scalars(op.scalars);
  load_any(op.load);
}

// One block. Nothing here reads what another thread of it writes.
extern "C" __global__ void __launch_bounds__(256) end_step_kernel(const EndStep op) {
  accumulate(op.accumulate);
  if (threadIdx.x == 0) report(op.metrics);
  if (threadIdx.x == 32) advance(op.counters);
}
