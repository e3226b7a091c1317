// Depthwise convolutions: every channel has a filter of its own, so all loops end along channels.
#include <algorithm>

#include "host/run_maps.h"
#include "host/wide.h"

namespace rn {
namespace {

// Filters (c, r, s) as (r, s, c).
template <class T>
std::vector<float> channels_innermost(const void* w, const ConvShape& s) {
  const T* in = static_cast<const T*>(w);
  Index taps = Index{s.r} * s.s;
  std::vector<float> out(static_cast<size_t>(taps * s.c));
  for (Index c = 0; c < s.c; ++c)
    for (Index tap = 0; tap < taps; ++tap) out[tap * s.c + c] = to_float(in[c * taps + tap]);
  return out;
}

void add_products(float* __restrict sum, const float* a, const float* b, Index count) {
  for (Index i = 0; i < count; ++i) sum[i] += a[i] * b[i];
}

// Calls visit(input pixel, tap) for every real pixel that output (p, q) sees.
template <class Visit>
void each_tap(const ConvShape& s, Index p, Index q, Visit visit) {
  for (int r = 0; r < s.r; ++r)
    for (int t = 0; t < s.s; ++t) {
      Index h = p * s.stride + r - s.pad, w = q * s.stride + t - s.pad;
      if (h >= 0 && h < s.h && w >= 0 && w < s.w) visit(h * s.w + w, Index{r} * s.s + t);
    }
}

template <class T>
void forward(const DepthwiseConvForward& op) {
  const ConvShape& s = op.shape;
  std::vector<float> x = widened<T>(op.x, s.n * s.h * s.w * s.c);
  std::vector<float> w = channels_innermost<T>(op.w, s), sum(s.c);
  T* y = static_cast<T*>(op.y);
  for (Index np = 0; np < s.n * s.p; ++np)
    for (Index q = 0; q < s.q; ++q) {
      std::fill(sum.begin(), sum.end(), 0.0f);
      const float* image = &x[np / s.p * s.h * s.w * s.c];
      each_tap(s, np % s.p, q, [&](Index pixel, Index tap) {
        add_products(sum.data(), image + pixel * s.c, &w[tap * s.c], s.c);
      });
      narrow_into(y + (np * s.q + q) * s.c, sum.data(), s.c);
    }
}

template <class T>
void backward_data(const DepthwiseConvBackwardData& op) {
  const ConvShape& s = op.shape;
  std::vector<float> dy = widened<T>(op.dy, s.n * s.p * s.q * s.c);
  std::vector<float> w = channels_innermost<T>(op.w, s), image(s.h * s.w * s.c);
  for (Index n = 0; n < s.n; ++n) {
    std::fill(image.begin(), image.end(), 0.0f);
    for (Index p = 0; p < s.p; ++p)
      for (Index q = 0; q < s.q; ++q)
        each_tap(s, p, q, [&](Index pixel, Index tap) {
          const float* d = &dy[((n * s.p + p) * s.q + q) * s.c];
          add_products(&image[pixel * s.c], d, &w[tap * s.c], s.c);
        });
    narrow_into(static_cast<T*>(op.dx) + n * s.h * s.w * s.c, image.data(), s.h * s.w * s.c);
  }
}

template <class T>
void backward_weight(const DepthwiseConvBackwardWeight& op) {
  const ConvShape& s = op.shape;
  Index taps = Index{s.r} * s.s;
  std::vector<float> x = widened<T>(op.x, s.n * s.h * s.w * s.c);
  std::vector<float> dy = widened<T>(op.dy, s.n * s.p * s.q * s.c);
  std::vector<float> total(taps * s.c), row(taps * s.c);
  for (Index np = 0; np < s.n * s.p; ++np) {
    std::fill(row.begin(), row.end(), 0.0f);
    const float* image = &x[np / s.p * s.h * s.w * s.c];
    for (Index q = 0; q < s.q; ++q)
      each_tap(s, np % s.p, q, [&](Index pixel, Index tap) {
        add_products(&row[tap * s.c], image + pixel * s.c, &dy[(np * s.q + q) * s.c], s.c);
      });
    for (size_t i = 0; i < total.size(); ++i) total[i] += row[i];
  }
  T* dw = static_cast<T*>(op.dw);
  for (Index c = 0; c < s.c; ++c)
    for (Index tap = 0; tap < taps; ++tap) dw[c * taps + tap] = from_float<T>(total[tap * s.c + c]);
}

}  // namespace

void run(const DepthwiseConvForward& op) {
  with_type(op.type, [&](auto t) { forward<decltype(t)>(op); });
}

void run(const DepthwiseConvBackwardData& op) {
  with_type(op.type, [&](auto t) { backward_data<decltype(t)>(op); });
}

void run(const DepthwiseConvBackwardWeight& op) {
  with_type(op.type, [&](auto t) { backward_weight<decltype(t)>(op); });
}

}  // namespace rn
