// Products of a whole warpgroup: four warps multiply their rows with filters that are read once for all
// of them. Only Hopper has the instruction; elsewhere kernels keep to products of a warp.
//
// In shared memory the filters are blocks of 8 filters by 8 channels, 128 bytes each.
#pragma once

#include "device.cuh"

namespace rn {

#if RN_WARPGROUPS && (defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(RN_EMULATED))
#define RN_TOGETHER 1
#else
#define RN_TOGETHER 0
#endif
constexpr bool kWarpgroups = RN_TOGETHER;

#if !RN_TOGETHER

__device__ __forceinline__ void publish_to_products() {}

#elif defined(RN_EMULATED)

__device__ __forceinline__ void warpgroup_fence() {}
__device__ __forceinline__ void warpgroup_finish() {}
__device__ __forceinline__ void publish_to_products() {}

template <int kColumns>
__device__ __forceinline__ void warpgroup_add(float (&d)[kColumns][4], const uint (&a)[4],
                                              SharedAddress b, int along_k) {
  int place = threadIdx.x % 32 * 4;
  for (int j = 0; j < kColumns; ++j)
    multiply_add(d[j], a, *reinterpret_cast<const uint*>(b + j * 128 + place),
                 *reinterpret_cast<const uint*>(b + along_k + j * 128 + place));
}

#else

__device__ __forceinline__ void warpgroup_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void warpgroup_finish() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
// What ordinary stores wrote becomes visible to products behind the next barrier.
__device__ __forceinline__ void publish_to_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#define RN_FOUR(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define RN_PRODUCT(columns, n, list, a0, a1, a2, a3, last, ...)                                      \
  __device__ __forceinline__ void warpgroup_multiply(float (&d)[columns][4], const uint (&a)[4],     \
                                                     ulong64 b) {                                    \
    asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"                                         \
                 "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.f16.f16 {" list "}, {" a0 ", " a1     \
                 ", " a2 ", " a3 "}, " last ", p, 1, 1, 0;\n}"                                       \
                 : __VA_ARGS__                                                                       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                              \
  }
#define RN_LIST1 "%0, %1, %2, %3"
#define RN_LIST2 RN_LIST1 ", %4, %5, %6, %7"
#define RN_LIST4 RN_LIST2 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define RN_LIST8                                                                                     \
  RN_LIST4 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
RN_PRODUCT(1, "8", RN_LIST1, "%4", "%5", "%6", "%7", "%8", RN_FOUR(0))
RN_PRODUCT(2, "16", RN_LIST2, "%8", "%9", "%10", "%11", "%12", RN_FOUR(0), RN_FOUR(1))
RN_PRODUCT(4, "32", RN_LIST4, "%16", "%17", "%18", "%19", "%20", RN_FOUR(0), RN_FOUR(1),
           RN_FOUR(2), RN_FOUR(3))
RN_PRODUCT(8, "64", RN_LIST8, "%32", "%33", "%34", "%35", "%36", RN_FOUR(0), RN_FOUR(1), RN_FOUR(2),
           RN_FOUR(3), RN_FOUR(4), RN_FOUR(5), RN_FOUR(6), RN_FOUR(7))

template <int kCount, int kFirst, int kColumns>
__device__ __forceinline__ void warpgroup_part(float (&d)[kColumns][4], const uint (&a)[4],
                                               ulong64 b) {
  warpgroup_multiply(reinterpret_cast<float(&)[kCount][4]>(d[kFirst]), a, b + kFirst * 8);
}

// d += a times 8 kColumns filters of 16 channels at b; the upper 8 channels lie along_k bytes behind.
template <int kColumns>
__device__ __forceinline__ void warpgroup_add(float (&d)[kColumns][4], const uint (&a)[4],
                                              SharedAddress b, int along_k) {
  ulong64 place = static_cast<ulong64>((b & 0x3FFFF) >> 4) | static_cast<ulong64>(along_k >> 4) << 16 |
                  static_cast<ulong64>(128 >> 4) << 32;
#pragma unroll
  for (int j = 0; j + 8 <= kColumns; j += 8)
    warpgroup_multiply(reinterpret_cast<float(&)[8][4]>(d[j]), a, place + j * 8);
  constexpr int kRest = kColumns / 8 * 8;
  if constexpr (kColumns & 4) warpgroup_part<4, kRest>(d, a, place);
  if constexpr (kColumns & 2) warpgroup_part<2, kRest + (kColumns & 4)>(d, a, place);
  if constexpr (kColumns & 1) warpgroup_part<1, kColumns - 1>(d, a, place);
}

#endif

}  // namespace rn
