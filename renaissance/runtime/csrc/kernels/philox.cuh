// Philox4x32-10 on the device; host/philox.h is its twin.
#pragma once

#include "primitives.cuh"

namespace rn {

// Four random words in place of a counter.
__device__ __forceinline__ void philox(uint (&c)[4], ulong64 key) {
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

}  // namespace rn
