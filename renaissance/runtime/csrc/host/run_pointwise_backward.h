// The host twins of the operations on pointwise convolutions: one after the other, what they join.
#pragma once

#include "host/run_maps.h"
#include "pointwise_backward.h"

namespace rn {

inline void run(const PointwiseBackwardData& op) {
  BatchNormBackward norm = op.norm;
  if (!norm.dy) norm.dy = norm.dshortcut;
  ConvShape shape{1, norm.rows, 1, norm.c, op.k, norm.rows, 1, 1, 1, 1, 0, 1};
  void* product = const_cast<void*>(norm.dy);
  run(ConvBackwardData{op.dy, op.w, product, nullptr, shape, 0, norm.type});
  if (!norm.dshortcut && !norm.shortcut_norm.mean) norm.dshortcut = product;  // dz takes its place
  run(norm);
}

}  // namespace rn
