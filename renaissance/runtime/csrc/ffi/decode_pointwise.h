// How the record of a joined 1x1 convolution is read from a call.
#pragma once

#include "ffi/decode_maps.h"
#include "pointwise_operations.h"

namespace rn {

template <>
inline PointwiseForward decode(Call& call) {
  BatchNormApply apply{};
  apply.x = call.pointer();
  apply.norm = norm(call);
  apply.shortcut = call.pointer();
  apply.shortcut_norm = norm(call);
  apply.y = call.pointer();
  const void* w = call.pointer();
  BatchNormStatistics statistics{call.pointer(), call.pointer<float>(), call.pointer<float>(),
                                 call.pointer<float>(), call.pointer<float>(),
                                 call.pointer<float>(), call.pointer<float>(),
                                 call.pointer<float>(), call.integer("rows"), call.integer("k"),
                                 call.integer("partial_rows"), call.real("momentum"),
                                 call.real("eps"), small(call, "type")};
  apply.mask = call.pointer();
  apply.rows = statistics.rows, apply.c = call.integer("c");
  apply.type = statistics.type, apply.activation = small(call, "activation");
  return {statistics, apply, w};
}

}  // namespace rn
