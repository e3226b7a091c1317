// A depthwise convolution with the norm before it and the statistics behind it: one after the other.
#include <cstddef>
#include <vector>

#include "host/run_depthwise.h"
#include "host/run_maps.h"

namespace rn {

void run(const DepthwiseNormForward& op) {
  const ConvShape& s = op.shape;
  const void* x = op.input;
  Index count = s.n * s.h * s.w * s.c;
  std::vector<char> own;
  if (op.norm.mean) {
    void* y = op.activated;
    if (!y) {
      own.resize(static_cast<std::size_t>(count * (op.type == kFloat16 ? 2 : 4)));
      y = own.data();
    }
    BatchNormApply apply{};
    apply.x = x, apply.norm = op.norm, apply.y = y;
    apply.rows = s.n * s.h * s.w, apply.c = s.c, apply.type = op.type;
    apply.activation = op.activation;
    run(apply);
    x = y;
  }
  run(DepthwiseConvForward{x, op.w, op.y, s, op.type});
  run(static_cast<const BatchNormStatistics&>(op));
}

}  // namespace rn
