// How the records of the operations on pointwise convolutions are read from a call.
#pragma once

#include "ffi/decode_maps.h"
#include "pointwise_backward.h"

namespace rn {

template <>
inline PointwiseBackwardData decode(Call& call) {
  const void *dy = call.pointer(), *w = call.pointer();
  BatchNormBackward norm = decode<BatchNormBackward>(call);
  return {norm, dy, w, call.integer("k")};
}

template <>
inline PointwiseBackward decode(Call& call) {
  PointwiseBackward op{};
  static_cast<PointwiseBackwardData&>(op) = decode<PointwiseBackwardData>(call);
  op.dw = call.pointer();
  op.weight_partial = call.pointer<float>();
  op.width = call.integer("width");
  return op;
}

}  // namespace rn
