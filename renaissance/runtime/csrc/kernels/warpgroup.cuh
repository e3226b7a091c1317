// Matrix products by a warpgroup (wgmma) of operands in shared memory that are not swizzled: blocks of
// 8 x 8 halves, 128 bytes each, that may begin at any 16 bytes. Where RN_EMULATED, a thread finds its
// sums by itself.
#pragma once

#include "device.cuh"

namespace rn {

#ifndef RN_EMULATED

typedef ulong64 Matrix;

// `outer` bytes from a block to the next along M or N, `depth` along K.
__device__ __forceinline__ Matrix matrix(SharedAddress place, int outer, int depth) {
  return static_cast<ulong64>((place & 0x3FFFFu) >> 4) | static_cast<ulong64>(depth >> 4) << 16 |
         static_cast<ulong64>(outer >> 4) << 32;
}

// The matrix that begins so many bytes further on.
__device__ __forceinline__ Matrix ahead(Matrix m, int bytes) { return m + (bytes >> 4); }

// The compiler no longer knows where the value comes from, so nothing made of it is kept in registers
// from one round of a loop to the next.
__device__ __forceinline__ void forget(ulong64& value) { asm volatile("" : "+l"(value)::"memory"); }
__device__ __forceinline__ void forget(SharedAddress& value) { asm volatile("" : "+r"(value)::"memory"); }
template <class T>
__device__ __forceinline__ void forget(T*& value) {
  asm volatile("" : "+l"(value)::"memory");
}

// Zero, put there before the products that follow begin.
__device__ __forceinline__ void set_zero(float& sum) { asm volatile("mov.f32 %0, 0f00000000;" : "=f"(sum)); }

// A copy that the compiler takes for another value, and zero in the place of a sum; `nothing` is zero.
__device__ __forceinline__ float moved(float value, uint nothing) {
  float copy;
  asm volatile("or.b32 %0, %1, %2;" : "=f"(copy) : "f"(value), "r"(nothing));
  return copy;
}
__device__ __forceinline__ void cleared(float& sum, uint nothing) {
  asm volatile("and.b32 %0, %0, %1;" : "+f"(sum) : "r"(nothing));
}

// Two sums as halves, before their places are used again.
__device__ __forceinline__ uint pack_now(float low, float high) {
  uint pair;
  asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// What a whole warp agrees on.
__device__ __forceinline__ int uniform(int value) { return __shfl_sync(0xFFFFFFFFu, value, 0); }

// What copies wrote becomes visible to the matrix unit.
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A barrier of the warpgroup; barrier 0 is the block's.
__device__ __forceinline__ void group_barrier(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

#define RN_FOUR(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define RN_SIXTEEN(d, i) RN_FOUR(d, i), RN_FOUR(d, i + 4), RN_FOUR(d, i + 8), RN_FOUR(d, i + 12)
#define RN_ALL(d) RN_SIXTEEN(d, 0), RN_SIXTEEN(d, 16)
#define RN_LIST32                                                                                   \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,"  \
  "%26,%27,%28,%29,%30,%31"
#define RN_LIST64                                                                                   \
  RN_LIST32                                                                                         \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,"    \
  "%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define RN_LIST96                                                                                   \
  RN_LIST64                                                                                         \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,"    \
  "%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define RN_MULTIPLY(n, list, a, b, t, ...)                                                           \
  asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"                                           \
               "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.f16.f16 {" list "}, " a ", " b        \
               ", p, 1, 1, 0, " t ";\n}"                                                            \
               : __VA_ARGS__                                                                        \
               : "l"(left), "l"(right), "n"(kTurned))

// Adds left (64 x 16) right (16 x 64 for each of the sums); kTurned: N is what lies together in right.
template <int kTurned>
__device__ __forceinline__ void multiply(float (&a)[32], Matrix left, Matrix right) {
  RN_MULTIPLY("64", RN_LIST32, "%32", "%33", "%34", RN_ALL(a));
}
template <int kTurned>
__device__ __forceinline__ void multiply(float (&a)[32], float (&b)[32], Matrix left, Matrix right) {
  RN_MULTIPLY("128", RN_LIST64, "%64", "%65", "%66", RN_ALL(a), RN_ALL(b));
}
template <int kTurned>
__device__ __forceinline__ void multiply(float (&a)[32], float (&b)[32], float (&c)[32], Matrix left,
                                         Matrix right) {
  RN_MULTIPLY("192", RN_LIST96, "%96", "%97", "%98", RN_ALL(a), RN_ALL(b), RN_ALL(c));
}

#else

struct Matrix {
  SharedAddress place;
  int outer, depth;
};

inline Matrix matrix(SharedAddress place, int outer, int depth) { return {place, outer, depth}; }
inline Matrix ahead(Matrix m, int bytes) { return {m.place + bytes, m.outer, m.depth}; }
template <class T>
void forget(T&) {}
inline void set_zero(float& sum) { sum = 0.0f; }
inline float moved(float value, uint) { return value; }
inline void cleared(float& sum, uint) { sum = 0.0f; }
inline uint pack_now(float low, float high) { return pack_halves(low, high); }
inline int uniform(int value) { return value; }
inline void publish() {}
inline void group_barrier(int group) { emulation::wait_at(emulation::group_barriers[group]); }
inline void begin_products() {}
inline void commit_products() {}
inline void wait_products() { group_barrier(threadIdx.x / 128); }

inline float element(const Matrix& m, int outer, int k, bool turned) {
  SharedAddress block = m.place + outer / 8 * m.outer + k / 8 * m.depth;
  int inner = turned ? k % 8 * 8 + outer % 8 : outer % 8 * 8 + k % 8;
  return half_to_float(reinterpret_cast<const half_bits*>(block)[inner]);
}

template <int kTurned>
void multiply(float (&a)[32], Matrix left, Matrix right) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  for (int h = 0; h < 2; ++h)
    for (int k = 0; k < 16; ++k) {
      float x = element(left, warp * 16 + lane / 4 + 8 * h, k, false);
      for (int j = 0; j < 8; ++j)
        for (int e = 0; e < 2; ++e)
          a[4 * j + 2 * h + e] += x * element(right, 8 * j + lane % 4 * 2 + e, k, kTurned);
    }
}
template <int kTurned>
void multiply(float (&a)[32], float (&b)[32], Matrix left, Matrix right) {
  multiply<kTurned>(a, left, right);
  multiply<kTurned>(b, left, ahead(right, 8 * right.outer));
}
template <int kTurned>
void multiply(float (&a)[32], float (&b)[32], float (&c)[32], Matrix left, Matrix right) {
  multiply<kTurned>(a, b, left, right);
  multiply<kTurned>(c, left, ahead(right, 16 * right.outer));
}

#endif

}  // namespace rn
