// Pools over windows and over whole maps, the residual add, channel padding.
#include <algorithm>
#include <cmath>

#include "host/run_maps.h"
#include "host/winners.h"
#include "host/wide.h"
#include "norm.h"

namespace rn {
namespace {

struct Span {
  Index first, last;  // real positions under a window, the end excluded
};

Span real(Index output, Index extent, const PoolShape& s) {
  Index begin = output * s.stride - s.pad;
  return {std::max(begin, Index{0}), std::min(begin + s.kernel, extent)};
}

// Calls visit(output index, rows, columns) for every output pixel.
template <class Visit>
void each_window(const PoolShape& s, Visit visit) {
  for (Index n = 0; n < s.n; ++n)
    for (Index p = 0; p < s.p; ++p)
      for (Index q = 0; q < s.q; ++q)
        visit(n, (n * s.p + p) * s.q + q, real(p, s.h, s), real(q, s.w, s),
              (p * s.stride - s.pad) * s.kernel + q * s.stride - s.pad);
}

template <class T>
void max_forward(const MaxPoolForward& op) {
  const PoolShape& s = op.pool;
  std::vector<float> x = widened<T>(op.x, s.n * s.h * s.w * s.c);
  for (Index i = 0; op.norm.mean && i < s.n * s.h * s.w * s.c; ++i) {
    Index c = i % s.c;
    const Norm& n = op.norm;
    float z = normalised(x[i], n.mean[c], n.inverse_std[c], n.gamma[c], n.beta[c]);
    z = to_float(from_float<T>(z));
    x[i] = to_float(from_float<T>(activate(op.activation, z)));
  }
  T* y = static_cast<T*>(op.y);
  each_window(s, [&](Index n, Index out, Span rows, Span columns, Index origin) {
    for (Index c = 0; c < s.c; ++c) {
      float best = 0.0f;
      Index winner = -1;
      for (Index h = rows.first; h < rows.last; ++h)
        for (Index w = columns.first; w < columns.last; ++w) {
          float value = x[((n * s.h + h) * s.w + w) * s.c + c];
          bool wins = value > best || (std::isnan(value) && !std::isnan(best));
          if (winner < 0 || wins) best = value, winner = h * s.kernel + w - origin;
        }
      Index i = out * s.c + c;
      y[i] = from_float<T>(best);
      if (op.argmax && op.argmax_bytes == 1) static_cast<uint8_t*>(op.argmax)[i] = winner;
      if (op.argmax && op.argmax_bytes == 4) static_cast<int32_t*>(op.argmax)[i] = winner;
    }
  });
}

template <class T>
void max_backward(const MaxPoolBackward& op) {
  std::vector<float> dx = spread_to_winners<T>(op.dy, op.argmax, op.argmax_bytes, op.pool);
  narrow_into(static_cast<T*>(op.dx), dx.data(), static_cast<Index>(dx.size()));
}

template <class T>
void average_forward(const AveragePoolForward& op) {
  const PoolShape& s = op.pool;
  std::vector<float> x = widened<T>(op.x, s.n * s.h * s.w * s.c), sum(s.c);
  T* y = static_cast<T*>(op.y);
  each_window(s, [&](Index n, Index out, Span rows, Span columns, Index) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (Index h = rows.first; h < rows.last; ++h)
      for (Index w = columns.first; w < columns.last; ++w)
        for (Index c = 0; c < s.c; ++c) sum[c] += x[((n * s.h + h) * s.w + w) * s.c + c];
    Index pixels = (rows.last - rows.first) * (columns.last - columns.first);
    for (Index c = 0; c < s.c; ++c)
      y[out * s.c + c] = from_float<T>(sum[c] / static_cast<float>(pixels));
  });
}

template <class T>
void average_backward(const AveragePoolBackward& op) {
  const PoolShape& s = op.pool;
  const T* dy = static_cast<const T*>(op.dy);
  std::vector<float> dx(static_cast<size_t>(s.n * s.h * s.w * s.c));
  each_window(s, [&](Index n, Index out, Span rows, Span columns, Index) {
    Index pixels = (rows.last - rows.first) * (columns.last - columns.first);
    for (Index h = rows.first; h < rows.last; ++h)
      for (Index w = columns.first; w < columns.last; ++w)
        for (Index c = 0; c < s.c; ++c)
          dx[((n * s.h + h) * s.w + w) * s.c + c] +=
              to_float(dy[out * s.c + c]) / static_cast<float>(pixels);
  });
  narrow_into(static_cast<T*>(op.dx), dx.data(), s.n * s.h * s.w * s.c);
}

template <class T, class Y>
void global_forward(const GlobalAveragePoolForward& op) {
  const T* x = static_cast<const T*>(op.x);
  Y* y = static_cast<Y*>(op.y);
  std::vector<float> sum(op.c);
  for (Index n = 0; n < op.n; ++n) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (Index i = 0; i < op.pixels * op.c; ++i) sum[i % op.c] += to_float(x[n * op.pixels * op.c + i]);
    for (Index c = 0; c < op.c; ++c)
      y[n * op.c + c] = from_float<Y>(sum[c] / static_cast<float>(op.pixels));
  }
}

template <class T>
void global_backward(const GlobalAveragePoolBackward& op) {
  const T* dy = static_cast<const T*>(op.dy);
  T* dx = static_cast<T*>(op.dx);
  for (Index i = 0; i < op.n * op.pixels * op.c; ++i) {
    Index n = i / (op.pixels * op.c), c = i % op.c;
    dx[i] = from_float<T>(to_float(dy[n * op.c + c]) / static_cast<float>(op.pixels));
  }
}

template <class T>
void gap_fc_backward(const GapFcBackwardData& op) {
  std::vector<float> dy = widened<T>(op.dy, op.n * op.k), w = widened<T>(op.w, op.k * op.c);
  std::vector<float> sum(op.c);
  T* dx = static_cast<T*>(op.dx);
  for (Index n = 0; n < op.n; ++n) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (Index k = 0; k < op.k; ++k)
      for (Index c = 0; c < op.c; ++c) sum[c] += dy[n * op.k + k] * w[k * op.c + c];
    for (Index pixel = 0; pixel < op.pixels; ++pixel)
      for (Index c = 0; c < op.c; ++c)
        dx[(n * op.pixels + pixel) * op.c + c] =
            from_float<T>(sum[c] / static_cast<float>(op.pixels));
  }
}

template <class T>
void add(const AddForward& op) {
  const T* a = static_cast<const T*>(op.a);
  const T* b = static_cast<const T*>(op.b);
  T* y = static_cast<T*>(op.y);
  T* z = static_cast<T*>(op.z);
  for (Index i = 0; i < op.count; ++i) {
    T sum = from_float<T>(to_float(a[i]) + to_float(b[i]));
    if (z) z[i] = sum;
    y[i] = from_float<T>(activate(op.activation, to_float(sum)));
  }
}

template <class T>
void pad_channels(const ChannelPadding& op) {
  const T* x = static_cast<const T*>(op.x);
  T* y = static_cast<T*>(op.y);
  for (Index pixel = 0; pixel < op.pixels; ++pixel)
    for (Index c = 0; c < op.y_channels; ++c)
      y[pixel * op.y_channels + c] = c < op.x_channels ? x[pixel * op.x_channels + c] : T{};
}

}  // namespace

void run(const MaxPoolForward& op) {
  with_type(op.type, [&](auto t) { max_forward<decltype(t)>(op); });
}

void run(const MaxPoolBackward& op) {
  with_type(op.type, [&](auto t) { max_backward<decltype(t)>(op); });
}

void run(const AveragePoolForward& op) {
  with_type(op.type, [&](auto t) { average_forward<decltype(t)>(op); });
}

void run(const AveragePoolBackward& op) {
  with_type(op.type, [&](auto t) { average_backward<decltype(t)>(op); });
}

void run(const GlobalAveragePoolForward& op) {
  with_type(op.type, [&](auto t) {
    with_type(op.y_type, [&](auto y) { global_forward<decltype(t), decltype(y)>(op); });
  });
}

void run(const GlobalAveragePoolBackward& op) {
  with_type(op.type, [&](auto t) { global_backward<decltype(t)>(op); });
}

void run(const GapFcBackwardData& op) {
  with_type(op.type, [&](auto t) { gap_fc_backward<decltype(t)>(op); });
}

void run(const AddForward& op) {
  with_type(op.type, [&](auto t) { add<decltype(t)>(op); });
}

void run(const ChannelPadding& op) {
  with_type(op.type, [&](auto t) { pad_channels<decltype(t)>(op); });
}

}  // namespace rn
