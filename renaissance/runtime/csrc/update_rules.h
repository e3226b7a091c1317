// The formulas of updates on one element; shared by the host twins and the kernels.
#pragma once

#include "activation.h"
#include "operations.h"

namespace rn {

// Learning rate, and the reciprocals of the bias corrections.
struct StepConstants {
  float lr, unbias1, unbias2;
};

struct Moments {
  float m, v;
};

// NaN stays NaN: the flag has been raised already and the step is skipped.
RN_INLINE float clamped(float g, float max_abs) {
  if (max_abs == 0.0f) return g;
  return g > max_abs ? max_abs : (g < -max_abs ? -max_abs : g);
}

// What gradients of this joint norm are multiplied with; exactly 1 within the limit.
RN_INLINE double clip_factor(double norm, float max_norm) {
  return norm > max_norm ? max_norm / norm : 1.0;
}

// 1 - beta^t without cancellation. A beta of 0 is passed as log_beta = -infinity.
RN_INLINE float bias_correction(float log_beta, float t) { return -expm1f(t * log_beta); }

RN_INLINE StepConstants step_constants(const Optimizer& op) {
  return {*op.lr, op.correction1 ? 1.0f / *op.correction1 : 1.0f,
          op.correction2 ? 1.0f / *op.correction2 : 1.0f};
}

// The new weight; the moments are replaced.
RN_INLINE float updated(const Optimizer& op, const StepConstants& step, float w, float g,
                        Moments& moments, bool decays) {
  float decay = decays ? op.weight_decay : 0.0f;
  if (op.rule == kAdam || op.rule == kAdamW) {
    if (op.rule == kAdam) g += decay * w;
    moments.m = op.beta1 * moments.m + op.rest1 * g;
    moments.v = op.beta2 * moments.v + op.rest2 * (g * g);
    float direction = moments.m * step.unbias1 / (sqrtf(moments.v * step.unbias2) + op.eps);
    if (op.rule == kAdamW) direction += decay * w;
    return w - step.lr * direction;
  }
  g += decay * w;
  if (op.rule == kSgd) return w - step.lr * g;
  moments.m = op.momentum * moments.m + g;
  return w - step.lr * (op.rule == kNesterov ? g + op.momentum * moments.m : moments.m);
}

RN_INLINE float trust_ratio(const LarsUpdate& op, float w_norm, float g_norm) {
  if (!(w_norm > 0.0f && g_norm > 0.0f)) return 1.0f;
  return op.trust_coefficient * w_norm / (g_norm + op.weight_decay * w_norm + op.eps);
}

// The new weight of the LARS rule; the moment is replaced.
RN_INLINE float lars_updated(const LarsUpdate& op, float ratio, float w, float g, float& m) {
  float step = *op.lr * ratio * (g + op.weight_decay * w);
  m = op.momentum * m + step;
  return w - (op.nesterov ? step + op.momentum * m : m);
}

RN_INLINE float averaged(float e, float w, float decay) { return decay * e + (1.0f - decay) * w; }

RN_INLINE void set_scalars(const SetStepScalars& op) {
  int applied = *op.applied_steps;
  Index last = op.table_length - 1;
  *op.lr = op.lr_table[applied < last ? applied : last];
  *op.flag = 0;
  float t = static_cast<float>(applied + 1);
  if (op.correction1) *op.correction1 = bias_correction(op.log_beta1, t);
  if (op.correction2) *op.correction2 = bias_correction(op.log_beta2, t);
}

RN_INLINE void advance(const AdvanceCounters& op) {
  if (*op.flag) {
    *op.skipped_steps += 1;
    *op.overflow_run += 1;
    *op.clean_steps = 0;
    float halved = *op.loss_scale * 0.5f;
    *op.loss_scale = halved > op.minimum ? halved : op.minimum;
    return;
  }
  *op.applied_steps += 1;
  *op.overflow_run = 0;
  int clean = *op.clean_steps + 1;
  bool grow = clean >= op.growth_interval;
  float doubled = *op.loss_scale * 2.0f;
  if (grow) *op.loss_scale = doubled < op.maximum ? doubled : op.maximum;
  *op.clean_steps = grow ? 0 : clean;
}

RN_INLINE void report(const ReportMetrics& op) {
  float* row = op.table + 8 * (op.batch ? *op.batch : 0);
  row[0] = *op.loss, row[1] = *op.top1, row[2] = *op.top5, row[3] = *op.total;
  row[4] = op.lr ? *op.lr : 0.0f;
  row[5] = op.flag && *op.flag ? 1.0f : 0.0f;
  row[6] = row[7] = 0.0f;
}

}  // namespace rn
