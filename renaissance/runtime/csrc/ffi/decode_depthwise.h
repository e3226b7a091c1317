// How the records of a depthwise convolution with its neighbours are read from a call.
#pragma once

#include "depthwise_operations.h"
#include "ffi/decode_maps.h"

namespace rn {

template <>
inline DepthwiseNormForward decode(Call& call) {
  DepthwiseNormForward op{};
  op.input = call.pointer();
  op.norm = norm(call);
  op.activated = call.pointer();
  op.w = call.pointer();
  op.y = call.pointer();
  op.shape = conv_shape(call);
  op.activation = small(call, "activation");
  const ConvShape& s = op.shape;
  static_cast<BatchNormStatistics&>(op) = {
      op.y, call.pointer<float>(), call.pointer<float>(), call.pointer<float>(),
      call.pointer<float>(), call.pointer<float>(), call.pointer<float>(), call.pointer<float>(),
      s.n * s.p * s.q, s.k, call.integer("partial_rows"), call.real("momentum"),
      call.real("eps"), small(call, "type")};
  return op;
}

}  // namespace rn
