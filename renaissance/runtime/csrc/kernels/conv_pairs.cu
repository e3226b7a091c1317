// Filters of four channels for a convolution that sees columns of x in pairs, and their gradient back.
//
// NHWC pairs of columns lie together, so (h, w, 4) read as (h, w / 2, 8) costs nothing, and libraries
// have matrix instructions for eight channels. With stride 2 every output begins at a pair; the filter
// then covers RN_LEFT pairs before it, that one, and as many behind. A row of taps stays as it is,
// with zeros around it.
#include "device.cuh"
#include "map_operations.h"

using namespace rn;

constexpr int kRow = 4 * RN_S, kPackedRow = 8 * (2 * RN_LEFT + 1);
constexpr int kBegin = 4 * (2 * RN_LEFT - RN_PAD);
static_assert(kBegin >= 0 && kBegin + kRow <= kPackedRow, "the taps lie inside the pairs");

extern "C" __global__ void __launch_bounds__(256) pack_filters_kernel(const ConvForward op) {
  const half_bits* w = static_cast<const half_bits*>(op.w);
  half_bits* packed = static_cast<half_bits*>(op.workspace);
  int count = static_cast<int>(op.shape.k) * op.shape.r * kPackedRow;
  for (Index i = thread_index(); i < count; i += thread_count()) {
    int row = static_cast<int>(i) / kPackedRow, at = static_cast<int>(i) % kPackedRow - kBegin;
    packed[i] = at >= 0 && at < kRow ? w[row * kRow + at] : half_bits(0);
  }
}

extern "C" __global__ void __launch_bounds__(256)
    unpack_filter_gradient_kernel(const ConvBackwardWeight op) {
  const half_bits* packed = static_cast<const half_bits*>(op.workspace);
  half_bits* dw = static_cast<half_bits*>(op.dw);
  int count = static_cast<int>(op.shape.k) * op.shape.r * kRow;
  for (Index i = thread_index(); i < count; i += thread_count()) {
    int row = static_cast<int>(i) / kRow, at = static_cast<int>(i) % kRow;
    dw[i] = packed[row * kPackedRow + kBegin + at];
  }
}
