#include "data/normalize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "data/normalize_x86.h"

namespace rn::data {
namespace {

constexpr int64_t kGroupBytes = 4096;  // of rows that are flipped or padded before

template <int C, int O>
void lay_out_fixed(const uint8_t* row, int32_t w, bool flip, uint8_t* out) {
  for (int32_t x = 0; x < w; ++x, out += O) {
    const uint8_t* pixel = row + (flip ? w - 1 - x : x) * C;
    uint8_t wide[O] = {};
    for (int k = 0; k < C; ++k) wide[k] = pixel[k];
    std::memcpy(out, wide, O);
  }
}

// Flips a row and widens it to the output's channels; what is added is 0 and ends up as 0.
void lay_out(const uint8_t* row, int32_t w, int32_t channels, int32_t out_channels, bool flip,
             uint8_t* out) {
  if (channels == 1 && out_channels == 1) return lay_out_fixed<1, 1>(row, w, flip, out);
  if (channels == 1 && out_channels == 4) return lay_out_fixed<1, 4>(row, w, flip, out);
  if (channels == 3 && out_channels == 3) return lay_out_fixed<3, 3>(row, w, flip, out);
  for (int32_t x = 0; x < w; ++x, out += out_channels) {
    const uint8_t* pixel = row + (flip ? w - 1 - x : x) * channels;
    for (int32_t k = 0; k < channels; ++k) out[k] = pixel[k];
    for (int32_t k = channels; k < out_channels; ++k) out[k] = 0;
  }
}

}  // namespace

Isa best_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c"))
    return kScalar;
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return wide ? kAvx512 : kAvx2;
#else
  return kScalar;
#endif
}

Normalizer::Normalizer(const void* table, const double* scales, const double* biases,
                       int32_t channels_, int32_t out_channels_, bool half_, Isa wanted)
    : channels(channels_), out_channels(out_channels_), half(half_) {
  // a padded channel has a table of zeros of its own, so rows can be converted without looking
  const size_t entries = static_cast<size_t>(out_channels) * 256, given = channels * size_t{256};
  if (half) {
    table16.assign(entries, 0);
    std::memcpy(table16.data(), table, given * 2);
  } else {
    table32.assign(entries, 0.0f);
    std::memcpy(table32.data(), table, given * 4);
  }
  std::fill(scale, scale + kPattern, 0.0f);
  std::fill(bias, bias + kPattern, 0.0f);
  isa = std::min(wanted, best_isa());
  bool exact = isa != kScalar && kPattern % out_channels == 0;
  for (int32_t k = 0; k < channels && exact; ++k) exact = fit(k, scales[k], biases[k]);
  if (!exact) isa = kScalar;
}

// Takes a scale and a bias if they give the table's bits for all of a channel's values.
bool Normalizer::take(int32_t channel, float a, float b) {
#if defined(__x86_64__)
  for (int x = 0; x < 256; ++x) {
    const float y = std::fma(static_cast<float>(x), a, b);
    const size_t entry = channel * size_t{256} + x;
    if (half ? half_bits(y) != table16[entry] : std::memcmp(&y, &table32[entry], 4) != 0)
      return false;
  }
  for (int e = channel; e < kPattern; e += out_channels) scale[e] = a, bias[e] = b;
  return true;
#else
  (void)channel, (void)a, (void)b;
  return false;
#endif
}

// For fp16, looks near the exact scale and bias for a pair whose arithmetic gives the table's bits:
// rounding to fp32 and then to fp16 may miss a few entries, and a neighbouring pair then hits all.
bool Normalizer::fit(int32_t channel, double scale_of, double bias_of) {
  const auto near = [](double value, int steps) {
    float result = static_cast<float>(value);
    for (int i = 0; i < std::abs(steps); ++i)
      result = std::nextafter(result, steps > 0 ? INFINITY : -INFINITY);
    return result;
  };
  constexpr int kReach = 6;
  for (int distance = 0; distance <= (half ? kReach : 0); ++distance)
    for (int up = -distance; up <= distance; ++up)
      for (int right = -distance; right <= distance; ++right)
        if (std::max(std::abs(up), std::abs(right)) == distance &&
            take(channel, near(scale_of, up), near(bias_of, right)))
          return true;
  return false;
}

template <typename T>
void Normalizer::flat(const uint8_t* in, int64_t count, const T* table, bool stream, T* out) const {
  int64_t done = 0;
#if defined(__x86_64__)
  const bool around = stream && aligned(out);
  if (isa == kAvx512)
    done = around ? flat_avx512<true>(*this, in, count, out)
                  : flat_avx512<false>(*this, in, count, out);
  if (isa == kAvx2)
    done = around ? flat_avx2<true>(*this, in, count, out)
                  : flat_avx2<false>(*this, in, count, out);
#endif
  const int32_t c = out_channels;
  for (; done < count; done += c)
    for (int32_t k = 0; k < c; ++k) out[done + k] = table[k * 256 + in[done + k]];
}

// A row of RGB to RGB0, with vectors but for what is left over of a multiple of four pixels.
template <typename T>
void Normalizer::widen(const uint8_t* row, int32_t w, bool flip, const T* table, bool stream,
                       T* out) const {
  const auto pixel = [&](int32_t x) {
    const uint8_t* in = row + 3 * (flip ? w - 1 - x : x);
    for (int32_t k = 0; k < 3; ++k) out[4 * x + k] = table[k * 256 + in[k]];
    out[4 * x + 3] = 0;
  };
  int32_t x = 0;
#if defined(__x86_64__)
  const bool around = stream && aligned(out);
  if (isa == kAvx512 && w >= kLeastWidth)
    x = around ? widen_avx512<true>(*this, row, w, flip, out)
               : widen_avx512<false>(*this, row, w, flip, out);
  if (isa == kAvx2 && w >= kLeastWidth)
    x = around ? widen_avx2<true>(*this, row, w, flip, out)
               : widen_avx2<false>(*this, row, w, flip, out);
#endif
  for (; x < w; ++x) pixel(x);
}

template <typename T>
void Normalizer::picture(const uint8_t* image, int32_t h, int32_t w, bool flip, const T* table,
                         bool stream, T* out) const {
  const int64_t in_row = int64_t{w} * channels, out_row = int64_t{w} * out_channels;
  if (!flip && channels == out_channels) return flat(image, h * in_row, table, stream, out);
  if (channels == 3 && out_channels == 4) {
    for (int32_t y = 0; y < h; ++y)
      widen(image + y * in_row, w, flip, table, stream, out + y * out_row);
    return;
  }
  thread_local std::vector<uint8_t> rows;
  const int32_t group = static_cast<int32_t>(std::max<int64_t>(1, kGroupBytes / out_row));
  rows.resize(static_cast<size_t>(group * out_row));
  for (int32_t y = 0; y < h; y += group) {
    const int32_t number = std::min(group, h - y);
    for (int32_t r = 0; r < number; ++r)
      lay_out(image + (y + r) * in_row, w, channels, out_channels, flip, rows.data() + r * out_row);
    flat(rows.data(), number * out_row, table, stream, out + y * out_row);
  }
}

void Normalizer::run(const uint8_t* image, int32_t h, int32_t w, const Finish& finish, bool stream,
                     void* out) const {
  uint8_t* place = static_cast<uint8_t*>(out);
  if (half)
    picture(image, h, w, finish.flip, table16.data(), stream, static_cast<uint16_t*>(out));
  else
    picture(image, h, w, finish.flip, table32.data(), stream, static_cast<float*>(out));
#if defined(__x86_64__)
  if (stream && isa != kScalar) _mm_sfence();  // the next reader may be another thread
#endif
  if (!finish.erase) return;
  const int64_t pixel = out_channels * element_bytes();
  for (int32_t y = finish.top; y < finish.top + finish.height; ++y)
    std::memset(place + (int64_t{y} * w + finish.left) * pixel, 0,
                static_cast<size_t>(finish.width * pixel));
}

}  // namespace rn::data
