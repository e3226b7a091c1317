// What happens to whole regions once the gradients are there: unscaling, optimizers, averages.
#include <cmath>

#include "host/run.h"
#include "update_rules.h"

namespace rn {

void run(const UnscaleGradients& op) {
  float inverse = 1.0f / *op.loss_scale;  // exact: the scale is a power of two
  for (Index i = 0; i < op.count; ++i) {
    float g = op.g[i] * inverse;
    if (!std::isfinite(g)) *op.flag = 1;
    op.g[i] = clamped(g, op.max_abs);
  }
}

void run(const ExponentialAverage& op) {
  if (*op.flag) return;
  for (Index i = 0; i < op.count; ++i)
    op.e[i] = op.decay * op.e[i] + (1.0f - op.decay) * op.w[i];
}

void run(const AccumulateMetrics& op) {
  if (*op.flag) return;
  *op.loss_sum += *op.loss;
  *op.top1_sum += *op.top1;
  *op.top5_sum += *op.top5;
  *op.total_sum += *op.total;
}

void run(const Optimizer& op) {
  if (*op.flag) return;
  StepConstants constants = {*op.lr, op.correction1 ? *op.correction1 : 1.0f,
                             op.correction2 ? *op.correction2 : 1.0f};
  for (Index i = 0; i < op.count; ++i) {
    Moments moments = {op.m ? op.m[i] : 0.0f, op.v ? op.v[i] : 0.0f};
    op.w[i] = updated(op, constants, op.w[i], op.g[i], moments, i >= op.decay_from);
    if (op.m) op.m[i] = moments.m;
    if (op.v) op.v[i] = moments.v;
  }
}

// Squares are summed in double: a float's square can neither overflow nor vanish in it.
void run(const LarsNorms& op) {
  double w = 0.0, g = 0.0;
  for (Index i = 0; i < op.count; ++i) {
    w += static_cast<double>(op.w[i]) * op.w[i];
    g += static_cast<double>(op.g[i]) * op.g[i];
  }
  *op.ratio = trust_ratio(op, static_cast<float>(std::sqrt(w)), static_cast<float>(std::sqrt(g)));
}

void run(const LarsUpdate& op) {
  if (*op.flag) return;
  for (Index i = 0; i < op.count; ++i) {
    float step = *op.lr * *op.ratio * (op.g[i] + op.weight_decay * op.w[i]);
    float m = op.m ? op.momentum * op.m[i] + step : step;
    if (op.m) op.m[i] = m;
    op.w[i] -= op.nesterov ? step + op.momentum * m : m;
  }
}

void run(const StepBegin& op) {
  int applied = *op.applied_steps;
  Index last = op.table_length - 1;
  *op.lr = op.lr_table[applied < last ? applied : last];
  *op.flag = 0;
  float t = static_cast<float>(applied + 1);
  if (op.correction1) *op.correction1 = bias_correction(op.log_beta1, t);
  if (op.correction2) *op.correction2 = bias_correction(op.log_beta2, t);
}

void run(const StepEnd& op) { advance(op); }

}  // namespace rn
