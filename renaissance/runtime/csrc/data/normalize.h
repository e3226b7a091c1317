// Fused normalisation: one pass from uint8 to fp32 or fp16, with flip, erasure and channel padding.
#pragma once

#include <cstdint>
#include <vector>

#include "data/geometry.h"

namespace rn::data {

enum Isa : int32_t { kScalar = 0, kAvx2 = 1, kAvx512 = 2 };

// The best instruction set this processor and this build offer.
Isa best_isa();

constexpr int kPattern = 48;  // elements after which the channels of a vector repeat

// A table of 256 values per channel defines the result. The vector code computes a fused
// multiply-add of the pixel instead of looking it up, but only if that gives the table's very bits
// for all entries (tried when the table is made): every path agrees with the table by construction.
struct Normalizer {
  int32_t channels, out_channels;  // channels beyond the picture's are 0
  bool half;                       // fp16, else fp32
  Isa isa;                         // what will run
  std::vector<float> table32;      // [out_channels][256]
  std::vector<uint16_t> table16;
  float scale[kPattern], bias[kPattern];  // by element; 0 in padded channels

  Normalizer(const void* table, const double* scales, const double* biases, int32_t channels,
             int32_t out_channels, bool half, Isa wanted);

  int64_t element_bytes() const { return half ? 2 : 4; }

  // Normalises an [h, w, channels] picture into [h, w, out_channels]. `stream` writes around the
  // cache, which pays where the whole batch is larger than it.
  void run(const uint8_t* image, int32_t h, int32_t w, const Finish& finish, bool stream,
           void* out) const;

 private:
  bool take(int32_t channel, float a, float b);
  bool fit(int32_t channel, double scale_of, double bias_of);
  template <typename T>
  void flat(const uint8_t* in, int64_t count, const T* table, bool stream, T* out) const;
  template <typename T>
  void widen(const uint8_t* row, int32_t w, bool flip, const T* table, bool stream,
             T* out) const;
  template <typename T>
  void picture(const uint8_t* image, int32_t h, int32_t w, bool flip, const T* table,
               bool stream, T* out) const;
};

}  // namespace rn::data
