// The gradient of filters, dw (k, c) = dy^T a, summed in registers over all the tiles that a block walks
// over: the tile of dy is still in shared memory from the product with the filters
// (pointwise_product.cuh), and a, the convolution's input, lies where that product was.
//
// A warp or warpgroup sums a piece of dw transposed, rows of c by columns of k, because a lies in rows of
// pixels: ldmatrix turns it. By warps, RN_WEIGHT_M and RN_WEIGHT_N lay them over c and k; the rest of
// them share the pixels of a tile, and their sums are added in order at the end. Warpgroups have 64
// channels each, and where there are more of them than that, a part of the slices of k.
#pragma once

#include "pointwise_product.cuh"

namespace rn {

// The activated tile as an operand: rows of pixels where the product was.
typedef OperandTile<kTileN, kTileM, false, 8, kThreads> Activated;
static_assert(Activated::kPitch == kPitch, "in the product's place");

#if RN_WGMMA && defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Product::add of kCount slices from kFirst on, with one wait for all of them; dy(slice) is a slice's place.
template <int kFirst, int kCount, class Place>
__device__ __forceinline__ void add_slices(Product& product, Place dy, const half_bits* w) {
  const half_bits* columns = w + product.column / 64 * kDepth * 64 + product.column % 64;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int s = kFirst; s < kFirst + kCount; ++s) {
    const half_bits* rows = dy(s) + product.row / 64 * 64 * 64;
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
      for (int k = 0; k < 64 && s * 64 + k < RN_K; k += 16)
        multiply(product.sum[i], matrix(rows + i * 64 * 64 + k, 16),
                 matrix(columns + (s * 64 + k) * 64, kDepth * 128), s * 64 + k > 0);
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

constexpr int kGroupsAlong = kWarpsM * kWarpsN / 4 / (kTileN / 64);
constexpr int kGroupSlices = kSlices / kGroupsAlong;
static_assert(kTileN % 64 == 0 && kTileM % 64 == 0, "a warpgroup has 64 channels");
static_assert(kGroupSlices * kGroupsAlong == kSlices, "as many slices for each");

#define RN_WEIGHT_MULTIPLY(d, a, b)                                                                \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"                                          \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" RN_LIST32 "}, "              \
               "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"                                         \
               : RN_SIXTEEN(0), RN_SIXTEEN(4)                                                      \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

struct WeightProduct {
  float sum[kGroupSlices][8][4];
  int channel, slice;  // the warp's first channel; the group's first slice

  __device__ __forceinline__ WeightProduct() {
    int warp = threadIdx.x / 32, group = warp / 4;
    channel = group / kGroupsAlong * 64 + warp % 4 * 16;
    slice = group % kGroupsAlong * kGroupSlices;
#pragma unroll
    for (int s = 0; s < kGroupSlices; ++s)
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[s][j][e] = 0.0f;
  }

  static __device__ __forceinline__ void multiply(float (&d)[8][4], const uint (&a)[4], ulong64 b) {
    RN_WEIGHT_MULTIPLY(d, a, b);
  }

  // Adds a tile; dy(slice) is the place of a slice of it.
  template <class Place>
  __device__ __forceinline__ void add(const half_bits* a, Place dy) {
#pragma unroll
    for (int half = 0; half < kTileM; half += 64) {
      uint left[4][4];
#pragma unroll
      for (int p = 0; p < 4; ++p) Activated::left(left[p], a, channel, half + 16 * p);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int s = 0; s < kGroupSlices; ++s) {
        const half_bits* rows = dy(slice + s) + half * 64;
#pragma unroll
        for (int p = 0; p < 4; ++p) multiply(sum[s], left[p], matrix(rows + p * 16 * 64, 16));
      }
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
  }

  // Writes the block's sums as rows of k.
  __device__ __forceinline__ void write(half_bits*, float* to, int column0) const {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int s = 0; s < kGroupSlices; ++s)
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          int k = (slice + s) * 64 + j * 8 + lane % 4 * 2 + e % 2;
          int c = column0 + channel + lane / 4 + e / 2 * 8;
          if (k < RN_K && c < RN_C) to[k * RN_C + c] = sum[s][j][e];
        }
  }
};

#else

template <int kFirst, int kCount, class Place>
__device__ __forceinline__ void add_slices(Product& product, Place dy, const half_bits* w) {
#pragma unroll
  for (int s = kFirst; s < kFirst + kCount; ++s) product.add(dy(s), w, s * kSlice);
}

constexpr int kWeightM = RN_WEIGHT_M, kWeightN = RN_WEIGHT_N;
constexpr int kSplits = kWarpsM * kWarpsN / (kWeightM * kWeightN);
constexpr int kAcross = kTileN / 16 / kWeightM, kAlong = kDepth / 16 / kWeightN;
static_assert(kAcross * kWeightM * 16 == kTileN && kAlong * kWeightN * 16 == kDepth, "pieces of dw");
static_assert(kSplits * kWeightM * kWeightN == kWarpsM * kWarpsN && kTileM % (16 * kSplits) == 0, "warps");

struct WeightProduct {
  // A slice of dy as rows of pixels.
  typedef OperandTile<kSlice, kTileM, false, 8, kThreads> Rows;
  static_assert(kSwizzled || Rows::kElements == kSliceElements, "the same slice");

  float sum[kAcross][2 * kAlong][4];
  int channel, filter, split;  // the first of the warp's piece; its share of the pixels

  __device__ __forceinline__ WeightProduct() {
    int warp = threadIdx.x / 32;
    split = warp / (kWeightM * kWeightN);
    channel = warp / kWeightN % kWeightM * (16 * kAcross);
    filter = warp % kWeightN * (16 * kAlong);
    each([](float& value, int, int) { value = 0.0f; });
  }

  // Calls function(sum, k, c) for every sum of the thread.
  template <class Function>
  __device__ __forceinline__ void each(Function function) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kAcross; ++i)
#pragma unroll
      for (int j = 0; j < 2 * kAlong; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          function(sum[i][j][e], filter + 8 * j + lane % 4 * 2 + e % 2,
                   channel + 16 * i + lane / 4 + e / 2 * 8);
  }

  // Adds a tile; dy(slice) is the place of a slice of it.
  template <class Place>
  __device__ __forceinline__ void add(const half_bits* a, Place dy) {
#pragma unroll
    for (int p = 0; p < kTileM; p += 16 * kSplits) {
      uint left[kAcross][4];
#pragma unroll
      for (int i = 0; i < kAcross; ++i)
        Activated::left(left[i], a, channel + 16 * i, p + 16 * split);
#pragma unroll
      for (int j = 0; j < kAlong; ++j) {
        uint right[4];
        int k = filter + 16 * j;
        Rows::right(right, dy(k / kSlice), k % kSlice, p + 16 * split);
#pragma unroll
        for (int i = 0; i < kAcross; ++i) {
          multiply_add(sum[i][2 * j], left[i], right[0], right[1]);
          multiply_add(sum[i][2 * j + 1], left[i], right[2], right[3]);
        }
      }
    }
  }

  // Adds up the splits in order, in shared memory, and writes the block's sums as rows of k.
  __device__ __forceinline__ void write(half_bits* shared, float* to, int column0) {
    static_assert(kSplits == 1 || kTileN * kDepth * 4 <= RN_SHARED_BYTES, "room for a split");
    float* some = reinterpret_cast<float*>(shared);
#pragma unroll 1
    for (int s = 1; s < kSplits; ++s) {
      __syncthreads();
      if (split == s) each([&](float& value, int k, int c) { some[k * kTileN + c] = value; });
      __syncthreads();
      if (split == 0) each([&](float& value, int k, int c) { value += some[k * kTileN + c]; });
    }
    if (split > 0) return;
    each([&](float& value, int k, int c) {
      if (k < RN_K && column0 + c < RN_C) to[k * RN_C + column0 + c] = value;
    });
  }
};

#endif

}  // namespace rn
