// The host twins of the operations on pointwise convolutions: one after the other, what they join.
#pragma once

#include <vector>

#include "host/half.h"
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

inline void run(const PointwiseBackward& op) {
  const BatchNormBackward& norm = op.norm;
  std::vector<half> a(static_cast<size_t>(norm.rows * norm.c));
  BatchNormApply apply{norm.x, norm.norm, nullptr, {}, a.data(), nullptr, nullptr, norm.rows, norm.c,
                       norm.type, norm.activation};
  run(apply);
  Index lines = norm.rows / op.width;  // summed one by one, as in the separate call
  ConvShape shape{lines, 1, op.width, norm.c, op.k, 1, op.width, 1, 1, 1, 0, 1};
  run(ConvBackwardWeight{a.data(), op.dy, op.dw, nullptr, shape, 0, norm.type});
  run(static_cast<const PointwiseBackwardData&>(op));
}

}  // namespace rn
