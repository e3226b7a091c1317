// dx = dy w / pixels, spread over the pixels: a block to eight images and 256 channels, so that a
// weight is read once for eight images and the pooled gradient is never stored.
#include "device.cuh"
#include "map_operations.h"

using namespace rn;

constexpr int kImages = 8, kChunk = 64;

extern "C" __global__ void __launch_bounds__(256)
    gap_fc_backward_data_kernel(const GapFcBackwardData op) {
  __shared__ float dy[kImages][kChunk];
  const Element* given = static_cast<const Element*>(op.dy);
  const Element* w = static_cast<const Element*>(op.w);
  Element* dx = static_cast<Element*>(op.dx);
  Index n0 = static_cast<Index>(blockIdx.x) * kImages;
  int c = blockIdx.y * 256 + threadIdx.x;
  float sum[kImages] = {};
  for (int k0 = 0; k0 < RN_K; k0 += kChunk) {
    __syncthreads();
    for (int i = threadIdx.x; i < kImages * kChunk; i += 256) {
      Index n = n0 + i / kChunk;
      int k = k0 + i % kChunk;
      dy[i / kChunk][i % kChunk] = n < op.n && k < RN_K ? widen(given[n * RN_K + k]) : 0.0f;
    }
    __syncthreads();
    int last = RN_K - k0 < kChunk ? RN_K - k0 : kChunk;
    for (int k = 0; c < RN_C && k < last; ++k) {
      float weight = widen(w[static_cast<Index>(k0 + k) * RN_C + c]);
#pragma unroll
      for (int j = 0; j < kImages; ++j) sum[j] += dy[j][k] * weight;
    }
  }
  if (c >= RN_C) return;
  for (int j = 0; j < kImages && n0 + j < op.n; ++j) {
    Element value = narrow<Element>(sum[j] / static_cast<float>(op.pixels));
    for (Index pixel = 0; pixel < op.pixels; ++pixel)
      dx[((n0 + j) * op.pixels + pixel) * RN_C + c] = value;
  }
}
