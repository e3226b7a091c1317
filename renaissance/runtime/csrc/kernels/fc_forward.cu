// y = activation(x w^T + bias). One block a tile of y; bias and activation in the epilogue.
#include "fc_tile.cuh"

using namespace rn;

typedef FcTile<true, true, RN_C, RN_C> Tile;

static_assert(Tile::kSharedBytes == RN_SHARED_BYTES, "the launch was planned for another tile");

#if RN_Y_HALF
typedef half_bits Output;
#else
typedef float Output;
#endif

extern "C" __global__ void __launch_bounds__(Tile::kThreads) fc_forward_kernel(const FcForward op) {
  extern __shared__ __align__(16) unsigned char shared[];
  int m0 = blockIdx.y * Tile::kTileM, n0 = blockIdx.x * Tile::kTileN;
  Tile tile;
  tile.compute(reinterpret_cast<Element*>(shared), operand(op.x, op.n, RN_C, RN_C),
               operand(op.w, RN_K, RN_C, RN_C), m0, n0);
  Output* y = static_cast<Output*>(op.y);
  Output* z = static_cast<Output*>(op.z);
  tile.each_pair(m0, n0, [&](int n, int k, float first, float second) {
    if (n >= op.n || k >= RN_K) return;
    if (op.bias) {
      first += op.bias[k];
      if (k + 1 < RN_K) second += op.bias[k + 1];
    }
    first = rounded<Output>(first);
    second = rounded<Output>(second);
    Index row = static_cast<Index>(n) * RN_K;
    if (z) store_pair<RN_K>(z + row, k, first, second);
    store_pair<RN_K>(y + row, k, activate(RN_ACTIVATION, first), activate(RN_ACTIVATION, second));
  });
}
