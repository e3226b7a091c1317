// Dropout: a thread draws one Philox block and decides four neighbouring elements of a row.
#include "device.cuh"

using namespace rn;

__device__ __forceinline__ void draw(uint (&c)[4], ulong64 key) {
  uint low = static_cast<uint>(key), high = static_cast<uint>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    uint high0 = __umulhi(0xD2511F53u, c[0]), low0 = 0xD2511F53u * c[0];
    uint high1 = __umulhi(0xCD9E8D57u, c[2]), low1 = 0xCD9E8D57u * c[2];
    c[0] = high1 ^ c[1] ^ low;
    c[1] = low1;
    c[2] = high0 ^ c[3] ^ high;
    c[3] = low0;
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
}

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
    draw(words, key);
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
