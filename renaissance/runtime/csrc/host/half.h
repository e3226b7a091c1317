// IEEE half precision as bits, converted with round to nearest even on any processor.
#pragma once

#include <cstdint>
#include <cstring>

#include "operations.h"

namespace rn {

struct half {
  uint16_t bits;
};

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline float to_float(float value) { return value; }

inline float to_float(half value) {
  uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  uint32_t rest = value.bits & 0x7FFFu;
  if (rest >= 0x7C00u) return float_of(sign | 0x7F800000u | ((rest & 0x3FFu) << 13));
  if (rest < 0x400u) {  // subnormal: a multiple of 2^-24
    float magnitude = static_cast<float>(rest) * 0x1p-24f;
    return float_of(sign | bits_of(magnitude));
  }
  return float_of(sign | ((rest << 13) + 0x38000000u));
}

inline half to_half(float value) {
  uint32_t bits = bits_of(value), sign = (bits >> 16) & 0x8000u, rest = bits & 0x7FFFFFFFu;
  if (rest > 0x7F800000u) return {static_cast<uint16_t>(sign | 0x7E00u)};
  if (rest >= 0x477FF000u) return {static_cast<uint16_t>(sign | 0x7C00u)};
  if (rest < 0x38800000u) {  // the sum rounds the value to a multiple of 2^-24
    uint32_t rounded = bits_of(float_of(rest) + 0.5f) - bits_of(0.5f);
    return {static_cast<uint16_t>(sign | rounded)};
  }
  rest += 0xFFFu + ((rest >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rest - 0x38000000u) >> 13))};
}

template <class T>
T from_float(float value);
template <>
inline float from_float<float>(float value) { return value; }
template <>
inline half from_float<half>(float value) { return to_half(value); }

// Calls function(T{}) with the C++ type that a run-time type stands for.
template <class Function>
void with_type(int type, Function function) {
  if (type == kFloat16) function(half{});
  else function(float{});
}

}  // namespace rn
