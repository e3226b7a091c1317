// Activations and their derivatives, element by element, eight at a time.
#include "device.cuh"

using namespace rn;

constexpr int kLanes = 16 / sizeof(Element);
typedef Vector<Element, kLanes> Pack;

extern "C" __global__ void __launch_bounds__(256)
    activation_forward_kernel(const ActivationForward op) {
  const Element* x = static_cast<const Element*>(op.x);
  Element* y = static_cast<Element*>(op.y);
  for (Index i = thread_index() * kLanes; i < op.count; i += thread_count() * kLanes) {
    if (i + kLanes <= op.count) {
      Pack in = *reinterpret_cast<const Pack*>(x + i), out;
#pragma unroll
      for (int j = 0; j < kLanes; ++j)
        out.value[j] = narrow<Element>(activate(RN_ACTIVATION, widen(in.value[j])));
      *reinterpret_cast<Pack*>(y + i) = out;
    } else {
      for (Index j = i; j < op.count; ++j)
        y[j] = narrow<Element>(activate(RN_ACTIVATION, widen(x[j])));
    }
  }
}

__device__ __forceinline__ Element backward_of(Element dy, Element gate) {
  return narrow<Element>(widen(dy) * activation_slope(RN_ACTIVATION, widen(gate)));
}

extern "C" __global__ void __launch_bounds__(256)
    activation_backward_kernel(const ActivationBackward op) {
  const Element* dy = static_cast<const Element*>(op.dy);
  const Element* gate = static_cast<const Element*>(op.gate);
  Element* dx = static_cast<Element*>(op.dx);
  for (Index i = thread_index() * kLanes; i < op.count; i += thread_count() * kLanes) {
    if (i + kLanes <= op.count) {
      Pack in = *reinterpret_cast<const Pack*>(dy + i), out;
      Pack by = *reinterpret_cast<const Pack*>(gate + i);
#pragma unroll
      for (int j = 0; j < kLanes; ++j) out.value[j] = backward_of(in.value[j], by.value[j]);
      *reinterpret_cast<Pack*>(dx + i) = out;
    } else {
      for (Index j = i; j < op.count; ++j) dx[j] = backward_of(dy[j], gate[j]);
    }
  }
}
