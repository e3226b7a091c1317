// Softmax cross entropy with label smoothing, its gradient, and the top-1 and top-5 hits.
#include <cmath>
#include <limits>
#include <vector>

#include "host/half.h"
#include "host/run.h"

namespace rn {
namespace {

struct Row {
  float loss, top1, top5;
};

// The label is a hit among k if fewer than k classes beat it; of equal logits the lower index wins.
template <class T>
Row row_result(const T* z, const float* shifted, float log_sum, int label,
               const SoftmaxCrossEntropy& op) {
  bool known = label >= 0 && label < op.k, has_nan = false;
  float smooth = 0.0f;
  Index beaten_by = 0;
  for (Index k = 0; k < op.k; ++k) {
    smooth += shifted[k];
    float value = to_float(z[k]);
    has_nan = has_nan || std::isnan(value);
    if (known && (value > to_float(z[label]) || (value == to_float(z[label]) && k < label)))
      ++beaten_by;
  }
  if (!known) return {std::numeric_limits<float>::quiet_NaN(), 0.0f, 0.0f};
  float loss = log_sum - (1.0f - op.smoothing) * shifted[label];
  if (op.smoothing != 0.0f) loss -= op.smoothing / static_cast<float>(op.k) * smooth;
  return {loss, !has_nan && beaten_by < 1 ? 1.0f : 0.0f, !has_nan && beaten_by < 5 ? 1.0f : 0.0f};
}

template <class T>
int best_class(const T* z, Index classes) {
  Index best = 0;
  for (Index k = 0; k < classes; ++k) {
    float value = to_float(z[k]);
    if (std::isnan(value)) return static_cast<int>(k);
    if (value > to_float(z[best])) best = k;
  }
  return static_cast<int>(best);
}

template <class T, class Gradient>
void softmax(const SoftmaxCrossEntropy& op) {
  std::vector<float> shifted(op.k);
  float loss = 0.0f, top1 = 0.0f, top5 = 0.0f;
  float factor = (op.loss_scale ? *op.loss_scale : 1.0f) / static_cast<float>(op.n);
  for (Index n = 0; n < op.n; ++n) {
    const T* z = static_cast<const T*>(op.logits) + n * op.k;
    float largest = to_float(z[0]), sum = 0.0f;
    for (Index k = 1; k < op.k; ++k) largest = std::fmax(largest, to_float(z[k]));
    for (Index k = 0; k < op.k; ++k) {
      shifted[k] = to_float(z[k]) - largest;
      sum += std::exp(shifted[k]);
    }
    int label = op.labels[n];
    Row row = row_result(z, shifted.data(), std::log(sum), label, op);
    loss += row.loss, top1 += row.top1, top5 += row.top5;
    if (op.predicted) op.predicted[n] = best_class(z, op.k);
    if (!op.dlogits) continue;
    bool known = label >= 0 && label < op.k;
    for (Index k = 0; k < op.k; ++k) {
      float target = (k == label ? 1.0f - op.smoothing : 0.0f) +
                     op.smoothing / static_cast<float>(op.k);
      float gradient = known ? (std::exp(shifted[k]) / sum - target) * factor : 0.0f;
      static_cast<Gradient*>(op.dlogits)[n * op.k + k] = from_float<Gradient>(gradient);
    }
  }
  *op.loss = loss, *op.top1 = top1, *op.top5 = top5, *op.total = static_cast<float>(op.n);
}

}  // namespace

void run(const SoftmaxCrossEntropy& op) {
  with_type(op.type, [&](auto t) {
    with_type(op.gradient_type, [&](auto g) { softmax<decltype(t), decltype(g)>(op); });
  });
}

}  // namespace rn
