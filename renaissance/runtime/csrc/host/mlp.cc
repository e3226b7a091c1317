// Many training steps of an MLP: the operations of one step, in the order of the graph, in a loop.
#include "host/run_mlp.h"

#include <cmath>
#include <vector>

#include "host/half.h"
#include "host/run.h"

namespace rn {
namespace {

// What a step passes on: activations and their gradients by layer, 0 the input; raw gradients.
struct Step {
  std::vector<half> y[mlp::kMaximumWidths], dy[mlp::kMaximumWidths], dw[mlp::kMaximumWidths];
  std::vector<float> dbias[mlp::kMaximumWidths], logits, rows;
  std::vector<int> labels;
};

Step make_step(const MlpTrainSteps& op) {
  Step s;
  Index batch = op.batch;
  for (int l = 0; l <= op.layers; ++l) {
    s.y[l].resize(batch * op.width[l]);
    s.dy[l].resize(batch * op.width[l]);
    if (l) s.dw[l].resize(Index{op.width[l]} * op.width[l - 1]);
    s.dbias[l].resize(op.width[l]);
  }
  s.logits.resize(batch * op.width[op.layers]);
  s.rows.resize(3 * batch);
  s.labels.resize(batch);
  return s;
}

template <class T = void>
T* at(const mlp::Arguments& a, long long offset) {
  return offset < 0 ? nullptr : reinterpret_cast<T*>(a.state + offset);
}

half input_value(const MlpTrainSteps& op, Index i) {
  const void* images = op.kernel.images;
  if (op.input_type == MlpTrainSteps::kUint8)
    return {op.kernel.table[static_cast<const unsigned char*>(images)[i]]};
  if (op.input_type == kFloat16) return static_cast<const half*>(images)[i];
  return to_half(static_cast<const float*>(images)[i]);
}

void load(const MlpTrainSteps& op, Index step, Step& s) {
  const int* indices = op.kernel.indices;
  Index width = op.width[0];
  for (Index n = 0; n < op.batch; ++n) {
    Index row = step * op.batch + n;
    if (indices) row = indices[row];
    s.labels[n] = op.kernel.labels[row];
    for (Index c = 0; c < width; ++c) s.y[0][n * width + c] = input_value(op, row * width + c);
  }
}

float log_of(double beta) { return beta > 0 ? static_cast<float>(std::log(beta)) : -INFINITY; }

void forward(const MlpTrainSteps& op, Step& s) {
  const mlp::Arguments& a = op.kernel;
  for (int l = 1; l <= op.layers; ++l) {
    bool last = l == op.layers;
    void* y = last ? static_cast<void*>(s.logits.data()) : s.y[l].data();
    run(FcForward{s.y[l - 1].data(), at(a, a.weight_half[l]), at<float>(a, a.bias[l]), y, nullptr,
                  op.batch, op.width[l - 1], op.width[l], kFloat16, last ? kFloat32 : kFloat16,
                  last ? int{kNone} : op.activation});
  }
  float* sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = at<float>(a, a.result[i]);
  run(SoftmaxCrossEntropy{s.logits.data(), s.labels.data(), at<float>(a, a.loss_scale),
                          s.dy[op.layers].data(), nullptr, sums[0], sums[1], sums[2], sums[3],
                          s.rows.data(), op.batch, op.width[op.layers], a.smoothing, kFloat32,
                          kFloat16});
}

void backward(const MlpTrainSteps& op, Step& s) {
  const mlp::Arguments& a = op.kernel;
  for (int l = op.layers; l >= 1; --l) {
    bool first = l == 1;
    run(FcBackward{s.dy[l].data(), s.y[l - 1].data(), first ? nullptr : at(a, a.weight_half[l]),
                   first ? nullptr : s.y[l - 1].data(), first ? nullptr : s.dy[l - 1].data(),
                   s.dw[l].data(), s.dbias[l].data(), at<int>(a, a.nan_flag), op.batch,
                   op.width[l - 1], op.width[l], kFloat16, first ? int{kNone} : op.activation});
  }
}

void update(const MlpTrainSteps& op, const Step& s, int l) {
  const mlp::Arguments& a = op.kernel;
  float rest2 = static_cast<float>(1.0 - a.beta2_exact);
  Optimizer rule{};
  rule.lr = at<float>(a, a.lr), rule.flag = at<int>(a, a.nan_flag);
  rule.correction1 = at<float>(a, a.correction1), rule.correction2 = at<float>(a, a.correction2);
  rule.loss_scale = at<float>(a, a.loss_scale);
  rule.momentum = a.momentum, rule.beta1 = a.beta1, rule.beta2 = a.beta2;
  rule.rest1 = a.rest1, rule.rest2 = rest2, rule.eps = a.eps;
  rule.weight_decay = a.weight_decay, rule.max_abs = a.max_abs, rule.rule = op.rule;
  Optimizer bias = rule, weight = rule;
  bias.w = at<float>(a, a.bias[l]), bias.g = s.dbias[l].data();
  bias.m = at<float>(a, a.bias_m[l]), bias.v = at<float>(a, a.bias_v[l]);
  bias.count = bias.decay_from = op.width[l];
  weight.w = at<float>(a, a.weight[l]), weight.raw = s.dw[l].data();
  weight.m = at<float>(a, a.weight_m[l]), weight.v = at<float>(a, a.weight_v[l]);
  weight.a = at(a, a.weight_half[l]), weight.count = Index{op.width[l]} * op.width[l - 1];
  run(bias);
  run(weight);
}

void end_step(const MlpTrainSteps& op, int step) {
  const mlp::Arguments& a = op.kernel;
  int* flag = at<int>(a, a.nan_flag);
  float* sums[4];
  for (int i = 0; i < 4; ++i) {
    sums[i] = at<float>(a, a.result[i]);
    run(Accumulate{sums[i], at<float>(a, a.accumulated[i]), flag, 1});
  }
  run(ReportMetrics{sums[0], sums[1], sums[2], sums[3], at<float>(a, a.lr), flag, &step, a.history});
  run(AdvanceCounters{flag, at<int>(a, a.applied_steps), at<int>(a, a.skipped_steps),
                      at<int>(a, a.clean_steps), at<int>(a, a.overflow_run),
                      at<float>(a, a.loss_scale), a.scale_maximum, a.scale_minimum,
                      a.growth_interval});
}

}  // namespace

void run(const MlpTrainSteps& op) {
  const mlp::Arguments& a = op.kernel;
  Step s = make_step(op);
  for (int step = 0; step < a.steps; ++step) {
    load(op, step, s);
    run(SetStepScalars{at<float>(a, a.lr_table), at<int>(a, a.applied_steps), at<float>(a, a.lr),
                       at<float>(a, a.correction1), at<float>(a, a.correction2),
                       at<int>(a, a.nan_flag), a.table_length, log_of(a.beta1_exact),
                       log_of(a.beta2_exact)});
    forward(op, s);
    backward(op, s);
    for (int l = 1; l <= op.layers; ++l) update(op, s, l);
    end_step(op, step);
  }
}

}  // namespace rn
