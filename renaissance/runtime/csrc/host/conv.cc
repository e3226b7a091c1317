// Dense and grouped convolutions. Sums run over four pixels, or four filters, at a time along the
// innermost axis, so that they vectorise without being reordered.
#include <algorithm>

#include "host/run_maps.h"
#include "host/wide.h"

namespace rn {
namespace {

constexpr Index kBlock = 4;

// Filters as (group, r, s, c, k): for one pixel's channel all filters of the group are neighbours.
template <class T>
std::vector<float> filters_innermost(const void* w, const ConvShape& s) {
  const T* in = static_cast<const T*>(w);
  Index channels = s.c / s.groups, filters = s.k / s.groups, taps = Index{s.r} * s.s;
  std::vector<float> out(static_cast<size_t>(s.k * taps * channels));
  for (Index k = 0; k < s.k; ++k)
    for (Index tap = 0; tap < taps; ++tap)
      for (Index c = 0; c < channels; ++c)
        out[((k / filters * taps + tap) * channels + c) * filters + k % filters] =
            to_float(in[(k * taps + tap) * channels + c]);
  return out;
}

template <class T>
void filters_back(T* w, const std::vector<float>& in, const ConvShape& s) {
  Index channels = s.c / s.groups, filters = s.k / s.groups, taps = Index{s.r} * s.s;
  for (Index k = 0; k < s.k; ++k)
    for (Index tap = 0; tap < taps; ++tap)
      for (Index c = 0; c < channels; ++c)
        w[(k * taps + tap) * channels + c] = from_float<T>(
            in[((k / filters * taps + tap) * channels + c) * filters + k % filters]);
}

// What the four outputs from (p, q) on see of x at one tap; zeros where that lies outside.
struct Window {
  const float* pixel[kBlock];

  // False if none of them sees a real pixel.
  bool find(const ConvShape& s, const float* image, const float* zeros, Index p, Index q, int r,
            int tap, Index channel) {
    Index h = p * s.stride + r - s.pad;
    bool any = false;
    for (Index j = 0; j < kBlock; ++j) {
      Index w = (q + j) * s.stride + tap - s.pad;
      bool real = h >= 0 && h < s.h && w >= 0 && w < s.w && q + j < s.q;
      pixel[j] = real ? image + (h * s.w + w) * s.c + channel : zeros;
      any = any || real;
    }
    return any;
  }
};

// sum[j][k] += x_j[c] f[c][k] for four pixels j.
void add_products(float* __restrict sum, const Window& x, const float* __restrict f, Index channels,
                  Index filters) {
  float *s0 = sum, *s1 = sum + filters, *s2 = s1 + filters, *s3 = s2 + filters;
  for (Index c = 0; c < channels; ++c, f += filters) {
    float x0 = x.pixel[0][c], x1 = x.pixel[1][c], x2 = x.pixel[2][c], x3 = x.pixel[3][c];
    for (Index k = 0; k < filters; ++k) {
      s0[k] += x0 * f[k];
      s1[k] += x1 * f[k];
      s2[k] += x2 * f[k];
      s3[k] += x3 * f[k];
    }
  }
}

template <class T, class Y>
void forward(const ConvForward& op) {
  const ConvShape& s = op.shape;
  std::vector<float> x = widened<T>(op.x, s.n * s.h * s.w * s.c);
  std::vector<float> w = filters_innermost<T>(op.w, s);
  Index channels = s.c / s.groups, filters = s.k / s.groups;
  std::vector<float> zeros(channels), sum(kBlock * filters);
  Y* y = static_cast<Y*>(op.y);
  Window window;
  for (Index np = 0; np < s.n * s.p; ++np)
    for (Index q = 0; q < s.q; q += kBlock)
      for (Index g = 0; g < s.groups; ++g) {
        std::fill(sum.begin(), sum.end(), 0.0f);
        const float* image = &x[np / s.p * s.h * s.w * s.c];
        for (int r = 0; r < s.r; ++r)
          for (int t = 0; t < s.s; ++t)
            if (window.find(s, image, zeros.data(), np % s.p, q, r, t, g * channels))
              add_products(sum.data(), window, &w[((g * s.r + r) * s.s + t) * channels * filters],
                           channels, filters);
        for (Index j = 0; j < std::min(kBlock, s.q - q); ++j)
          narrow_into(y + (np * s.q + q + j) * s.k + g * filters, &sum[j * filters], filters);
      }
}

// sum[c] += the gradients of all filters of a group at one output times their taps, w (k, r, s, c).
void add_taps(float* __restrict sum, const float* dy, const float* w, Index filters, Index stride,
              Index channels) {
  Index k = 0;
  for (; k + kBlock <= filters; k += kBlock) {
    const float *f0 = w + k * stride, *f1 = f0 + stride, *f2 = f1 + stride, *f3 = f2 + stride;
    float d0 = dy[k], d1 = dy[k + 1], d2 = dy[k + 2], d3 = dy[k + 3];
    for (Index c = 0; c < channels; ++c)
      sum[c] = sum[c] + d0 * f0[c] + d1 * f1[c] + d2 * f2[c] + d3 * f3[c];
  }
  for (; k < filters; ++k)
    for (Index c = 0; c < channels; ++c) sum[c] += dy[k] * w[k * stride + c];
}

// The output whose window sees input `at` at this tap; -1 if there is none.
Index output_seeing(Index at, int tap, int stride, int pad, Index outputs) {
  Index shifted = at + pad - tap;
  if (shifted < 0 || shifted % stride != 0 || shifted / stride >= outputs) return -1;
  return shifted / stride;
}

template <class T>
void backward_data(const ConvBackwardData& op) {
  const ConvShape& s = op.shape;
  Index channels = s.c / s.groups, filters = s.k / s.groups, stride = channels * s.r * s.s;
  std::vector<float> dy = widened<T>(op.dy, s.n * s.p * s.q * s.k);
  std::vector<float> w = widened<T>(op.w, s.k * stride), sum(channels);
  T* dx = static_cast<T*>(op.dx);
  for (Index nh = 0; nh < s.n * s.h; ++nh)
    for (Index column = 0; column < s.w; ++column)
      for (Index g = 0; g < s.groups; ++g) {
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (int r = 0; r < s.r; ++r)
          for (int t = 0; t < s.s; ++t) {
            Index p = output_seeing(nh % s.h, r, s.stride, s.pad, s.p);
            Index q = output_seeing(column, t, s.stride, s.pad, s.q);
            if (p < 0 || q < 0) continue;
            const float* d = &dy[((nh / s.h * s.p + p) * s.q + q) * s.k + g * filters];
            const float* tap = &w[g * filters * stride + (r * s.s + t) * channels];
            add_taps(sum.data(), d, tap, filters, stride, channels);
          }
        narrow_into(dx + (nh * s.w + column) * s.c + g * channels, sum.data(), channels);
      }
}

// sum[c][k] += x_j[c] dy_j[k] over four outputs j.
void add_outer(float* __restrict sum, const Window& x, const float* const (&dy)[kBlock],
               Index channels, Index filters) {
  for (Index c = 0; c < channels; ++c, sum += filters) {
    float x0 = x.pixel[0][c], x1 = x.pixel[1][c], x2 = x.pixel[2][c], x3 = x.pixel[3][c];
    for (Index k = 0; k < filters; ++k)
      sum[k] = sum[k] + x0 * dy[0][k] + x1 * dy[1][k] + x2 * dy[2][k] + x3 * dy[3][k];
  }
}

template <class T>
void backward_weight(const ConvBackwardWeight& op) {
  const ConvShape& s = op.shape;
  Index channels = s.c / s.groups, filters = s.k / s.groups;
  std::vector<float> x = widened<T>(op.x, s.n * s.h * s.w * s.c);
  std::vector<float> dy = widened<T>(op.dy, s.n * s.p * s.q * s.k);
  std::vector<float> total(s.k * s.r * s.s * channels), row(total.size());
  std::vector<float> zeros(std::max(channels, filters));
  Window window;
  for (Index np = 0; np < s.n * s.p; ++np) {
    std::fill(row.begin(), row.end(), 0.0f);
    const float* image = &x[np / s.p * s.h * s.w * s.c];
    for (Index q = 0; q < s.q; q += kBlock)
      for (Index g = 0; g < s.groups; ++g) {
        const float* d[kBlock];
        for (Index j = 0; j < kBlock; ++j)
          d[j] = q + j < s.q ? &dy[(np * s.q + q + j) * s.k + g * filters] : zeros.data();
        for (int r = 0; r < s.r; ++r)
          for (int t = 0; t < s.s; ++t)
            if (window.find(s, image, zeros.data(), np % s.p, q, r, t, g * channels))
              add_outer(&row[((g * s.r + r) * s.s + t) * channels * filters], window, d, channels,
                        filters);
      }
    // A row at a time: a sum of sums loses fewer digits than one long sum.
    for (size_t i = 0; i < total.size(); ++i) total[i] += row[i];
  }
  filters_back(static_cast<T*>(op.dw), total, s);
}

}  // namespace

void run(const ConvForward& op) {
  with_type(op.type, [&](auto t) {
    with_type(op.y_type, [&](auto y) { forward<decltype(t), decltype(y)>(op); });
  });
}

void run(const ConvForwardStatistics& op) {
  run(op.conv);
  run(op.statistics);
}

void run(const ConvBackwardData& op) {
  with_type(op.type, [&](auto t) { backward_data<decltype(t)>(op); });
}

void run(const ConvBackwardDataNorm& op) {
  run(op.conv);
  run(op.norm);
}

void run(const ConvBackwardWeight& op) {
  with_type(op.type, [&](auto t) { backward_weight<decltype(t)>(op); });
}

}  // namespace rn
