// The vector code of the normalisation for x86: sixteen bytes a time become sixteen floats.
//
// Each channel's scale and bias repeat after kPattern elements. Bytes come from the picture as it
// lies (flat), or from RGB pixels that become RGB0 in a register (widen). Both return how far they
// got; the caller does the rest with the table. With S the stores bypass the cache: results larger
// than it are not read soon, and a line that is written whole need not be fetched before. They need
// an address aligned to kAlignment.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include "data/normalize.h"

#define RN_AVX2 __attribute__((target("avx2,fma,f16c")))
#define RN_AVX512 __attribute__((target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl")))

namespace rn::data {
namespace {

constexpr uintptr_t kAlignment = 64;

inline bool aligned(const void* place) {
  return reinterpret_cast<uintptr_t>(place) % kAlignment == 0;
}

inline __m128i load(const uint8_t* place) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(place));
}

// Which bytes of four RGB pixels go where; negative ones make a zero.
const int8_t kForward[16] = {0, 1, 2, -128, 3, 4, 5, -128, 6, 7, 8, -128, 9, 10, 11, -128};
const int8_t kBackward[16] = {9, 10, 11, -128, 6, 7, 8, -128, 3, 4, 5, -128, 0, 1, 2, -128};

// Four RGB pixels of a row as RGB0, from pixel x of the result on. 16 bytes are read for the 12: at
// the row's end, those before the pixels instead of those behind them.
RN_AVX2 inline __m128i four_pixels(const uint8_t* row, int32_t w, bool flip, int32_t x) {
  const int32_t first = flip ? w - 4 - x : x;
  const __m128i order = load(reinterpret_cast<const uint8_t*>(flip ? kBackward : kForward));
  if (first + 6 <= w) return _mm_shuffle_epi8(load(row + 3 * first), order);
  return _mm_shuffle_epi8(load(row + 3 * first - 4), _mm_add_epi8(order, _mm_set1_epi8(4)));
}

constexpr int32_t kLeastWidth = 6;  // of rows that widen can take

RN_AVX2 inline uint16_t half_bits(float value) {
  return static_cast<uint16_t>(
      _mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT), 0));
}

RN_AVX2 inline __m256 affine(__m128i eight, __m256 scale, __m256 bias) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight)), scale, bias);
}

template <bool S>
RN_AVX2 inline void put(__m256 low, __m256 high, float* out) {
  if (S) {
    _mm256_stream_ps(out, low);
    _mm256_stream_ps(out + 8, high);
  } else {
    _mm256_storeu_ps(out, low);
    _mm256_storeu_ps(out + 8, high);
  }
}

template <bool S>
RN_AVX2 inline void put(__m256 low, __m256 high, uint16_t* out) {
  const __m256i both = _mm256_set_m128i(_mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT),
                                        _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
  if (S)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(out), both);
  else
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), both);
}

template <bool S, typename T>
RN_AVX2 int64_t flat_avx2(const Normalizer& n, const uint8_t* in, int64_t count, T* out) {
  __m256 scale[6], bias[6];
  for (int k = 0; k < 6; ++k) {
    scale[k] = _mm256_loadu_ps(n.scale + 8 * k);
    bias[k] = _mm256_loadu_ps(n.bias + 8 * k);
  }
  int64_t i = 0;
  for (; i + kPattern <= count; i += kPattern) {
    for (int k = 0; k < 6; k += 2) {
      const __m128i bytes = load(in + i + 8 * k);
      put<S>(affine(bytes, scale[k], bias[k]),
             affine(_mm_srli_si128(bytes, 8), scale[k + 1], bias[k + 1]), out + i + 8 * k);
    }
  }
  return i;
}

template <bool S, typename T>
RN_AVX2 int32_t widen_avx2(const Normalizer& n, const uint8_t* row, int32_t w, bool flip, T* out) {
  const __m256 scale = _mm256_loadu_ps(n.scale), bias = _mm256_loadu_ps(n.bias);
  int32_t x = 0;
  for (; x + 4 <= w; x += 4) {
    const __m128i bytes = four_pixels(row, w, flip, x);
    put<S>(affine(bytes, scale, bias), affine(_mm_srli_si128(bytes, 8), scale, bias), out + 4 * x);
  }
  return x;
}

// The forms with a mask of ones are the plain instructions; gcc's plain forms warn of themselves.
RN_AVX512 inline __m512 affine(__m128i bytes, __m512 scale, __m512 bias) {
  const __m512i words = _mm512_maskz_cvtepu8_epi32(0xFFFF, bytes);
  return _mm512_fmadd_ps(_mm512_maskz_cvtepi32_ps(0xFFFF, words), scale, bias);
}

template <bool S>
RN_AVX512 inline void put(__m512 values, float* out) {
  if (S)
    _mm512_stream_ps(out, values);
  else
    _mm512_storeu_ps(out, values);
}

template <bool S>
RN_AVX512 inline void put(__m512 values, uint16_t* out) {
  const __m256i bits = _mm512_maskz_cvtps_ph(0xFFFF, values, _MM_FROUND_TO_NEAREST_INT);
  if (S)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(out), bits);
  else
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bits);
}

template <bool S, typename T>
RN_AVX512 int64_t flat_avx512(const Normalizer& n, const uint8_t* in, int64_t count, T* out) {
  __m512 scale[3], bias[3];
  for (int k = 0; k < 3; ++k) {
    scale[k] = _mm512_loadu_ps(n.scale + 16 * k);
    bias[k] = _mm512_loadu_ps(n.bias + 16 * k);
  }
  int64_t i = 0;
  for (; i + kPattern <= count; i += kPattern)
    for (int k = 0; k < 3; ++k)
      put<S>(affine(load(in + i + 16 * k), scale[k], bias[k]), out + i + 16 * k);
  return i;
}

template <bool S, typename T>
RN_AVX512 int32_t widen_avx512(const Normalizer& n, const uint8_t* row, int32_t w, bool flip,
                               T* out) {
  const __m512 scale = _mm512_loadu_ps(n.scale), bias = _mm512_loadu_ps(n.bias);
  int32_t x = 0;
  for (; x + 4 <= w; x += 4)
    put<S>(affine(four_pixels(row, w, flip, x), scale, bias), out + 4 * x);
  return x;
}

}  // namespace
}  // namespace rn::data

#endif
