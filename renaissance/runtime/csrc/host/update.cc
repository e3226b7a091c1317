// What happens to whole regions once the gradients are there: unscaling, optimizers, averages.
#include <cmath>

#include "host/half.h"
#include "host/run.h"
#include "update_rules.h"

namespace rn {
namespace {

// The gradient of element i: unscaled and clipped, whichever form it is read in.
float gradient_of(const Optimizer& op, Index i) {
  bool is_raw = op.raw && i >= op.decay_from;
  float g = is_raw ? to_float(static_cast<const half*>(op.raw)[i - op.decay_from]) : op.g[i];
  return op.loss_scale ? clamped(g * (1.0f / *op.loss_scale), op.max_abs) : g;
}

double norm(const float* x, Index count) {
  double sum = 0.0;  // the square of a float can neither overflow nor vanish in a double
  for (Index i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  return std::sqrt(sum);
}

}  // namespace

void run(const CheckAndUnscale& op) {
  float inverse = 1.0f / *op.loss_scale;  // exact: the scale is a power of two
  for (Index i = 0; i < op.count; ++i) {
    float g = op.g[i] * inverse;
    if (!std::isfinite(g)) *op.flag = 1;
    op.g[i] = clamped(g, op.max_abs);
  }
}

void run(const CheckFinite& op) {
  const half* raw = static_cast<const half*>(op.raw);
  for (Index i = 0; i < op.count; ++i)
    if (!std::isfinite(op.g[i])) *op.flag = 1;
  for (Index i = 0; i < op.raw_count; ++i)
    if (!std::isfinite(to_float(raw[i]))) *op.flag = 1;
}

void run(const ClipByNorm& op) {
  double factor = clip_factor(norm(op.g, op.count), op.max_norm);
  if (factor == 1.0) return;
  for (Index i = 0; i < op.count; ++i) op.g[i] = static_cast<float>(op.g[i] * factor);
}

void run(const EmaUpdate& op) {
  if (*op.flag) return;
  for (Index i = 0; i < op.count; ++i) op.e[i] = averaged(op.e[i], op.w[i], op.decay);
}

void run(const Accumulate& op) {
  if (op.flag && *op.flag) return;
  for (Index i = 0; i < op.count; ++i) op.target[i] += op.source[i];
}

void run(const Optimizer& op) {
  if (*op.flag) return;
  StepConstants constants = step_constants(op);
  for (Index i = 0; i < op.count; ++i) {
    Moments moments = {op.m ? op.m[i] : 0.0f, op.v ? op.v[i] : 0.0f};
    bool decays = i >= op.decay_from;
    op.w[i] = updated(op, constants, op.w[i], gradient_of(op, i), moments, decays);
    if (op.m) op.m[i] = moments.m;
    if (op.v) op.v[i] = moments.v;
    if (op.e) op.e[i] = averaged(op.e[i], op.w[i], op.ema_decay);
    if (op.a && decays) static_cast<half*>(op.a)[i - op.decay_from] = to_half(op.w[i]);
  }
}

void run(const LarsNorms& op) {
  for (int t = 0; t < op.tensors.length; ++t) {
    Index begin = Index{128} * op.tensors.begin[t], count = op.tensors.count[t];
    op.n[64 * t] = static_cast<float>(norm(op.w + begin, count));
    op.n[64 * t + 1] = static_cast<float>(norm(op.g + begin, count));
  }
}

void run(const LarsUpdate& op) {
  if (*op.flag) return;
  for (int t = 0; t < op.tensors.length; ++t) {
    float ratio = trust_ratio(op, op.n[64 * t], op.n[64 * t + 1]);
    for (Index j = 0; j < op.tensors.count[t]; ++j) {
      Index i = Index{128} * op.tensors.begin[t] + j;
      float m = op.m ? op.m[i] : 0.0f;
      op.w[i] = lars_updated(op, ratio, op.w[i], op.g[i], m);
      if (op.m) op.m[i] = m;
    }
  }
}

void run(const SetStepScalars& op) { set_scalars(op); }

void run(const AdvanceCounters& op) { advance(op); }

void run(const ReportMetrics& op) { report(op); }

void run(const BeginStep& op) {
  run(op.load);
  run(op.scalars);
}

void run(const EndStep& op) {
  run(op.accumulate);
  run(op.metrics);
  run(op.counters);
}

}  // namespace rn
