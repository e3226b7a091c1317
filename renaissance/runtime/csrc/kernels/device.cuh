// Small things that every kernel needs: types, vectors, reductions in a fixed order.
#pragma once

#include "activation.h"
#include "operations.h"
#include "primitives.cuh"
#include "update_rules.h"

namespace rn {

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(half_bits x) { return half_to_float(x); }

template <class T>
__device__ __forceinline__ T narrow(float x);
template <>
__device__ __forceinline__ float narrow<float>(float x) { return x; }
template <>
__device__ __forceinline__ half_bits narrow<half_bits>(float x) { return float_to_half(x); }

// The value after rounding to the type, as a float.
template <class T>
__device__ __forceinline__ float rounded(float x) { return widen(narrow<T>(x)); }

__device__ __forceinline__ bool is_finite(float x) {
  return (__float_as_uint(x) & 0x7F800000u) != 0x7F800000u;
}

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7F800000u); }

__device__ __forceinline__ float not_a_number() { return __uint_as_float(0x7FC00000u); }

__device__ __forceinline__ bool is_nan(float x) { return x != x; }

// The type of activations and compute weights, by the constant RN_HALF.
#if defined(RN_HALF) && RN_HALF
typedef half_bits Element;
#else
typedef float Element;
#endif

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Vector {
  T value[kCount];
};

__device__ __forceinline__ Index thread_index() {
  return static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ Index thread_count() {
  return static_cast<Index>(gridDim.x) * blockDim.x;
}

// The sum over a warp, in every lane; the same order every time.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
  return value;
}

// The sum over a block of at most 1024 threads, in every thread; the same order every time.
template <class T>
__device__ __forceinline__ T block_sum(T value) {
  __shared__ T partial[32];
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  T total = 0;
  for (uint warp = 0; warp < (blockDim.x + 31) / 32; ++warp) total += partial[warp];
  return total;
}

}  // namespace rn
