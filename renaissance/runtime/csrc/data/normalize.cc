#include "data/normalize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rn::data {
namespace {

constexpr int64_t kGroupBytes = 4096;  // of rows that are flipped or padded before they are converted

#if defined(__x86_64__)


__attribute__((target("avx2,f16c"))) uint16_t half_bits(float value) {
  return static_cast<uint16_t>(
      _mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT), 0));
}

__attribute__((target("avx2"))) int64_t single_avx2(const Normalizer& n, const uint8_t* in,
                                                     int64_t count, float* out) {
  int64_t i = 0;
  for (; i + kPattern <= count; i += kPattern) {
    for (int k = 0; k < kPattern; k += 4) {
      int32_t four;
      std::memcpy(&four, in + i + k, 4);
      __m256d x = _mm256_cvtepi32_pd(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(four)));
      x = _mm256_add_pd(_mm256_mul_pd(x, _mm256_loadu_pd(n.scale + k)),
                        _mm256_loadu_pd(n.bias + k));
      _mm_storeu_ps(out + i + k, _mm256_cvtpd_ps(x));
    }
  }
  return i;
}

__attribute__((target("avx2,f16c"))) int64_t half_avx2(const Normalizer& n, const uint8_t* in,
                                                        int64_t count, uint16_t* out) {
  int64_t i = 0;
  for (; i + kPattern <= count; i += kPattern) {
    for (int k = 0; k < kPattern; k += 8) {
      __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in + i + k));
      __m256 x = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight));
      x = _mm256_add_ps(_mm256_mul_ps(x, _mm256_loadu_ps(n.scale32 + k)),
                        _mm256_loadu_ps(n.bias32 + k));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i + k),
                       _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    }
  }
  return i;
}

// The forms with a mask of ones are the plain instructions; gcc's plain forms warn about themselves.
__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))) int64_t single_avx512(
    const Normalizer& n, const uint8_t* in, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + kPattern <= count; i += kPattern) {
    for (int k = 0; k < kPattern; k += 8) {
      __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in + i + k));
      __m512d x = _mm512_maskz_cvtepi32_pd(0xFF, _mm256_cvtepu8_epi32(eight));
      x = _mm512_add_pd(_mm512_mul_pd(x, _mm512_loadu_pd(n.scale + k)),
                        _mm512_loadu_pd(n.bias + k));
      _mm256_storeu_ps(out + i + k, _mm512_maskz_cvtpd_ps(0xFF, x));
    }
  }
  return i;
}

__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))) int64_t half_avx512(
    const Normalizer& n, const uint8_t* in, int64_t count, uint16_t* out) {
  int64_t i = 0;
  for (; i + kPattern <= count; i += kPattern) {
    for (int k = 0; k < kPattern; k += 16) {
      __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i + k));
      __m512 x = _mm512_maskz_cvtepi32_ps(0xFFFF, _mm512_maskz_cvtepu8_epi32(0xFFFF, bytes));
      x = _mm512_add_ps(_mm512_mul_ps(x, _mm512_loadu_ps(n.scale32 + k)),
                        _mm512_loadu_ps(n.bias32 + k));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i + k),
                          _mm512_maskz_cvtps_ph(0xFFFF, x, _MM_FROUND_TO_NEAREST_INT));
    }
  }
  return i;
}

#endif

#if defined(__x86_64__)

// Four RGB pixels at a time into RGB0, in order or reversed; returns how many pixels are done. Reads
// 16 bytes for each 12, so the pixels at the row's end (in order) or begin (reversed) are left over.
__attribute__((target("avx2"))) int32_t widen_avx2(const uint8_t* row, int32_t w, bool flip,
                                                   uint8_t* out) {
  const char skip = -128;
  const __m128i forward =
      _mm_setr_epi8(0, 1, 2, skip, 3, 4, 5, skip, 6, 7, 8, skip, 9, 10, 11, skip);
  const __m128i backward =
      _mm_setr_epi8(9, 10, 11, skip, 6, 7, 8, skip, 3, 4, 5, skip, 0, 1, 2, skip);
  int32_t x = 0;
  if (!flip) {
    for (; x + 6 <= w; x += 4)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 4 * x),
                       _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(
                                            row + 3 * x)),
                                        forward));
    return x;
  }
  for (; x < 4 && x < w; ++x) {
    const uint8_t* pixel = row + 3 * (w - 1 - x);
    const uint8_t wide[4] = {pixel[0], pixel[1], pixel[2], 0};
    std::memcpy(out + 4 * x, wide, 4);
  }
  for (; x + 4 <= w; x += 4)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 4 * x),
                     _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(
                                          row + 3 * (w - 4 - x))),
                                      backward));
  return x;
}

#endif

template <int C, int O>
void lay_out_fixed(const uint8_t* row, int32_t first, int32_t w, bool flip, uint8_t* out) {
  out += first * O;
  for (int32_t x = first; x < w; ++x, out += O) {
    const uint8_t* pixel = row + (flip ? w - 1 - x : x) * C;
    uint8_t wide[O] = {};
    for (int k = 0; k < C; ++k) wide[k] = pixel[k];
    std::memcpy(out, wide, O);
  }
}

// Flips a row and widens it to the output's channels; what is added is 0 and ends up as 0.
void lay_out(const uint8_t* row, int32_t w, int32_t channels, int32_t out_channels, bool flip,
             bool vectors, uint8_t* out) {
  int32_t first = 0;
#if defined(__x86_64__)
  if (vectors && channels == 3 && out_channels == 4) first = widen_avx2(row, w, flip, out);
#else
  (void)vectors;
#endif
  if (channels == 1 && out_channels == 1) return lay_out_fixed<1, 1>(row, first, w, flip, out);
  if (channels == 1 && out_channels == 4) return lay_out_fixed<1, 4>(row, first, w, flip, out);
  if (channels == 3 && out_channels == 3) return lay_out_fixed<3, 3>(row, first, w, flip, out);
  if (channels == 3 && out_channels == 4) return lay_out_fixed<3, 4>(row, first, w, flip, out);
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
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) return kAvx2;
#endif
  return kScalar;  // elsewhere the compiler's own vectors serve (NEON is part of its baseline)
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
  std::fill(scale, scale + kPattern, 0.0);
  std::fill(bias, bias + kPattern, 0.0);
  std::fill(scale32, scale32 + kPattern, 0.0f);
  std::fill(bias32, bias32 + kPattern, 0.0f);
  isa = std::min(wanted, best_isa());
  bool exact = isa != kScalar && kPattern % out_channels == 0;
  for (int32_t k = 0; k < channels && exact; ++k) {
    if (half) {
      exact = fit_half(k, scales[k], biases[k]);
    } else {
      for (int x = 0; x < 256; ++x) {
        const float y = static_cast<float>(x * scales[k] + biases[k]);
        exact = exact && std::memcmp(&y, &table32[k * 256 + x], 4) == 0;
      }
      for (int e = k; e < kPattern; e += out_channels) scale[e] = scales[k], bias[e] = biases[k];
    }
  }
  if (!exact) isa = kScalar;
}

// Looks near the exact scale and bias for a pair whose fp32 arithmetic, rounded to fp16, gives the
// table's bits: rounding twice may miss a few entries, and a neighbouring pair then hits them all.
bool Normalizer::fit_half(int32_t channel, double scale_of, double bias_of) {
#if defined(__x86_64__)
  const uint16_t* want = &table16[channel * 256];
  constexpr int kReach = 6;
  for (int attempt = 0; attempt < (2 * kReach + 1) * (2 * kReach + 1); ++attempt) {
    float a = static_cast<float>(scale_of), b = static_cast<float>(bias_of);
    const int up = attempt % (2 * kReach + 1) - kReach, right = attempt / (2 * kReach + 1) - kReach;
    for (int i = 0; i < std::abs(up); ++i) a = std::nextafter(a, up > 0 ? INFINITY : -INFINITY);
    for (int i = 0; i < std::abs(right); ++i)
      b = std::nextafter(b, right > 0 ? INFINITY : -INFINITY);
    bool exact = true;
    for (int x = 0; x < 256 && exact; ++x)
      exact = half_bits(static_cast<float>(x) * a + b) == want[x];
    if (!exact) continue;
    for (int e = channel; e < kPattern; e += out_channels) scale32[e] = a, bias32[e] = b;
    return true;
  }
#else
  (void)channel, (void)scale_of, (void)bias_of;
#endif
  return false;
}

void Normalizer::flat(const uint8_t* in, int64_t count, void* out) const {
  int64_t done = 0;
#if defined(__x86_64__)
  if (isa == kAvx512)
    done = half ? half_avx512(*this, in, count, static_cast<uint16_t*>(out))
                : single_avx512(*this, in, count, static_cast<float*>(out));
  else if (isa == kAvx2)
    done = half ? half_avx2(*this, in, count, static_cast<uint16_t*>(out))
                : single_avx2(*this, in, count, static_cast<float*>(out));
#endif
  const int32_t c = out_channels;
  for (; done < count; done += c) {
    for (int32_t k = 0; k < c; ++k) {
      if (half)
        static_cast<uint16_t*>(out)[done + k] = table16[k * 256 + in[done + k]];
      else
        static_cast<float*>(out)[done + k] = table32[k * 256 + in[done + k]];
    }
  }
}

void Normalizer::run(const uint8_t* image, int32_t h, int32_t w, const Finish& finish,
                     void* out) const {
  const int64_t in_row = int64_t{w} * channels, out_row = int64_t{w} * out_channels;
  uint8_t* place = static_cast<uint8_t*>(out);
  if (!finish.flip && channels == out_channels) {
    flat(image, h * in_row, place);
  } else {
    thread_local std::vector<uint8_t> rows;
    const int32_t group = static_cast<int32_t>(std::max<int64_t>(1, kGroupBytes / out_row));
    rows.resize(static_cast<size_t>(group * out_row));
    for (int32_t y = 0; y < h; y += group) {
      const int32_t number = std::min(group, h - y);
      for (int32_t r = 0; r < number; ++r)
        lay_out(image + (y + r) * in_row, w, channels, out_channels, finish.flip, isa != kScalar,
                rows.data() + r * out_row);
      flat(rows.data(), number * out_row, place + y * out_row * element_bytes());
    }
  }
  if (!finish.erase) return;
  const int64_t pixel = out_channels * element_bytes();
  for (int32_t y = finish.top; y < finish.top + finish.height; ++y)
    std::memset(place + (int64_t{y} * w + finish.left) * pixel, 0,
                static_cast<size_t>(finish.width * pixel));
}

}  // namespace rn::data
