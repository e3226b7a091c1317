// The warpgroup matrix product, for the shapes the persistent MLP kernel uses. Operands are 8x8 blocks
// of 128 bytes in shared memory, without swizzle: every block is read without bank conflicts.
#pragma once

#include "mlp_persistent_device.cuh"

namespace rn {
namespace mlp {

// Shared memory matrix of 128-byte blocks: distance between neighbours along M or N, and along K.
RN_DEVICE Long matrix(Word place, int outer, int k) {
  return (Long)((place & 0x3ffff) >> 4) | (Long)(k >> 4) << 16 | (Long)(outer >> 4) << 32;
}
RN_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
RN_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kLeft>
RN_DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory"); }

#define RN_D4(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])

// d (64 x 8 kColumns) += a b; the flags say which operand has M or N contiguous instead of K.
template <int kColumns, int kTurnA, int kTurnB>
struct Wgmma;
#define RN_WGMMA(columns, n, ta, tb, list, operands, a, b)                                                      \
  template <>                                                                                           \
  struct Wgmma<columns, ta, tb> {                                                                               \
    RN_DEVICE static void add(float (&d)[columns][4], Long x, Long y) {                                 \
      asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"                                            \
                   "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.f16.f16 {" list "}, " a ", " b        \
                   ", p, 1, 1, " #ta ", " #tb ";\n}" : operands : "l"(x), "l"(y));                                  \
    }                                                                                                   \
  };
#define RN_LIST2 "%0, %1, %2, %3, %4, %5, %6, %7"
#define RN_LIST4 RN_LIST2 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define RN_LIST7                                                                                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27"
#define RN_COMMA ,
RN_WGMMA(7, "56", 1, 1, RN_LIST7,
         RN_D4(0) RN_COMMA RN_D4(1) RN_COMMA RN_D4(2) RN_COMMA RN_D4(3) RN_COMMA RN_D4(4) RN_COMMA RN_D4(5) RN_COMMA RN_D4(6),
         "%28", "%29")
RN_WGMMA(8, "64", 1, 1, RN_LIST7 ", %28, %29, %30, %31",
         RN_D4(0) RN_COMMA RN_D4(1) RN_COMMA RN_D4(2) RN_COMMA RN_D4(3) RN_COMMA RN_D4(4) RN_COMMA RN_D4(5) RN_COMMA RN_D4(6) RN_COMMA RN_D4(7),
         "%32", "%33")

#define RN_NARROW(ta, tb)                                                                                 \
  RN_WGMMA(2, "16", ta, tb, RN_LIST2, RN_D4(0) RN_COMMA RN_D4(1), "%8", "%9")                             \
  RN_WGMMA(4, "32", ta, tb, RN_LIST4, RN_D4(0) RN_COMMA RN_D4(1) RN_COMMA RN_D4(2) RN_COMMA RN_D4(3), "%16", "%17")
RN_NARROW(0, 0)
RN_NARROW(1, 0)

}  // namespace mlp
}  // namespace rn
