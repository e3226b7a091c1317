// The product of a 1x1 convolution, warp by warp: rows of a map times the filters of a block.
//
// Nothing is staged for the left operand. In which order a sum runs over the channels is free as long
// as both operands agree: a thread takes eight neighbouring channels of a row, 16 bytes as they lie in
// memory, as its part of two products of depth 16. Which filter makes which column is free as well: a
// thread's sums of up to four neighbouring products are neighbouring channels of the output, stored 16
// bytes at once. Filters stay in shared memory in the order in which lanes take them, 16 bytes each.
// Warps share nothing else, so none ever waits for another.
#pragma once

#include "device.cuh"

namespace rn {

constexpr int kThreads = RN_THREADS, kWarps = kThreads / 32;
constexpr int kWarpRows = 16;
constexpr int kRowsOfLane = 2;                    // rows lane / 4 and lane / 4 + 8 of the warp's
constexpr int kSteps = (RN_C + 31) / 32;          // a step is 32 channels, 8 of them a lane's
constexpr int kFilters = RN_FILTERS;              // of a block
constexpr int kColumns = kFilters / 8;            // products side by side
static_assert(RN_C % 8 == 0 && kFilters % 8 == 0 && RN_K % kFilters == 0, "packs of 8 channels");

typedef Vector<uint, 4> Pack;  // eight halves

__device__ __forceinline__ float low_half(uint pair) {
  return half_to_float(static_cast<half_bits>(pair & 0xFFFFu));
}
__device__ __forceinline__ float high_half(uint pair) {
  return half_to_float(static_cast<half_bits>(pair >> 16));
}

// Columns come in groups of four; those left over in a group of two and one of one.
__device__ constexpr int group_width(int column) {
  int left = kColumns - column / 4 * 4;
  return left >= 4 ? 4 : (left >= 2 && column % 4 < 2 ? 2 : 1);
}
constexpr int kGroups = kColumns / 4 + kColumns / 2 % 2 + kColumns % 2;

// The filter, counted from the block's first, whose sums are column n (0 to 7) of a product.
__device__ __forceinline__ int filter_of(int column, int n) {
  int width = group_width(column), begin = column / width * width;
  return begin * 8 + n / 2 * 2 * width + 2 * (column - begin) + n % 2;
}

constexpr int kFilterPacks = kSteps * kColumns * 32;

__device__ __forceinline__ void load_filters(Pack* to, const half_bits* w) {
  for (int i = threadIdx.x; i < kFilterPacks; i += kThreads) {
    int lane = i % 32, column = i / 32 % kColumns, c = i / 32 / kColumns * 32 + lane % 4 * 8;
    const half_bits* filter = w + static_cast<Index>(filter_of(column, lane / 4)) * RN_C;
    to[i] = c < RN_C ? *reinterpret_cast<const Pack*>(filter + c) : Pack{};
  }
}

// Adds the lanes of a column up: lanes 4, 8 and 16 apart hold the same channels of other rows. Of 2, 4
// or 8 channels each lane is left with the one that `channel_left` names.
template <int kCount>
__device__ __forceinline__ float fold(float (&v)[kCount]) {
  int count = kCount;
#pragma unroll
  for (int distance = 16; distance >= 4; distance /= 2) {
    if (count == 1) {
      v[0] += __shfl_xor_sync(0xFFFFFFFFu, v[0], distance);
      continue;
    }
    count /= 2;
    bool upper = threadIdx.x & distance;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      if (i >= count) break;
      float mine = upper ? v[i + count] : v[i], given = upper ? v[i] : v[i + count];
      v[i] = mine + __shfl_xor_sync(0xFFFFFFFFu, given, distance);
    }
  }
  return v[0];
}

// Sums of a warp's rows, and what statistics gather from them over all rows that the warp works on.
struct Product {
  float sum[kColumns][4];
  float total[kGroups], squares[kGroups];

  __device__ __forceinline__ void begin() {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) total[g] = squares[g] = 0.0f;
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[j][e] = 0.0f;
  }

  // Adds the products of a step; a lane's packs are of its rows and eight channels.
  __device__ __forceinline__ void add(const Pack* filters, int step, const Pack (&rows)[kRowsOfLane]) {
    const Pack* mine = filters + step * kColumns * 32 + threadIdx.x % 32;
    const uint(&low)[4] = rows[0].value, (&high)[4] = rows[1].value;
    uint first[4] = {low[0], high[0], low[1], high[1]}, second[4] = {low[2], high[2], low[3], high[3]};
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      Pack f = mine[j * 32];
      multiply_add(sum[j], first, f.value[0], f.value[1]);
      multiply_add(sum[j], second, f.value[2], f.value[3]);
    }
  }

  // Stores the sums as halves from `y`, the place of the lane's first row and the block's first filter,
  // and gathers what was stored. Rows beyond the map have no products, so they add zeros.
  __device__ __forceinline__ void finish(half_bits* y, const bool (&inside)[kRowsOfLane]) {
#pragma unroll
    for (int g = 0; g < kColumns / 4; ++g) finish_group<4>(4 * g, g, y, inside);
    if constexpr (kColumns / 2 % 2) finish_group<2>(kColumns / 4 * 4, kColumns / 4, y, inside);
    if constexpr (kColumns % 2) finish_group<1>(kColumns - 1, kGroups - 1, y, inside);
  }

  template <int kWidth>
  __device__ __forceinline__ void finish_group(int begin, int group, half_bits* y,
                                               const bool (&inside)[kRowsOfLane]) {
    float some[2 * kWidth], more[2 * kWidth];
    half_bits* to = y + begin * 8 + threadIdx.x % 4 * 2 * kWidth;
#pragma unroll
    for (int v = 0; v < 2 * kWidth; ++v) some[v] = more[v] = 0.0f;
#pragma unroll
    for (int r = 0; r < kRowsOfLane; ++r) {
      Vector<uint, kWidth> pairs;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float(&s)[4] = sum[begin + j];
        uint pair = pairs.value[j] = pack_halves(s[2 * r], s[2 * r + 1]);
        float low = low_half(pair), high = high_half(pair);
        some[2 * j] += low, some[2 * j + 1] += high;
        more[2 * j] += low * low, more[2 * j + 1] += high * high;
      }
      if (inside[r]) *reinterpret_cast<Vector<uint, kWidth>*>(to + Index{8} * r * RN_K) = pairs;
    }
    total[group] += fold(some);
    squares[group] += fold(more);
  }

  // Adds up the warps in order and writes the block's row of sums, then that of squares.
  __device__ __forceinline__ void write(float* shared, float* sums) {
    __syncthreads();  // filters are no longer read
    float* mine = shared + threadIdx.x / 32 * 2 * kFilters;
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      int width = group_width(column), lane = threadIdx.x % 32, copies = 4 / width;
      if (column % width || lane / 4 % copies) continue;
      int group = column / 4 + (width == 1 && column % 4 == 2);
      int filter = column * 8 + lane % 4 * 2 * width + lane / 4 / copies;
      mine[filter] = total[group];
      mine[kFilters + filter] = squares[group];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * kFilters; i += kThreads) {
      float all = 0.0f;
      for (int warp = 0; warp < kWarps; ++warp) all += shared[warp * 2 * kFilters + i];
      sums[i / kFilters * RN_K + i % kFilters] = all;
    }
  }
};

}  // namespace rn
