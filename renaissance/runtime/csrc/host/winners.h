// Where the gradient of a max-pool goes.
#pragma once

#include <vector>

#include "host/half.h"
#include "map_operations.h"

namespace rn {

// The gradient that reaches the map in front of a max-pool: dy of all windows it wins.
template <class T>
std::vector<float> spread_to_winners(const void* dy, const void* argmax, int argmax_bytes,
                              const PoolShape& s) {
  const T* d = static_cast<const T*>(dy);
  std::vector<float> dx(static_cast<size_t>(s.n * s.h * s.w * s.c));
  for (Index i = 0; i < s.n * s.p * s.q * s.c; ++i) {
    Index c = i % s.c, q = i / s.c % s.q, p = i / s.c / s.q % s.p, n = i / s.c / s.q / s.p;
    int place = argmax_bytes == 1 ? static_cast<const uint8_t*>(argmax)[i]
                                  : static_cast<const int32_t*>(argmax)[i];
    Index h = p * s.stride - s.pad + place / s.kernel, w = q * s.stride - s.pad + place % s.kernel;
    dx[((n * s.h + h) * s.w + w) * s.c + c] += to_float(d[i]);
  }
  return dx;
}

}  // namespace rn
