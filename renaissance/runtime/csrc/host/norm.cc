// Batch norm: statistics, application, backward, folding. Sums run in double, row after row.
#include <cmath>
#include <cstring>

#include "host/run_maps.h"
#include "host/winners.h"
#include "host/wide.h"
#include "norm.h"

namespace rn {
namespace {

template <class T>
void statistics(const BatchNormStatistics& op) {
  const T* x = static_cast<const T*>(op.x);
  std::vector<float> pivot(op.c);
  std::vector<double> sum(op.c), squares(op.c);
  for (Index c = 0; c < op.c; ++c)
    pivot[c] = median(to_float(x[c]), to_float(x[(op.rows - 1) / 2 * op.c + c]),
                      to_float(x[(op.rows - 1) * op.c + c]));
  for (Index row = 0; row < op.rows; ++row)
    for (Index c = 0; c < op.c; ++c) {
      float distance = to_float(x[row * op.c + c]) - pivot[c];
      sum[c] += distance;
      squares[c] += static_cast<double>(distance) * distance;
    }
  double rows = static_cast<double>(op.rows), m = op.momentum;
  for (Index c = 0; c < op.c; ++c) {
    double offset = sum[c] / rows, var = squares[c] / rows - offset * offset;
    var = var < 0.0 ? 0.0 : var;  // NaN stays
    double mean = pivot[c] + offset, unbiased = op.rows > 1 ? var * (rows / (rows - 1.0)) : var;
    op.mean[c] = static_cast<float>(mean);
    op.inverse_std[c] = static_cast<float>(1.0 / std::sqrt(var + op.eps));
    op.next_mean[c] = static_cast<float>((1.0 - m) * op.prev_mean[c] + m * mean);
    op.next_var[c] = static_cast<float>((1.0 - m) * op.prev_var[c] + m * unbiased);
  }
}

float normalised_at(const Norm& n, float x, Index c) {
  return normalised(x, n.mean[c], n.inverse_std[c], n.gamma[c], n.beta[c]);
}

template <class T>
void apply(const BatchNormApply& op) {
  const T* x = static_cast<const T*>(op.x);
  const T* shortcut = static_cast<const T*>(op.shortcut);
  T* y = static_cast<T*>(op.y);
  T* z = static_cast<T*>(op.z);
  unsigned char* mask = static_cast<unsigned char*>(op.mask);
  if (mask) std::memset(mask, 0, static_cast<size_t>(op.rows * op.c / 8));
  for (Index i = 0; i < op.rows * op.c; ++i) {
    float value = normalised_at(op.norm, to_float(x[i]), i % op.c);
    if (shortcut) {
      float other = to_float(shortcut[i]);
      value += op.shortcut_norm.mean ? normalised_at(op.shortcut_norm, other, i % op.c) : other;
    }
    T rounded = from_float<T>(value);
    if (z) z[i] = rounded;
    if (mask && is_open(op.activation, to_float(rounded))) mask[i / 8] |= 1u << i % 8;
    y[i] = from_float<T>(activate(op.activation, to_float(rounded)));
  }
}

// The gradient of the activation's output; behind a max-pool it is spread out to the winners, which
// are searched again where none are given.
template <class T>
std::vector<float> gradient_of_output(const BatchNormBackward& op, Index count) {
  if (op.argmax) return spread_to_winners<T>(op.dy, op.argmax, op.argmax_bytes, op.pool);
  if (op.pool.kernel == 0) return widened<T>(op.dy, count);
  size_t outputs = static_cast<size_t>(op.pool.n * op.pool.p * op.pool.q * op.pool.c);
  std::vector<T> y(outputs);
  std::vector<int32_t> winners(outputs);
  run(MaxPoolForward{op.x, op.norm, y.data(), winners.data(), op.pool, op.type, op.activation, 4});
  return spread_to_winners<T>(op.dy, winners.data(), 4, op.pool);
}

// Where the addend of a pixel is stored; negative where it is zero.
Index addend_pixel(const BatchNormBackward& op, Index pixel) {
  const PoolShape& grid = op.pool;
  if (grid.kernel != 0 || grid.stride == 0) return pixel;
  Index x = pixel % grid.w, line = pixel / grid.w;
  Index y = line % grid.h, image = line / grid.h;
  if (x % grid.stride || y % grid.stride) return -1;
  return (image * grid.p + y / grid.stride) * grid.q + x / grid.stride;
}

// dz, the gradient before the activation.
template <class T>
std::vector<float> masked_gradient(const BatchNormBackward& op) {
  Index count = op.rows * op.c;
  std::vector<float> dz = gradient_of_output<T>(op, count);
  const T* addend = static_cast<const T*>(op.addend);
  for (Index i = 0; addend && i < count; ++i) {
    Index pixel = addend_pixel(op, i / op.c);
    if (pixel >= 0) dz[i] = to_float(from_float<T>(dz[i] + to_float(addend[pixel * op.c + i % op.c])));
  }
  if (op.activation == kNone) return dz;
  const T* x = static_cast<const T*>(op.x);
  const T* gate = static_cast<const T*>(op.gate);
  const unsigned char* mask = static_cast<const unsigned char*>(op.mask);
  for (Index i = 0; i < count; ++i) {
    if (mask) {
      dz[i] *= static_cast<float>(mask[i / 8] >> i % 8 & 1);
      continue;
    }
    float z = gate ? to_float(gate[i]) : 0.0f;
    if (!gate) {
      T rounded = from_float<T>(normalised_at(op.norm, to_float(x[i]), i % op.c));
      z = gate_of(op.activation, to_float(rounded));
    }
    dz[i] *= activation_slope(op.activation, z);
  }
  return dz;
}

// Gradients of one norm from dz; dx may be absent.
template <class T>
void norm_backward(const std::vector<float>& dz, const void* input, const Norm& norm, Index rows,
                   Index channels, void* gradient, float* dgamma, float* dbeta) {
  const T* x = static_cast<const T*>(input);
  std::vector<double> sum(channels), product(channels);
  for (Index row = 0; row < rows; ++row)
    for (Index c = 0; c < channels; ++c) {
      Index i = row * channels + c;
      sum[c] += dz[i];
      float xhat = (to_float(x[i]) - norm.mean[c]) * norm.inverse_std[c];
      product[c] += static_cast<double>(dz[i]) * xhat;
    }
  for (Index c = 0; c < channels; ++c) {
    dbeta[c] = static_cast<float>(sum[c]);
    dgamma[c] = static_cast<float>(product[c]);
  }
  T* dx = static_cast<T*>(gradient);
  for (Index i = 0; dx && i < rows * channels; ++i) {
    Index c = i % channels;
    float xhat = (to_float(x[i]) - norm.mean[c]) * norm.inverse_std[c];
    float count = static_cast<float>(rows);
    dx[i] = from_float<T>(norm_gradient(dz[i], xhat, norm.gamma[c] * norm.inverse_std[c],
                                        dbeta[c] / count, dgamma[c] / count));
  }
}

template <class T>
void backward(const BatchNormBackward& op) {
  std::vector<float> dz = masked_gradient<T>(op);
  norm_backward<T>(dz, op.x, op.norm, op.rows, op.c, op.dx, op.dgamma, op.dbeta);
  if (op.shortcut_norm.mean)
    norm_backward<T>(dz, op.shortcut, op.shortcut_norm, op.rows, op.c, op.dshortcut,
                     op.dshortcut_gamma, op.dshortcut_beta);
  else if (op.dshortcut)
    narrow_into(static_cast<T*>(op.dshortcut), dz.data(), op.rows * op.c);
}

template <class T>
void affine(const AffineForward& op) {
  const T* x = static_cast<const T*>(op.x);
  const T* shortcut = static_cast<const T*>(op.shortcut);
  T* y = static_cast<T*>(op.y);
  for (Index i = 0; i < op.rows * op.c; ++i) {
    float value = to_float(x[i]) * op.scale[i % op.c] + op.bias[i % op.c];
    if (shortcut) value += to_float(shortcut[i]);
    y[i] = from_float<T>(activate(op.activation, to_float(from_float<T>(value))));
  }
}

}  // namespace

void run(const BatchNormStatistics& op) {
  with_type(op.type, [&](auto t) { statistics<decltype(t)>(op); });
}

void run(const BatchNormApply& op) {
  with_type(op.type, [&](auto t) { apply<decltype(t)>(op); });
}

void run(const BatchNormBackward& op) {
  with_type(op.type, [&](auto t) { backward<decltype(t)>(op); });
}

void run(const BatchNormFold& op) {
  for (Index c = 0; c < op.c; ++c) {
    op.scale[c] = op.gamma[c] / std::sqrt(op.var[c] + op.eps);
    op.bias[c] = op.beta[c] - op.mean[c] * op.scale[c];
  }
}

void run(const AffineForward& op) {
  with_type(op.type, [&](auto t) { affine<decltype(t)>(op); });
}

}  // namespace rn
