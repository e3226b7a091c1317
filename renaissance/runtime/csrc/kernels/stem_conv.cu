// Forward convolution of a map of four channels, with the sums that batch statistics are made of.
//
// A product of windows (stem_conv.cuh) and filters: a warp keeps the filters of 32 channels in
// registers, all taps of them, and walks over tiles of 16 windows, RN_TILES at once. Channels are dealt
// out to the columns of the product so that a thread ends up with eight neighbours: it writes 16 bytes,
// and adds up what it wrote, rounded as it is. A block keeps going over groups of rows; the rows of the next
// group arrive while it multiplies.
#include "stem_conv.cuh"

using namespace rn;

#if RN_STATISTICS
typedef ConvForwardStatistics Record;
__device__ __forceinline__ const ConvForward& convolution(const Record& op) { return op.conv; }
#else
typedef ConvForward Record;
__device__ __forceinline__ const ConvForward& convolution(const Record& op) { return op; }
#endif

constexpr int kUnit = 32;  // channels of a warp
constexpr int kUnits = (RN_K + kUnit - 1) / kUnit;
constexpr int kWarps = kUnits * RN_WARPS, kThreads = kWarps * 32;
constexpr int kSteps = kDepth / 16;
static_assert(RN_K % 8 == 0, "a thread writes eight channels at a time");

// Lane 4 g + t holds, of the right operand's columns 8 j + g, the channel that puts results 2 t and
// 2 t + 1 of all four j next to each other in memory.
__device__ __forceinline__ int channel_of_column(int j) {
  int g = threadIdx.x % 32 / 4;
  return g / 2 * 8 + 2 * j + g % 2;
}

struct Filters {
  uint value[kAcross][RN_R][kSteps][4][2];

  __device__ __forceinline__ void read(const void* w, int unit) {
    const half_bits* filters = static_cast<const half_bits*>(w);
#pragma unroll
    for (int u = 0; u < kAcross; ++u)
#pragma unroll
      for (int r = 0; r < RN_R; ++r)
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
#pragma unroll
          for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              int k = unit * kUnit + channel_of_column(j);
              int at = step * 16 + half * 8 + threadIdx.x % 4 * 2 - u * RN_STRIDE * kChannels;
              bool inside = k < RN_K && at >= 0 && at < RN_S * kChannels;
              const half_bits* row = filters + (k * RN_R + r) * RN_S * kChannels;
              value[u][r][step][j][half] = inside ? *reinterpret_cast<const uint*>(row + at) : 0u;
            }
  }
};

// The products of a tile.
struct Sums {
  float value[kAcross][4][4];

  __device__ __forceinline__ Sums() {
#pragma unroll
    for (int u = 0; u < kAcross; ++u)
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) value[u][j][e] = 0.0f;
  }

  template <int kAt>
  __device__ __forceinline__ void add(const uint (&windows)[4], const Filters& filters) {
#pragma unroll
    for (int u = 0; u < kAcross; ++u)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint(&right)[2] = filters.value[u][kAt / kSteps][kAt % kSteps][j];
        multiply_add(value[u][j], windows, right[0], right[1]);
      }
  }
};

// RN_TILES tiles at once: the windows of a step arrive while those of the one before are multiplied.
template <int kAt = 0>
__device__ __forceinline__ void multiply(Sums (&sums)[RN_TILES], uint (&windows)[2][RN_TILES][4],
                                         const SharedAddress (&at)[RN_TILES], int row_bytes,
                                         const Filters& filters) {
  constexpr int kNext = kAt + 1;
  if constexpr (kNext < RN_R * kSteps)
#pragma unroll
    for (int t = 0; t < RN_TILES; ++t)
      load_matrices(windows[kNext % 2][t], at[t] + kNext / kSteps * row_bytes + kNext % kSteps * 32);
#pragma unroll
  for (int t = 0; t < RN_TILES; ++t) sums[t].template add<kAt>(windows[kAt % 2][t], filters);
  if constexpr (kNext < RN_R * kSteps) multiply<kNext>(sums, windows, at, row_bytes, filters);
}

// Sums of what a thread wrote, and of its squares.
struct Statistics {
  float sum[8], squares[8];

  __device__ __forceinline__ Statistics() {
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[j] = squares[j] = 0.0f;
  }

  __device__ __forceinline__ void add(const uint (&pairs)[4]) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float y = widen(static_cast<half_bits>(pairs[j / 2] >> 16 * (j % 2)));
      sum[j] += y;
      squares[j] += y * y;
    }
  }
};

__device__ __forceinline__ void write(const ConvForward& op, const Sums& sums, Index line, int m0,
                                      int channel, Statistics& statistics) {
  half_bits* y = static_cast<half_bits*>(op.y);
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int u = 0; u < kAcross; ++u) {
      int q = (m0 + threadIdx.x % 32 / 4 + 8 * half) * kAcross + u;
      Vector<uint, 4> pairs;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        pairs.value[j] = pack_halves(sums.value[u][j][2 * half], sums.value[u][j][2 * half + 1]);
      if (q >= op.shape.q || channel >= RN_K) continue;
      *reinterpret_cast<Vector<uint, 4>*>(y + (line + q) * RN_K + channel) = pairs;
      if (RN_STATISTICS) statistics.add(pairs.value);
    }
}

#if RN_STATISTICS
// Row blockIdx.x of the partial sums: lanes of a warp, then warps, each in its order.
__device__ __forceinline__ void finish(const Record& op, Statistics& statistics, int unit, int warp) {
  __shared__ float sums[RN_WARPS][2][kUnits * kUnit];
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2) {
      statistics.sum[j] += __shfl_xor_sync(0xFFFFFFFFu, statistics.sum[j], distance);
      statistics.squares[j] += __shfl_xor_sync(0xFFFFFFFFu, statistics.squares[j], distance);
    }
  if (lane < 4)
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      sums[warp][0][unit * kUnit + lane * 8 + j] = statistics.sum[j];
      sums[warp][1][unit * kUnit + lane * 8 + j] = statistics.squares[j];
    }
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * RN_K; i += kThreads) {
    float total = 0.0f;
    for (int w = 0; w < RN_WARPS; ++w) total += sums[w][i / RN_K][i % RN_K];
    op.statistics.partial[static_cast<Index>(blockIdx.x) * 2 * RN_K + i] = total;
  }
}
#endif

extern "C" __global__ void __launch_bounds__(kThreads, RN_BLOCKS)
    stem_conv_forward_kernel(const Record record) {
  extern __shared__ __align__(16) unsigned char shared[];
  const ConvForward& op = convolution(record);
  const ConvShape& s = op.shape;
  RowTiles tiles(s);
  int warp = threadIdx.x / 32 / kUnits, unit = threadIdx.x / 32 % kUnits, lane = threadIdx.x % 32;
  int channel = unit * kUnit + lane % 4 * 8, row_bytes = tiles.pitch * kChannels * 2;
  int count = Group::count(s), stage_elements = kRows * tiles.pitch * kChannels, stage = 0;
  half_bits* stages = reinterpret_cast<half_bits*>(shared);
  Filters filters;
  filters.read(op.w, unit);
  Statistics statistics;
  int index = blockIdx.x, step = gridDim.x;
  if (index < count) fetch_rows<kWarps>(stages, op.x, s, Group(s, index), tiles.pitch);
  commit_copies();
  for (; index < count; index += step, stage ^= 1) {
    wait_copies<0>();
    __syncthreads();
    half_bits* next = stages + (stage ^ 1) * stage_elements;
    if (index + step < count)
      fetch_rows<kWarps>(next, op.x, s, Group(s, index + step), tiles.pitch);
    commit_copies();
    Group group(s, index);
    int rows = min(RN_ROWS, static_cast<int>(s.p) - group.p0);
    const half_bits* rows_of_x = stages + stage * stage_elements;
    int last = rows * tiles.count - 1;
    for (int i = warp * RN_TILES; i <= last; i += RN_WARPS * RN_TILES) {
      Sums sums[RN_TILES];
      uint windows[2][RN_TILES][4];
      SharedAddress at[RN_TILES];
      int row[RN_TILES], m0[RN_TILES];
#pragma unroll
      for (int t = 0; t < RN_TILES; ++t) {
        int tile = min(i + t, last);
        row[t] = tile / tiles.count, m0[t] = (tile - row[t] * tiles.count) * kTile;
        const half_bits* line = rows_of_x + row[t] * RN_STRIDE * tiles.pitch * kChannels;
        line += (m0[t] + lane % 16) * kStep * kChannels + lane / 16 * 8;
        at[t] = shared_address(line);
        load_matrices(windows[0][t], at[t]);
      }
      multiply(sums, windows, at, row_bytes, filters);
#pragma unroll
      for (int t = 0; t < RN_TILES; ++t) {
        Index line = (group.n * s.p + group.p0 + row[t]) * s.q;
        if (i + t <= last) write(op, sums[t], line, m0[t], channel, statistics);
      }
    }
  }
#if RN_STATISTICS
  finish(record, statistics, unit, warp);
#endif
}
