// A 1x1 convolution joined with its neighbours: on the host simply one after the other.
#include <vector>

#include "host/half.h"
#include "host/run_pointwise.h"

namespace rn {

void run(const PointwiseForward& op) {
  bool joined = op.apply.norm.mean != nullptr;
  const BatchNormStatistics& s = op.statistics;
  BatchNormApply apply = op.apply;
  std::vector<half> activated(joined && !apply.y ? static_cast<size_t>(apply.rows * apply.c) : 0);
  if (!activated.empty()) apply.y = activated.data();
  if (joined) run(apply);
  ConvShape shape{1, 1, s.rows, op.apply.c, s.c, 1, s.rows, 1, 1, 1, 0, 1};
  const void* x = joined ? apply.y : op.apply.x;
  ConvForward conv{x, op.w, const_cast<void*>(s.x), nullptr, shape, 0, s.type, s.type};
  run(ConvForwardStatistics{conv, s});
}

}  // namespace rn
