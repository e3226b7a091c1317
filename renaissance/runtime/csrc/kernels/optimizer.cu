// One launch moves every weight: unscale, clip, update, fp16 copy and average in one pass over memory.
// The pass is bound by bytes, so each thread keeps four elements of every array in flight.
#include "device.cuh"

using namespace rn;

template <int kLanes>
__device__ __forceinline__ void update(const Optimizer& op, const StepConstants& step,
                                       float inverse, Index i) {
  typedef Vector<float, kLanes> Floats;
  typedef Vector<half_bits, kLanes> Halves;
  auto at = [&](const float* data) { return *reinterpret_cast<const Floats*>(data + i); };
  auto put = [&](float* data, const Floats& x) { *reinterpret_cast<Floats*>(data + i) = x; };
  bool is_matrix = i >= op.decay_from;
  Floats w = at(op.w), g, m = {}, v = {}, e = {};
  if (op.raw && is_matrix) {
    const half_bits* raw = static_cast<const half_bits*>(op.raw) + (i - op.decay_from);
    Halves halves = *reinterpret_cast<const Halves*>(raw);
#pragma unroll
    for (int j = 0; j < kLanes; ++j) g.value[j] = half_to_float(halves.value[j]);
  } else {
    g = at(op.g);
  }
  if (op.m) m = at(op.m);
  if (op.v) v = at(op.v);
  if (op.e) e = at(op.e);
  Optimizer rule = op;
  rule.rule = RN_RULE;
#pragma unroll
  for (int j = 0; j < kLanes; ++j) {
    float gradient = op.loss_scale ? clamped(g.value[j] * inverse, op.max_abs) : g.value[j];
    Moments moments = {m.value[j], v.value[j]};
    w.value[j] = updated(rule, step, w.value[j], gradient, moments, i + j >= op.decay_from);
    m.value[j] = moments.m;
    v.value[j] = moments.v;
    e.value[j] = averaged(e.value[j], w.value[j], op.ema_decay);
  }
  put(op.w, w);
  if (op.m) put(op.m, m);
  if (op.v) put(op.v, v);
  if (op.e) put(op.e, e);
  if (op.a && is_matrix) {
    Halves copy;
#pragma unroll
    for (int j = 0; j < kLanes; ++j) copy.value[j] = float_to_half(w.value[j]);
    half_bits* a = static_cast<half_bits*>(op.a) + (i - op.decay_from);
    *reinterpret_cast<Halves*>(a) = copy;
  }
}

// raw and a need decay_from to be a multiple of four: regions begin at 64 elements.
extern "C" __global__ void __launch_bounds__(256) optimizer_kernel(const Optimizer op) {
  if (*op.flag) return;
  StepConstants step = step_constants(op);
  float inverse = op.loss_scale ? 1.0f / *op.loss_scale : 1.0f;
  for (Index i = thread_index() * 4; i < op.count; i += thread_count() * 4) {
    if (i + 4 <= op.count)
      update<4>(op, step, inverse, i);
    else
      for (Index j = i; j < op.count; ++j) update<1>(op, step, inverse, j);
  }
}
