// Operations over whole regions: clear, copy, cast, check and unscale, clip, average.
// Regions start at 256 bytes and are whole multiples of it, so vectors never straddle an end; the
// functional forms may end anywhere and finish element by element.
#include "device.cuh"

using namespace rn;

typedef Vector<uint, 4> Bytes16;
typedef Vector<float, 4> Floats;

extern "C" __global__ void __launch_bounds__(256) clear_kernel(const Clear op) {
  char* to = static_cast<char*>(op.to);
  for (Index i = thread_index() * 16; i < op.bytes; i += thread_count() * 16) {
    if (i + 16 <= op.bytes)
      *reinterpret_cast<Bytes16*>(to + i) = {0, 0, 0, 0};
    else
      for (Index j = i; j < op.bytes; ++j) to[j] = 0;
  }
}

extern "C" __global__ void __launch_bounds__(256) copy_kernel(const Copy op) {
  if (op.flag && *op.flag) return;
  const char* from = static_cast<const char*>(op.from);
  char* to = static_cast<char*>(op.to);
  for (Index i = thread_index() * 16; i < op.bytes; i += thread_count() * 16) {
    if (i + 16 <= op.bytes)
      *reinterpret_cast<Bytes16*>(to + i) = *reinterpret_cast<const Bytes16*>(from + i);
    else
      for (Index j = i; j < op.bytes; ++j) to[j] = from[j];
  }
}

template <class From, class To>
__device__ __forceinline__ void cast(const Cast& op) {
  const From* from = static_cast<const From*>(op.from);
  To* to = static_cast<To*>(op.to);
  for (Index i = thread_index() * 4; i < op.count; i += thread_count() * 4) {
    if (i + 4 <= op.count) {
      Vector<From, 4> in = *reinterpret_cast<const Vector<From, 4>*>(from + i);
      Vector<To, 4> out;
#pragma unroll
      for (int j = 0; j < 4; ++j) out.value[j] = narrow<To>(widen(in.value[j]));
      *reinterpret_cast<Vector<To, 4>*>(to + i) = out;
    } else {
      for (Index j = i; j < op.count; ++j) to[j] = narrow<To>(widen(from[j]));
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) cast_kernel(const Cast op) {
  if (op.from_type == kFloat16 && op.to_type == kFloat32)
    cast<half_bits, float>(op);
  else if (op.from_type == kFloat32 && op.to_type == kFloat16)
    cast<float, half_bits>(op);
  else if (op.from_type == kFloat32)
    cast<float, float>(op);
  else
    cast<half_bits, half_bits>(op);
}

extern "C" __global__ void __launch_bounds__(256)
    check_and_unscale_kernel(const CheckAndUnscale op) {
  float inverse = 1.0f / *op.loss_scale;
  bool finite = true;
  for (Index i = thread_index(); i < op.count; i += thread_count()) {
    float g = op.g[i] * inverse;
    finite = finite && is_finite(g);
    op.g[i] = clamped(g, op.max_abs);
  }
  if (!finite) *op.flag = 1;
}

// Whether a vector of 16 bytes holds an exponent of ones: in one of its floats, or of its halves.
template <uint kExponent>
__device__ __forceinline__ bool any_overflow(const Bytes16& bits) {
  bool found = false;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    found = found || (bits.value[j] & kExponent) == kExponent;
    uint high = kExponent << 16;  // of the upper half; nothing for floats
    if (kExponent == 0x7C00u) found = found || (bits.value[j] & high) == high;
  }
  return found;
}

// Reads only, so four vectors a thread are in flight to keep memory busy.
template <uint kExponent>
__device__ __forceinline__ bool overflows(const void* data, Index bytes) {
  constexpr int kUnroll = 4;
  const char* from = static_cast<const char*>(data);
  Index step = thread_count() * 16;
  bool found = false;
  for (Index i = thread_index() * 16; i < bytes; i += kUnroll * step) {
    Bytes16 bits[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      bits[u] = {0, 0, 0, 0};
      if (i + u * step + 16 <= bytes)
        bits[u] = *reinterpret_cast<const Bytes16*>(from + i + u * step);
      else  // the end of an array that is no whole vector: two bytes at a time
        for (Index at = i + u * step, j = 0; at + 2 * j < bytes && j < 8; ++j)
          bits[u].value[j / 2] |= static_cast<uint>(
              *reinterpret_cast<const half_bits*>(from + at + 2 * j)) << 16 * (j % 2);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) found = found || any_overflow<kExponent>(bits[u]);
  }
  return found;
}

extern "C" __global__ void __launch_bounds__(256) check_finite_kernel(const CheckFinite op) {
  bool found = overflows<0x7F800000u>(op.g, op.count * 4);
  found = overflows<0x7C00u>(op.raw, op.raw_count * 2) || found;
  if (found) *op.flag = 1;
}

extern "C" __global__ void __launch_bounds__(256) ema_update_kernel(const EmaUpdate op) {
  if (*op.flag) return;
  for (Index i = thread_index(); i < op.count; i += thread_count())
    op.e[i] = averaged(op.e[i], op.w[i], op.decay);
}

extern "C" __global__ void __launch_bounds__(256) gradient_norm_kernel(const ClipByNorm op) {
  double sum = 0.0;  // the square of a float can neither overflow nor vanish in a double
  for (Index i = thread_index(); i < op.count; i += thread_count())
    sum += static_cast<double>(op.g[i]) * op.g[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) op.partial[blockIdx.x] = sum;
}

// Every block adds all blocks' sums, in the same order.
extern "C" __global__ void __launch_bounds__(256) clip_by_norm_kernel(const ClipByNorm op) {
  double sum = 0.0;
  for (int i = threadIdx.x; i < op.rows; i += blockDim.x) sum += op.partial[i];
  double factor = clip_factor(sqrt(block_sum(sum)), op.max_norm);
  if (factor == 1.0) return;
  for (Index i = thread_index(); i < op.count; i += thread_count())
    op.g[i] = static_cast<float>(op.g[i] * factor);
}
