// dx = dy w / pixels, spread over the pixels: a block multiplies a tile of images and channels, leaves it
// in shared memory, and writes it once for every pixel; the pooled gradient is never stored.
#include "fc_tile.cuh"
#include "map_operations.h"

using namespace rn;

typedef FcTile<true, false, RN_K, RN_C> Tile;
typedef Vector<Element, RN_WIDTH> Pack;

constexpr int kTileM = Tile::kTileM, kTileN = Tile::kTileN, kThreads = Tile::kThreads;
constexpr int kPitch = kTileN + 16 / sizeof(Element), kPacks = kTileN / RN_WIDTH;
static_assert(RN_SHARED_BYTES >= Tile::kSharedBytes &&
                  RN_SHARED_BYTES >= kTileM * kPitch * sizeof(Element),
              "the launch was planned for another tile");

extern "C" __global__ void __launch_bounds__(kThreads)
    gap_fc_backward_data_kernel(const GapFcBackwardData op) {
  extern __shared__ __align__(16) unsigned char shared[];
  Element* values = reinterpret_cast<Element*>(shared);
  int n0 = blockIdx.x * kTileM, c0 = blockIdx.y * kTileN;
  float pixels = static_cast<float>(op.pixels);
  Tile tile;
  tile.compute(values, operand(op.dy, op.n, RN_K, RN_K), operand(op.w, RN_C, RN_K, RN_C), n0, c0);
  __syncthreads();
  tile.each_pair(0, 0, [&](int n, int c, float first, float second) {
    values[n * kPitch + c] = narrow<Element>(first / pixels);
    values[n * kPitch + c + 1] = narrow<Element>(second / pixels);
  });
  __syncthreads();
  for (int i = threadIdx.x; i < kTileM * kPacks; i += kThreads) {
    int n = i / kPacks, c = i % kPacks * RN_WIDTH;
    if (n0 + n >= op.n || c0 + c >= RN_C) continue;
    Pack pack = *reinterpret_cast<const Pack*>(values + n * kPitch + c);
    Element* to = static_cast<Element*>(op.dx) + (n0 + n) * op.pixels * RN_C + c0 + c;
#pragma unroll 4
    for (Index pixel = 0; pixel < op.pixels; ++pixel)
      *reinterpret_cast<Pack*>(to + pixel * RN_C) = pack;
  }
}
