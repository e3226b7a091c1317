// A batch of samples, transformed and normalised, in one launch: a block prepares one picture, or a
// piece of one. It draws its own random numbers, from the sample's id; so the result does not depend on
// who prepares what.
//
// Constants: RN_CHAIN (augment.cuh); RN_HEIGHT and RN_WIDTH of the results; RN_PADDED, their channels;
// RN_HALF their type; RN_PIECE, pixels of a block; RN_THREADS.
#include "augment.cuh"

using namespace rn;

// Pixels side by side that a thread makes at once and writes as one vector.
constexpr int lanes() {
  for (int count = 8; count > 1; count /= 2)
    if (RN_WIDTH % count == 0 && sizeof(Element) * RN_PADDED * count <= 16) return count;
  return 1;
}

constexpr int kLanes = lanes(), kValues = kLanes * RN_PADDED;
constexpr bool kIsVector = (kValues & (kValues - 1)) == 0 && sizeof(Element) * kValues <= 16;

extern __shared__ unsigned char shared[];

__device__ __forceinline__ void put(Element* to, const Element (&values)[kValues]) {
  constexpr int count = kIsVector ? kValues : 1;
#pragma unroll
  for (int i = 0; i < kValues; i += count) {
    Vector<Element, count> part;
#pragma unroll
    for (int k = 0; k < count; ++k) part.value[k] = values[i + k];
    *reinterpret_cast<Vector<Element, count>*>(to + i) = part;
  }
}

extern "C" __global__ void __launch_bounds__(RN_THREADS)
    augment_batch_kernel(const AugmentBatch op) {
  __shared__ data::Drawn drawn[data::kBlocks + 1];
  Index row = blockIdx.x, batch = op.batch ? *op.batch : 0;
  int id = op.ids[batch * op.rows + row];
  id = id < 0 ? 0 : (id < op.samples ? id : static_cast<int>(op.samples) - 1);
  constexpr Index bytes = Index(data::kHeight) * data::kWidth * data::kChannels;
  data::Sample sample = {op.images + id * bytes, drawn, shared};
  data::draw_all(op, static_cast<uint>(id), drawn);
  __syncthreads();
  data::stage<0>(sample);
  data::Finish left = {false, 0, 0, 0, 0};
  data::finish<0>(drawn, left);
  constexpr int pixels = RN_HEIGHT * RN_WIDTH;
  Element* to = static_cast<Element*>(op.data) + row * Index(pixels) * RN_PADDED;
  const Element* table = static_cast<const Element*>(op.values);
  int first = blockIdx.y * RN_PIECE, end = first + RN_PIECE < pixels ? first + RN_PIECE : pixels;
  for (int p = first + threadIdx.x * kLanes; p < end; p += RN_THREADS * kLanes) {
    int y = p / RN_WIDTH, x0 = p % RN_WIDTH;
    bool crosses = static_cast<uint>(y - left.top) < static_cast<uint>(left.height);
    Element values[kValues];
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      int x = x0 + lane;
      bool erased = crosses && static_cast<uint>(x - left.left) < static_cast<uint>(left.width);
      data::Pixel pixel = data::filled(0);
      if (!erased)
        pixel = data::read<data::kOperations>(sample, y, left.flips ? RN_WIDTH - 1 - x : x);
#pragma unroll
      for (int k = 0; k < RN_PADDED; ++k)
        values[lane * RN_PADDED + k] =
            k < data::kChannels && !erased
                ? table[k * 256 + pixel.value[k < data::kChannels ? k : 0]]
                : Element(0);
    }
    put(to + Index(p) * RN_PADDED, values);
  }
  if (threadIdx.x == 0 && blockIdx.y == 0) op.label[row] = op.labels[id];
}
