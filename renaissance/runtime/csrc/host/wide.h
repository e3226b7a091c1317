// Arrays of activations as floats, and back.
#pragma once

#include <vector>

#include "host/half.h"

namespace rn {

template <class T>
std::vector<float> widened(const void* data, Index count) {
  std::vector<float> out(static_cast<size_t>(count));
  const T* in = static_cast<const T*>(data);
  for (Index i = 0; i < count; ++i) out[i] = to_float(in[i]);
  return out;
}

template <class T>
void narrow_into(T* to, const float* from, Index count) {
  for (Index i = 0; i < count; ++i) to[i] = from_float<T>(from[i]);
}

}  // namespace rn
