// Global average pool: a block to an image and a tile of its channels; backward spreads.
#include "map.cuh"

using namespace rn;

#if RN_Y_HALF
typedef half_bits Output;
#else
typedef float Output;
#endif

extern "C" __global__ void __launch_bounds__(256)
    global_average_pool_forward_kernel(const GlobalAveragePoolForward op) {
  __shared__ float lanes[kRowLanes][kTile * kWidth];
  Reduction block;
  Floats sum;
  zero(sum);
  if (block.active)
#pragma unroll 4
    for (Index pixel = block.lane; pixel < op.pixels; pixel += kRowLanes) {
      Floats x;
      load(x, op.x, blockIdx.x * op.pixels + pixel, block.column);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum[j] += x[j];
    }
  if (block.lane < kRowLanes)
#pragma unroll
    for (int j = 0; j < kWidth; ++j) lanes[block.lane][block.slot * kWidth + j] = sum[j];
  __syncthreads();
  for (int i = threadIdx.x; i < kTile * kWidth; i += kThreads) {
    int c = blockIdx.y * kTile * kWidth + i;
    if (c >= RN_C) continue;
    float total = 0.0f;
    for (int l = 0; l < kRowLanes; ++l) total += lanes[l][i];
    static_cast<Output*>(op.y)[static_cast<Index>(blockIdx.x) * RN_C + c] =
        narrow<Output>(total / static_cast<float>(op.pixels));
  }
}

extern "C" __global__ void __launch_bounds__(256)
    global_average_pool_backward_kernel(const GlobalAveragePoolBackward op) {
  Reduction block;
  if (!block.active) return;
  float pixels = static_cast<float>(op.pixels);
  Floats d;
  load(d, op.dy, blockIdx.x, block.column);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) d[j] /= pixels;
#pragma unroll 4
  for (Index pixel = block.lane; pixel < op.pixels; pixel += kRowLanes)
    store(op.dx, blockIdx.x * op.pixels + pixel, block.column, d);
}
