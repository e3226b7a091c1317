// Fully connected layers. Operands are widened to float once; sums run in fixed order over lanes.
#include <algorithm>
#include <cmath>
#include <vector>

#include "activation.h"
#include "host/half.h"
#include "host/run.h"

namespace rn {
namespace {

template <class T>
std::vector<float> widened(const void* data, Index count) {
  std::vector<float> out(count);
  const T* in = static_cast<const T*>(data);
  for (Index i = 0; i < count; ++i) out[i] = to_float(in[i]);
  return out;
}

// Sixteen partial sums: they vectorise without reordering, and lose fewer digits than one.
float dot(const float* a, const float* b, Index count) {
  constexpr Index kLanes = 16;
  float lane[kLanes] = {};
  Index i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (Index j = 0; j < kLanes; ++j) lane[j] += a[i + j] * b[i + j];
  float sum = 0.0f;
  for (Index j = 0; j < kLanes; ++j) sum += lane[j];
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void add_scaled(float* sum, float factor, const float* row, Index count) {
  for (Index i = 0; i < count; ++i) sum[i] += factor * row[i];
}

template <class T, class Y>
void forward(const FcForward& op) {
  std::vector<float> x = widened<T>(op.x, op.n * op.c), w = widened<T>(op.w, op.k * op.c);
  Y* y = static_cast<Y*>(op.y);
  Y* z = static_cast<Y*>(op.z);
  for (Index n = 0; n < op.n; ++n)
    for (Index k = 0; k < op.k; ++k) {
      float sum = dot(&x[n * op.c], &w[k * op.c], op.c) + (op.bias ? op.bias[k] : 0.0f);
      Y rounded = from_float<Y>(sum);
      if (z) z[n * op.k + k] = rounded;
      y[n * op.k + k] = from_float<Y>(activate(op.activation, to_float(rounded)));
    }
}

template <class T>
void input_gradient(const FcBackward& op, const std::vector<float>& dy) {
  std::vector<float> w = widened<T>(op.w, op.k * op.c), sum(op.c);
  const T* gate = static_cast<const T*>(op.gate);
  T* dx = static_cast<T*>(op.dx);
  for (Index n = 0; n < op.n; ++n) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (Index k = 0; k < op.k; ++k) add_scaled(sum.data(), dy[n * op.k + k], &w[k * op.c], op.c);
    for (Index c = 0; c < op.c; ++c) {
      Index i = n * op.c + c;
      float slope = gate ? activation_slope(op.activation, to_float(gate[i])) : 1.0f;
      dx[i] = from_float<T>(to_float(from_float<T>(sum[c])) * slope);
    }
  }
}

template <class T>
bool weight_gradient(const FcBackward& op, const std::vector<float>& dy) {
  std::vector<float> x = widened<T>(op.x, op.n * op.c), sum(op.c);
  T* dw = static_cast<T*>(op.dw);
  bool finite = true;
  for (Index k = 0; k < op.k; ++k) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (Index n = 0; n < op.n; ++n) add_scaled(sum.data(), dy[n * op.k + k], &x[n * op.c], op.c);
    for (Index c = 0; c < op.c; ++c) {
      dw[k * op.c + c] = from_float<T>(sum[c]);
      finite = finite && std::isfinite(to_float(dw[k * op.c + c]));
    }
  }
  return finite;
}

bool bias_gradient(const FcBackward& op, const std::vector<float>& dy) {
  bool finite = true;
  for (Index k = 0; k < op.k; ++k) {
    float sum = 0.0f;
    for (Index n = 0; n < op.n; ++n) sum += dy[n * op.k + k];
    op.dbias[k] = sum;
    finite = finite && std::isfinite(sum);
  }
  return finite;
}

template <class T>
void backward(const FcBackward& op) {
  std::vector<float> dy = widened<T>(op.dy, op.n * op.k);
  // dw and dbias come first: dx may lie in the slot that x or dy leaves free only afterwards.
  bool finite = !op.dw || weight_gradient<T>(op, dy);
  if (op.dbias) finite = bias_gradient(op, dy) && finite;
  if (op.dx) input_gradient<T>(op, dy);
  if (op.flag && !finite) *op.flag = 1;
}

}  // namespace

void run(const FcForward& op) {
  with_type(op.type, [&](auto t) {
    with_type(op.y_type, [&](auto y) { forward<decltype(t), decltype(y)>(op); });
  });
}

void run(const FcBackward& op) {
  with_type(op.type, [&](auto t) { backward<decltype(t)>(op); });
}

}  // namespace rn
