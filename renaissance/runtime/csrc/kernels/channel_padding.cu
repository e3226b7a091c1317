// y takes the channels of x; further ones are zero. A thread to a pack of y.
#include "device.cuh"
#include "map_operations.h"

using namespace rn;

typedef Vector<Element, RN_WIDTH> Pack;
constexpr int kColumns = RN_Y_CHANNELS / RN_WIDTH;

extern "C" __global__ void __launch_bounds__(256) channel_padding_kernel(const ChannelPadding op) {
  const Element* x = static_cast<const Element*>(op.x);
  Element* y = static_cast<Element*>(op.y);
  for (Index i = thread_index(); i < op.pixels * kColumns; i += thread_count()) {
    Index pixel = i / kColumns;
    int c = static_cast<int>(i % kColumns) * RN_WIDTH;
    Pack pack;
#pragma unroll
    for (int j = 0; j < RN_WIDTH; ++j)
      pack.value[j] = c + j < RN_X_CHANNELS ? x[pixel * RN_X_CHANNELS + c + j] : Element{0};
    *reinterpret_cast<Pack*>(y + pixel * RN_Y_CHANNELS + c) = pack;
  }
}
