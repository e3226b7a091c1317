// The instructions that C++ has no word for: half precision without a toolkit's headers, asynchronous
// copies, matrix loads and products. Everything else in the kernels is plain C++, so that the same
// source runs on a processor where RN_EMULATED brings these in another way.
#pragma once

namespace rn {

typedef unsigned short half_bits;
typedef unsigned int uint;
typedef unsigned long long ulong64;

#ifndef RN_EMULATED

typedef uint SharedAddress;

__device__ __forceinline__ float half_to_float(half_bits h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}

__device__ __forceinline__ half_bits float_to_half(float f) {
  half_bits h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}

// Two floats as halves, the first one low.
__device__ __forceinline__ uint pack_halves(float low, float high) {
  uint pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// The halves of a pair as floats, the low one first; saves taking the pair apart.
__device__ __forceinline__ void unpack_halves(float& low, float& high, uint pair) {
  asm("{\n\t.reg .b16 l, h;\n\tmov.b32 {l, h}, %2;\n\tcvt.f32.f16 %0, l;\n\tcvt.f32.f16 %1, h;\n\t}"
      : "=f"(low), "=f"(high)
      : "r"(pair));
}

// Behind this, memory is read again that was read before: what is in shared memory need not stay in
// registers all along a loop.
__device__ __forceinline__ void forget_loads() { asm volatile("" ::: "memory"); }

// Two halves plus zero: -0 becomes 0, and every NaN the same positive one.
__device__ __forceinline__ uint add_zero(uint pair) {
  uint sum;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(pair), "r"(0u));
  return sum;
}

// The larger, or smaller, of each half; NaN where either is, and 0 is above -0.
__device__ __forceinline__ uint larger_halves(uint a, uint b) {
  uint larger;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}

__device__ __forceinline__ uint smaller_halves(uint a, uint b) {
  uint smaller;
  asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(smaller) : "r"(a), "r"(b));
  return smaller;
}

__device__ __forceinline__ SharedAddress shared_address(const void* pointer) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(pointer));
}

// Copies kBytes (4, 8 or 16) to shared memory, or writes zeros where `inside` is false.
template <int kBytes>
__device__ __forceinline__ void copy_async(SharedAddress to, const void* from, bool inside) {
  int bytes = inside ? kBytes : 0;
  if (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(from), "r"(bytes),
                 "n"(kBytes));
}

// A word of shared memory, read in its place among copies and waits for them.
__device__ __forceinline__ uint load_shared(SharedAddress from) {
  uint word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(from));
  return word;
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;"); }

template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending));
}

// The compiler moves no access to memory across.
__device__ __forceinline__ void keep_order() { asm volatile("" ::: "memory"); }

// Sixteen bytes of shared memory, read between the copies before and behind it.
__device__ __forceinline__ void load_copied(uint (&r)[4], SharedAddress address) {
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void load_matrices(uint (&r)[4], SharedAddress address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

__device__ __forceinline__ void load_matrices_transposed(uint (&r)[4], SharedAddress address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

__device__ __forceinline__ void multiply_add(float (&d)[4], const uint (&a)[4], uint b0, uint b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif  // RN_EMULATED

}  // namespace rn
