// y = activation(a + b), eight elements at a time. RN_Z: the sum is kept too.
#include "device.cuh"
#include "map_operations.h"

using namespace rn;

constexpr int kLanes = 16 / sizeof(Element);
typedef Vector<Element, kLanes> Pack;

extern "C" __global__ void __launch_bounds__(256) add_forward_kernel(const AddForward op) {
  const Element* a = static_cast<const Element*>(op.a);
  const Element* b = static_cast<const Element*>(op.b);
  Element* y = static_cast<Element*>(op.y);
  Element* z = static_cast<Element*>(op.z);
  for (Index i = thread_index() * kLanes; i < op.count; i += thread_count() * kLanes) {
    if (i + kLanes <= op.count) {
      Pack left = *reinterpret_cast<const Pack*>(a + i);
      Pack right = *reinterpret_cast<const Pack*>(b + i), out;
#pragma unroll
      for (int j = 0; j < kLanes; ++j)
        left.value[j] = narrow<Element>(widen(left.value[j]) + widen(right.value[j]));
#pragma unroll
      for (int j = 0; j < kLanes; ++j)
        out.value[j] = narrow<Element>(activate(RN_ACTIVATION, widen(left.value[j])));
      if (RN_Z) *reinterpret_cast<Pack*>(z + i) = left;
      *reinterpret_cast<Pack*>(y + i) = out;
    } else {
      for (Index j = i; j < op.count; ++j) {
        Element sum = narrow<Element>(widen(a[j]) + widen(b[j]));
        if (RN_Z) z[j] = sum;
        y[j] = narrow<Element>(activate(RN_ACTIVATION, widen(sum)));
      }
    }
  }
}
