// A batch of samples, transformed and normalised, in one launch: a block prepares one picture, or a
// piece of one. It draws its own random numbers, from the sample's id; so the result does not depend on
// who prepares what.
//
// Constants: RN_CHAIN (augment.cuh); RN_HEIGHT and RN_WIDTH of the results; RN_PADDED, their channels;
// RN_HALF their type; RN_PIECE, pixels of a block; RN_THREADS.
#include "augment.cuh"

using namespace rn;

constexpr bool kIsVector = (RN_PADDED & (RN_PADDED - 1)) == 0 && sizeof(Element) * RN_PADDED <= 16;

extern __shared__ unsigned char shared[];

__device__ __forceinline__ void put(Element* to, const data::Pixel& pixel, bool erased,
                                    const Element* values) {
  Element out[RN_PADDED];
#pragma unroll
  for (int k = 0; k < RN_PADDED; ++k)
    out[k] = k < data::kChannels && !erased ? values[k * 256 + pixel.value[k < data::kChannels ? k : 0]]
                                               : Element(0);
  if constexpr (kIsVector) {
    typedef Vector<Element, kIsVector ? RN_PADDED : 1> Whole;
    Whole whole;
#pragma unroll
    for (int k = 0; k < (kIsVector ? RN_PADDED : 1); ++k) whole.value[k] = out[k];
    *reinterpret_cast<Whole*>(to) = whole;
  } else {
#pragma unroll
    for (int k = 0; k < RN_PADDED; ++k) to[k] = out[k];
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
  data::keep<0>(sample);
  data::Finish left = {false, 0, 0, 0, 0};
  data::finish<0>(drawn, left);
  constexpr int pixels = RN_HEIGHT * RN_WIDTH;
  Element* to = static_cast<Element*>(op.data) + row * Index(pixels) * RN_PADDED;
  const Element* values = static_cast<const Element*>(op.values);
  int first = blockIdx.y * RN_PIECE, end = first + RN_PIECE < pixels ? first + RN_PIECE : pixels;
  for (int p = first + threadIdx.x; p < end; p += RN_THREADS) {
    int y = p / RN_WIDTH, x = p % RN_WIDTH;
    bool erased = static_cast<uint>(y - left.top) < static_cast<uint>(left.height) &&
                  static_cast<uint>(x - left.left) < static_cast<uint>(left.width);
    data::Pixel pixel = data::filled(0);
    if (!erased)
      pixel = data::read<data::kOperations>(sample, y, left.flips ? RN_WIDTH - 1 - x : x);
    put(to + Index(p) * RN_PADDED, pixel, erased, values);
  }
  if (threadIdx.x == 0 && blockIdx.y == 0) op.label[row] = op.labels[id];
}
