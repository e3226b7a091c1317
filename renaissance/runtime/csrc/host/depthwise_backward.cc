// The fused backward of a depthwise convolution, made of the operations it takes the place of.
#include "host/run.h"
#include "host/run_maps.h"
#include "host/wide.h"
#include "norm.h"

namespace rn {
namespace {

// The gradient of the convolution's own output.
template <class T>
std::vector<T> output_gradient(const DepthwiseConvBackward& op) {
  const ConvShape& s = op.shape;
  const Norm& n = op.y_norm;
  const T* dy = static_cast<const T*>(op.dy);
  const T* y = static_cast<const T*>(op.y);
  Index rows = s.n * s.p * s.q;
  float count = static_cast<float>(rows);
  std::vector<T> result(rows * s.c);
  for (Index i = 0; i < rows * s.c; ++i) {
    Index c = i % s.c;
    float value = to_float(y[i]);
    float z = normalised(value, n.mean[c], n.inverse_std[c], n.gamma[c], n.beta[c]);
    float gate = gate_of(op.y_activation, to_float(from_float<T>(z)));
    float dz = to_float(dy[i]) * activation_slope(op.y_activation, gate);
    float yhat = (value - n.mean[c]) * n.inverse_std[c];
    result[i] = from_float<T>(norm_gradient(dz, yhat, n.gamma[c] * n.inverse_std[c],
                                            op.dbeta[c] / count, op.dgamma[c] / count));
  }
  return result;
}

// What the convolution has read.
template <class T>
std::vector<T> input(const DepthwiseConvBackward& op) {
  const ConvShape& s = op.shape;
  std::vector<T> x(s.n * s.h * s.w * s.c);
  BatchNormApply norm{};
  norm.x = op.x, norm.norm = op.x_norm, norm.y = x.data();
  norm.rows = s.n * s.h * s.w, norm.c = s.c;
  norm.type = op.type, norm.activation = op.x_activation;
  run(norm);
  return x;
}

// All of the sums of dx, and of its products with x - mean, in the first piece; zeros in the others.
template <class T>
void leave_sums(const DepthwiseConvBackward& op) {
  const ConvShape& s = op.shape;
  const T* x = static_cast<const T*>(op.x);
  const T* dx = static_cast<const T*>(op.dx);
  std::vector<double> sum(2 * s.c);
  for (Index i = 0; i < s.n * s.h * s.w * s.c; ++i) {
    Index c = i % s.c;
    double d = to_float(dx[i]);
    sum[c] += d;
    sum[s.c + c] += d * (to_float(x[i]) - op.x_norm.mean[c]);
  }
  for (Index i = 0; i < op.partial_rows * 2 * s.c; ++i)
    op.sums[i] = i < 2 * s.c ? static_cast<float>(sum[i]) : 0.0f;
}

template <class T>
void backward(const DepthwiseConvBackward& op) {
  const ConvShape& s = op.shape;
  std::vector<T> made_dy, made_x;
  if (op.y_norm.mean) made_dy = output_gradient<T>(op);
  if (op.x_norm.mean) made_x = input<T>(op);
  const void* dy = op.y_norm.mean ? made_dy.data() : op.dy;
  const void* x = op.x_norm.mean ? made_x.data() : op.x;
  run(DepthwiseConvBackwardWeight{x, dy, op.dw, nullptr, s, 1, op.type});
  run(DepthwiseConvBackwardData{dy, op.w, op.dx, s, op.type});
  if (!op.x_norm.mean) return;
  Index count = s.n * s.h * s.w * s.c;
  run(ActivationBackward{op.dx, x, op.dx, count, op.type, op.x_activation});
  leave_sums<T>(op);
}

}  // namespace

void run(const DepthwiseConvBackward& op) {
  with_type(op.type, [&](auto t) { backward<decltype(t)>(op); });
}

}  // namespace rn
