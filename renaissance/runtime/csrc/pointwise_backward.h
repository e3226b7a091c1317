// Convolutions of one tap and stride 1 are matrix products over pixels; here with what reads their result.
#pragma once

#include "map_operations.h"

namespace rn {

// ConvBackwardData of such a convolution, dy (rows, k) times w (k, c), into norm.dy, then norm. The
// kernels leave dz in place of the product. Where norm.dshortcut is dz, that is the place, and norm.dy is
// null. The norm comes first, because the kernels behind the product read it alone.
struct PointwiseBackwardData {
  BatchNormBackward norm;
  const void* dy;
  const void* w;
  Index k;
};

// PointwiseBackwardData of a norm without gate, addend and shortcut, and with it the gradient dw (k, c)
// of the filters: the convolution's input is the norm's activated output, so it is made again where the
// norm needs it and never read. weight_partial holds norm.partial_rows rows of k c sums; width is that of the map, by whose
// lines the host sums.
struct PointwiseBackward : PointwiseBackwardData {
  void* dw;
  float* weight_partial;
  Index width;
};

}  // namespace rn
