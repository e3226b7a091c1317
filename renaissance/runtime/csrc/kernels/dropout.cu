// Dropout: a thread draws one Philox block and decides four neighbouring elements of a row.
#include "device.cuh"
#include "philox.cuh"

using namespace rn;

// Kept elements grow by 1 / (1 - p), rounded from double as on the host.
__device__ __forceinline__ float scale_of(float p) {
  return static_cast<float>(1.0 / (1.0 - static_cast<double>(p)));
}

extern "C" __global__ void __launch_bounds__(256) dropout_forward_kernel(const DropoutForward op) {
  const Element* x = static_cast<const Element*>(op.x);
  Element* y = static_cast<Element*>(op.y);
  ulong64 key = static_cast<uint>(op.seed[0]) |
                static_cast<ulong64>(static_cast<uint>(op.seed[1])) << 32;
  uint step = static_cast<uint>(*op.applied_steps + *op.skipped_steps);
  float scale = scale_of(op.p);
  Index quads = (op.elements + 3) / 4;
  for (Index q = thread_index(); q < op.rows * quads; q += thread_count()) {
    Index row = q / quads, first = q % quads * 4;
    uint words[4] = {static_cast<uint>(first / 4), static_cast<uint>(row),
                     static_cast<uint>(op.layer), step};
    philox(words, key);
    for (int lane = 0; lane < 4 && first + lane < op.elements; ++lane) {
      Index i = row * op.elements + first + lane;
      bool keep = static_cast<float>(words[lane] >> 8) * 0x1p-24f >= op.p;
      if (op.mask) op.mask[i] = keep ? 1 : 0;
      y[i] = narrow<Element>(keep ? widen(x[i]) * scale : 0.0f);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256)
    dropout_backward_kernel(const DropoutBackward op) {
  const Element* dy = static_cast<const Element*>(op.dy);
  Element* dx = static_cast<Element*>(op.dx);
  float scale = scale_of(op.p);
  for (Index i = thread_index(); i < op.count; i += thread_count())
    dx[i] = narrow<Element>(op.mask[i] ? widen(dy[i]) * scale : 0.0f);
}
