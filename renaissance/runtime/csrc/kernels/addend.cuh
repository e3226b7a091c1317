// The other gradient of a map that two layers read. RN_ADDEND: 0 there is none, 1 it is a map like the
// first, else it comes from a convolution of one tap and so many strides: zero but on every so many-th
// row and column of the RN_ADDEND_H by RN_ADDEND_W map, and only those pixels are stored.
#pragma once

#include "map.cuh"

namespace rn {

// Where the addend of a pixel is stored; negative where it is zero.
__device__ __forceinline__ Index addend_pixel(Index pixel) {
#if RN_ADDEND > 1
  constexpr uint kRows = (RN_ADDEND_H - 1) / RN_ADDEND + 1, kRow = (RN_ADDEND_W - 1) / RN_ADDEND + 1;
  uint line = static_cast<uint>(pixel) / RN_ADDEND_W, x = static_cast<uint>(pixel) % RN_ADDEND_W;
  uint image = line / RN_ADDEND_H, y = line % RN_ADDEND_H;
  if (x % RN_ADDEND || y % RN_ADDEND) return -1;
  return static_cast<Index>(image * kRows + y / RN_ADDEND) * kRow + x / RN_ADDEND;
#else
  return pixel;
#endif
}

}  // namespace rn
