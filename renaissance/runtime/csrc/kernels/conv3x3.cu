// 3x3 convolution of 64 channels to 64, stride 1, pad 1: forward with the sums of batch statistics, or
// (RN_BACKWARD) the gradient of the input, which is the same with filters turned around; with RN_NORM
// behind it the first pass of a norm's backward, dz and its sums, with RN_ACTIVATION after the norm.
//
// A tile is eight columns wide and eight strips of RN_STRIP rows high. A warpgroup goes down all strips
// at once: a step takes one row of each, eight pixels of eight strips as the 64 rows of a product, and
// multiplies it with the taps of all three rows of the filters, side by side in 192 columns: sums of the
// rows of y above, at and below. So an operand of 64 x 16 is read from shared memory once for three
// products, and no product is thrown away: the first and last steps, whose neighbours belong to
// nobody, take fewer columns. Every step finishes one row of y for each strip.
//
// Warpgroups share only the filters. Each fetches its own rows RN_STAGES - 2 steps ahead; while its
// products run, it stores the row it rounded before, so that between products it only rounds.
#include "conv3x3.cuh"

using namespace rn;

#if RN_NORM
typedef ConvBackwardDataNorm Record;
#elif RN_BACKWARD
typedef ConvBackwardData Record;
#elif RN_STATISTICS
typedef ConvForwardStatistics Record;
#else
typedef ConvForward Record;
#endif

constexpr bool kSums = RN_STATISTICS || RN_NORM;

// Sums of what a thread wrote, and of its squares or its products with x: of eight channels from
// 8 (lane % 4), and of eight 32 further on.
struct Statistics {
  float sum[16], squares[16];
};

// What the norm makes of x, for all channels: x - mean, times scale, plus beta.
struct NormTable {
  float mean[kChannels], scale[kChannels], beta[kChannels];
};
static_assert(kFilterBytes + kGroups * kStages * kStageBytes + RN_NORM * sizeof(NormTable) <=
              RN_SHARED_BYTES, "the plan counts otherwise");

__device__ __forceinline__ NormTable* norm_table(unsigned char* shared) {
  return reinterpret_cast<NormTable*>(shared + kFilterBytes + kGroups * kStages * kStageBytes);
}

// dz for a z not yet rounded: comparing with the largest value that rounds to a kink says as much as
// rounding would.
__device__ __forceinline__ float masked(float dz, float z) {
  bool flat = z <= 0x1p-25f || (RN_ACTIVATION == kRelu6 && z >= 0x1.7fep2f);
  return RN_ACTIVATION && flat ? 0.0f * dz : dz;
}

// Of the three places for sums, the one of a strip's row.
__device__ constexpr int place_of(int row) { return row % 3; }
static_assert(kStrip >= 4, "rows at the edges and between them");

struct Group {
  float sum[3][32], edge[2][32];
  uint nothing;  // zero, which the compiler does not know
  uint rounded[2][8];
  Index to;       // the place of what was rounded last
  int rows_left;  // of the map from there on; none where it is beside the map
  Statistics statistics;
#if RN_NORM
  Vector<uint, 4> x[2][2];
#endif

  // Sums of a strip's first two rows, and of its last two, are made apart from the others.
  template <int kRow>
  __device__ __forceinline__ float (&edge_of())[32] { return edge[kRow == 0 || kRow == kStrip - 1 ? 0 : 1]; }

  template <int kRow>
  __device__ __forceinline__ void enter() {
#pragma unroll
    for (int e = 0; e < 32; ++e) sum[place_of(kRow)][e] = moved(edge_of<kRow>()[e], nothing);
  }
  template <int kRow>
  __device__ __forceinline__ void leave() {
#pragma unroll
    for (int e = 0; e < 32; ++e) edge_of<kRow>()[e] = moved(sum[place_of(kRow)][e], nothing);
  }

  // What the product with row kRow needs before.
  template <int kRow>
  __device__ __forceinline__ void prepare() {
    if constexpr (kRow == -1 || kRow == 0) {
#pragma unroll
      for (int e = 0; e < 32; ++e) set_zero(edge_of<kRow + 1>()[e]);
    } else if constexpr (kRow < kStrip - 1) {
      if constexpr (kRow == 1) enter<0>(), enter<1>();
#pragma unroll
      for (int e = 0; e < 32; ++e) cleared(sum[place_of(kRow + 1)][e], nothing);
    } else if constexpr (kRow == kStrip - 1) {
      leave<kStrip - 2>(), leave<kStrip - 1>();
    }
  }

  // Adds the products of row kRow of the strips (-1 is the one above) to those of y around it.
  template <int kRow>
  __device__ __forceinline__ void add(Matrix rows, Matrix filters) {
    prepare<kRow>();
    forget(rows), forget(filters);
    begin_products();
#pragma unroll
    for (int s = 0; s < 3; ++s)
#pragma unroll
      for (int half = 0; half < kChunks; half += 2) {
        Matrix left = ahead(rows, s * 16 + half * kPlane);
        Matrix right = ahead(filters, (s * kChunks + half) * kDepth);
        if constexpr (kRow >= 1 && kRow < kStrip - 1) {
          // the row of taps that belongs to place 0
          constexpr int kFirst = place_of(kRow + 1) == 0 ? 0 : (place_of(kRow) == 0 ? 1 : 2);
          multiply<RN_BACKWARD>(sum[0], sum[1], sum[2], left, ahead(right, (2 - kFirst) * 1024));
        } else {
          if constexpr (kRow <= 0) multiply<RN_BACKWARD>(edge_of<kRow + 1>(), left, ahead(right, 2048));
          if constexpr (kRow == 0 || kRow == kStrip - 1)
            multiply<RN_BACKWARD>(edge_of<kRow>(), left, ahead(right, 1024));
          if constexpr (kRow >= kStrip - 1) multiply<RN_BACKWARD>(edge_of<kRow - 1>(), left, right);
        }
      }
    commit_products();
  }

  // Rounds row kRow of the strips: a thread has two pixels, 16 channels of each.
  template <int kRow>
  __device__ __forceinline__ void round(const ConvShape& s, const Tile& tile) {
    const float(&sums)[32] = kRow >= kStrip - 2 ? edge_of<kRow>() : sum[place_of(kRow)];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, column = lane / 4;
    int row = 2 * warp * kStrip + kRow;
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int j = 0; j < 8; ++j) rounded[h][j] = pack_now(sums[j * 4 + 2 * h], sums[j * 4 + 2 * h + 1]);
    to = (tile.first + row * static_cast<int>(s.w) + column) * kChannels + lane % 4 * 8;
    rows_left = tile.w0 + column < s.w ? static_cast<int>(s.h) - tile.h0 - row : 0;
  }

  __device__ __forceinline__ Index place(const ConvShape& s, int h, int part) const {
    return to + static_cast<Index>(h * kStrip * static_cast<int>(s.w) * kChannels + part * 32);
  }

  // Asks for the norm's x where what was rounded last goes.
  __device__ __forceinline__ void ask(const half_bits* from, const ConvShape& s) {
#if RN_NORM
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int part = 0; part < 2; ++part)
        if (rows_left > h * kStrip)
          x[h][part] = *reinterpret_cast<const Vector<uint, 4>*>(from + place(s, h, part));
#endif
  }

  // Stores what was rounded last.
  __device__ __forceinline__ void store(half_bits* y, const ConvShape& s, const NormTable& table) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#if RN_NORM
      Vector<float, 8> mean, scale, beta;
      int channel = part * 32 + threadIdx.x % 4 * 8;
      mean = *reinterpret_cast<const Vector<float, 8>*>(table.mean + channel);
      scale = *reinterpret_cast<const Vector<float, 8>*>(table.scale + channel);
      beta = *reinterpret_cast<const Vector<float, 8>*>(table.beta + channel);
#endif
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (rows_left <= h * kStrip) continue;
        Vector<uint, 4> pairs;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          uint pair = rounded[h][part * 4 + j];
          float v[2], times[2];
          if (kSums) unpack_halves(v[0], v[1], pair);
#if RN_NORM
          unpack_halves(times[0], times[1], x[h][part].value[j]);
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            times[e] -= mean.value[2 * j + e];
            v[e] = masked(v[e], times[e] * scale.value[2 * j + e] + beta.value[2 * j + e]);
          }
          pair = pack_halves(v[0], v[1]);
#endif
          if (kSums)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              int c = part * 8 + 2 * j + e;
              statistics.sum[c] += v[e];
              statistics.squares[c] += v[e] * (RN_NORM ? times[e] : v[e]);
            }
          pairs.value[j] = pair;
        }
        *reinterpret_cast<Vector<uint, 4>*>(y + place(s, h, part)) = pairs;
      }
    }
  }
};

// The stages of a group, and what is on its way.
struct Stages {
  SharedAddress base;
  int used;  // the stage of this step

  __device__ __forceinline__ SharedAddress of(int ahead) const {
    int stage = used + ahead;
    return base + (stage >= kStages ? stage - kStages : stage) * kStageBytes;
  }
  __device__ __forceinline__ void advance() { used = used + 1 == kStages ? 0 : used + 1; }
};

// Until the rows of the next step are there, for all warps of the group.
__device__ __forceinline__ void await(int index) {
  wait_copies<kAhead - 1>();
  publish();
  group_barrier(index);
}

// What all steps of a warpgroup need.
struct Work {
  const half_bits *x, *norm_x;
  half_bits* y;
  const ConvShape& shape;
  const NormTable& table;
  int index;  // of the warpgroup
};

template <int kStep = 0>
__device__ __forceinline__ void steps(Group& group, Stages& stages, Matrix filters, Work& work,
                                      const Tile& tile, const Tile& next) {
  if constexpr (kStep < kSteps) {
    constexpr int kRow = kStep - 1, kFetched = kStep + kAhead;
    constexpr bool kStores = kStep == 0 || kRow >= 2;
    const ConvShape& s = work.shape;
    group.template add<kRow>(matrix(stages.of(0), kSeen * 16, kPlane), filters);
    if constexpr (kStores) group.ask(work.norm_x, s);
    if constexpr (kStores && !RN_NORM) group.store(work.y, s, work.table);
    // into the stage of two steps ago: all warps have left it before the last barrier
    fetch(stages.of(kAhead), work.x, s, kFetched < kSteps ? tile : next, kFetched % kSteps);
    if constexpr (kStores && RN_NORM) group.store(work.y, s, work.table);
    await(work.index);
    wait_products();
    if constexpr (kRow >= 1) group.template round<kRow - 1>(s, tile);
    stages.advance();
    forget(stages.base), forget(work.x), forget(work.y), forget(work.norm_x);
    steps<kStep + 1>(group, stages, filters, work, tile, next);
  }
}

// Row blockIdx.x of the partial sums: lanes of a warp, then warps, each in its order. Rows that no block
// has are zero.
__device__ __forceinline__ void finish(float* partial, Index rows, Statistics& statistics, float* sums) {
  constexpr int kWarps = kThreads / 32;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  __syncthreads();  // nobody needs the filters any more
#pragma unroll
  for (int c = 0; c < 16; ++c) {
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2) {
      statistics.sum[c] += __shfl_xor_sync(0xFFFFFFFFu, statistics.sum[c], distance);
      statistics.squares[c] += __shfl_xor_sync(0xFFFFFFFFu, statistics.squares[c], distance);
    }
    if (lane < 4) {
      float* mine = sums + warp * 2 * kChannels + c / 8 * 32 + lane * 8 + c % 8;
      mine[0] = statistics.sum[c];
      mine[kChannels] = statistics.squares[c];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * kChannels; i += kThreads) {
    float total = 0.0f;
    for (int w = 0; w < kWarps; ++w) total += sums[w * 2 * kChannels + i];
    for (Index row = blockIdx.x; row < rows; row += gridDim.x)
      partial[row * 2 * kChannels + i] = row == blockIdx.x ? total : 0.0f;
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) conv3x3_kernel(const Record record) {
  extern __shared__ __align__(1024) unsigned char shared[];
#if RN_NORM || RN_STATISTICS
  const auto& op = record.conv;
#else
  const auto& op = record;
#endif
#if RN_BACKWARD
  const void *x = op.dy, *w = op.w;
  void* y = op.dx;
#else
  const void *x = op.x, *w = op.w;
  void* y = op.y;
#endif
  const ConvShape& s = op.shape;
  NormTable& table = *norm_table(shared);
  const half_bits* norm_x = nullptr;
#if RN_NORM
  norm_x = static_cast<const half_bits*>(record.norm.x);
  for (int c = threadIdx.x; c < kChannels; c += kThreads) {
    const Norm& norm = record.norm.norm;
    table.mean[c] = norm.mean[c], table.beta[c] = norm.beta[c];
    table.scale[c] = norm.gamma[c] * norm.inverse_std[c];
  }
#endif
  int index = uniform(threadIdx.x / 128), count = Tile::count(s);
  int at = blockIdx.x + index * gridDim.x, stride = kGroups * gridDim.x;
  Work work{static_cast<const half_bits*>(x), norm_x, static_cast<half_bits*>(y), s, table, index};
  Stages stages{shared_address(shared) + kFilterBytes + index * kStages * kStageBytes, 0};
  Group group;
  group.nothing = static_cast<uint>(s.groups) >> 8;
  group.rows_left = 0;
#pragma unroll
  for (int c = 0; c < 16; ++c) group.statistics.sum[c] = group.statistics.squares[c] = 0.0f;
  Tile tile(s, at, count);
  for (int step = 0; step < kAhead; ++step) fetch(stages.of(step), work.x, s, tile, step);
  load_filters(shared, w);
  publish();
  __syncthreads();
  await(index);
  Matrix filters = matrix(shared_address(shared), 128, kDepth);
  while (tile.real) {
    Tile next(s, at += stride, count);
    steps(group, stages, filters, work, tile, next);
    tile = next;
  }
  group.ask(work.norm_x, s);
  group.store(work.y, s, table);
  wait_copies<0>();
#if RN_NORM
  finish(record.norm.partial, record.norm.partial_rows, group.statistics, reinterpret_cast<float*>(shared));
#elif RN_STATISTICS
  finish(record.statistics.partial, gridDim.x, group.statistics, reinterpret_cast<float*>(shared));
#endif
}
