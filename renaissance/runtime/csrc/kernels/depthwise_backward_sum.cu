// The sum of the pieces that kernels/depthwise_backward.cu leaves of the weights' gradient, in order.
#include "map.cuh"

using namespace rn;

constexpr int kTaps = RN_R * RN_S;

extern "C" __global__ void __launch_bounds__(1024)
    depthwise_conv_backward_sum_kernel(const DepthwiseConvBackward op) {
  int i = blockIdx.x * 32 + threadIdx.x % 32;
  bool inside = i < kTaps * RN_C;
  double sum = column_sum(op.partial, op.partial_rows, kTaps * RN_C, i, inside);
  if (threadIdx.x >= 32 || !inside) return;
  static_cast<Element*>(op.dw)[i % RN_C * kTaps + i / RN_C] =
      narrow<Element>(static_cast<float>(sum));
}
