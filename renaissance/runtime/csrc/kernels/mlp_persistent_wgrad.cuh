// Products over the rows of the batch: a 64-feature slab of gradients times a layer's input.
//
// Both operands lie as rows by features, so for the tensor cores K is the strided direction of both
// ("transposed" for wgmma). Each warpgroup takes half of the columns; warps hold 16 x (8 kColumns).
#pragma once

#include "mlp_persistent_chain.cuh"

namespace rn {
namespace mlp {

// Shared memory matrix of 128-byte blocks: distance between neighbours along the features, and along
// the rows (K).
RN_DEVICE Long matrix(Word place, int along_features, int along_rows) {
  return (Long)((place & 0x3ffff) >> 4) | (Long)(along_rows >> 4) << 16 | (Long)(along_features >> 4) << 32;
}

#define RN_D4(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])

template <int kColumns>
struct Wgmma;
#define RN_WGMMA(columns, n, list, operands, a, b)                                                      \
  template <>                                                                                           \
  struct Wgmma<columns> {                                                                               \
    RN_DEVICE static void add(float (&d)[columns][4], Long x, Long y) {                                 \
      asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"                                            \
                   "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.f16.f16 {" list "}, " a ", " b        \
                   ", p, 1, 1, 1, 1;\n}" : operands : "l"(x), "l"(y));                                  \
    }                                                                                                   \
  };
#define RN_LIST7                                                                                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27"
#define RN_COMMA ,
RN_WGMMA(7, "56", RN_LIST7,
         RN_D4(0) RN_COMMA RN_D4(1) RN_COMMA RN_D4(2) RN_COMMA RN_D4(3) RN_COMMA RN_D4(4) RN_COMMA RN_D4(5) RN_COMMA RN_D4(6),
         "%28", "%29")
RN_WGMMA(8, "64", RN_LIST7 ", %28, %29, %30, %31",
         RN_D4(0) RN_COMMA RN_D4(1) RN_COMMA RN_D4(2) RN_COMMA RN_D4(3) RN_COMMA RN_D4(4) RN_COMMA RN_D4(5) RN_COMMA RN_D4(6) RN_COMMA RN_D4(7),
         "%32", "%33")

// Two row groups a step; one is 1,024 bytes of gradient and kInputBytes of input.
template <int kColumns, int kInputBytes>
RN_DEVICE void accumulate(const Context& c, int steps, Word gradient, Word input, float (&sum)[kColumns][4]) {
#if RN_USE_WGMMA
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  const Long a = matrix(gradient, 128, 1024), b = matrix(input, 128, kInputBytes);
#pragma unroll
  for (int s = 0; s < steps; ++s) Wgmma<kColumns>::add(sum, a + s * (2048 >> 4), b + s * (2 * kInputBytes >> 4));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#else
  const int block = c.lane >> 3, odd = block & 1, high = block >> 1, row = (c.lane & 7) * 16;
  const Word at = gradient + high * 1024 + odd * 128 + (c.warp & 3) * 256 + row;
  const Word bt = input + odd * kInputBytes + high * 128 + row;
#pragma unroll 2
  for (int s = 0; s < steps; ++s) {
    Word a[4];
    load_blocks_transposed(a, at + s * 2048);
#pragma unroll
    for (int j = 0; j < kColumns; j += 2) {
      Word b[4];
      if (j + 1 < kColumns)
        load_blocks_transposed(b, bt + s * 2 * kInputBytes + j * 128);
      else
        load_two_transposed(b[0], b[1], bt - high * 128 + s * 2 * kInputBytes + j * 128);
      multiply_add(sum[j], a, b[0], b[1]);
      if (j + 1 < kColumns) multiply_add(sum[j + 1], a, b[2], b[3]);
    }
  }
#endif
}

}  // namespace mlp
}  // namespace rn
