// Products over the rows of the batch: a 64-feature slab of gradients times a layer's input.
//
// Both operands lie as rows by features, so K is the strided direction of both. Each warpgroup takes
// half of the columns; a warp holds 16 x (8 kColumns).
#pragma once

#include "mlp_persistent_chain.cuh"
#include "mlp_persistent_wgmma.cuh"

namespace rn {
namespace mlp {

// Two row groups a step; one is 1,024 bytes of gradient and kInputBytes of input.
template <int kColumns, int kInputBytes>
RN_DEVICE void accumulate(int steps, Word gradient, Word input, float (&sum)[kColumns][4]) {
  const Long a = matrix(gradient, 128, 1024), b = matrix(input, 128, kInputBytes);
  wgmma_fence();
#pragma unroll
  for (int s = 0; s < steps; ++s)
    Wgmma<kColumns, 1, 1>::add(sum, a + s * (2048 >> 4), b + s * (2 * kInputBytes >> 4));
  wgmma_commit();
  wgmma_wait<0>();
}

}  // namespace mlp
}  // namespace rn
