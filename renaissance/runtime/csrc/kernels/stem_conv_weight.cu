// Gradient of the filters of a convolution of four channels: a product over all outputs, in pieces.
//
// dw[k][r][s, c] = sum over windows of dy[window][k] x[window, row r][s, c], with windows as in
// stem_conv.cuh. A warp keeps the sums of RN_FILTER_ROWS rows of taps for RN_CHANNELS channels in registers
// while its block walks over groups of rows, RN_STAGES - 1 of them on their way from memory; warps share
// the windows of a tile, or deal the tiles out. Each block leaves one piece in the workspace, and a
// second kernel adds the pieces in their order.
#include "stem_conv.cuh"

using namespace rn;

constexpr int kWide = kAcross * RN_K;  // channels of the outputs of a window
constexpr int kOfWarp = RN_CHANNELS;
constexpr int kBlocksM = kOfWarp / 16, kBlocksN = kDepth / 8;
constexpr int kChannelWarps = (kWide + kOfWarp - 1) / kOfWarp;
constexpr int kFilterWarps = (RN_R + RN_FILTER_ROWS - 1) / RN_FILTER_ROWS;
constexpr int kJobs = kChannelWarps * kFilterWarps;
constexpr int kWarps = kJobs * RN_PARTS, kThreads = kWarps * 32;
constexpr int kVectors = kWide / 8;
constexpr int kPitch = (kVectors | 1) * 8;  // odd: matrix loads without bank conflicts
constexpr int kPiece = kWide * RN_R * kDepth;  // floats of a block's piece
constexpr int kSlack = kChannelWarps * kOfWarp > kPitch ? kChannelWarps * kOfWarp - kPitch : 0;
static_assert(RN_K % 8 == 0, "whole vectors");

// A stage in shared memory: rows of x, then windows of dy.
struct Stage {
  int x_elements, elements;

  __device__ __forceinline__ explicit Stage(const RowTiles& tiles) {
    x_elements = kRows * tiles.pitch * kChannels;
    elements = x_elements + (RN_ROWS * tiles.count * kTile * kPitch + kSlack + 7) / 8 * 8;
  }
};

__device__ __forceinline__ void fetch_outputs(half_bits* to, const ConvBackwardWeight& op,
                                              const Group& group, const RowTiles& tiles) {
  const ConvShape& s = op.shape;
  int of_row = tiles.count * kTile * kVectors;
  for (int row = 0; row < RN_ROWS; ++row) {
    bool real = group.p0 + row < s.p;
    Index line = real ? (group.n * s.p + group.p0 + row) * s.q : 0;
    const half_bits* from = static_cast<const half_bits*>(op.dy) + line * RN_K;
    half_bits* place = to + row * tiles.count * kTile * kPitch;
    for (int i = threadIdx.x; i < of_row; i += kThreads) {
      int m = i / kVectors, vector = i % kVectors;
      bool inside = real && m * kAcross + vector / (RN_K / 8) < s.q;
      copy_async<16>(shared_address(place + m * kPitch + vector * 8), from + (inside ? i * 8 : 0),
                     inside);
    }
  }
}

struct Sums {
  float value[RN_FILTER_ROWS][kBlocksM][kBlocksN][4];

  __device__ __forceinline__ Sums() {
    each([](int, int, int, float& x, float& y) { x = y = 0.0f; });
  }

  // Calls function(r, m, n, first, second) for pairs of neighbours along n.
  template <class Function>
  __device__ __forceinline__ void each(Function function) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < RN_FILTER_ROWS; ++r)
#pragma unroll
      for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
        for (int j = 0; j < kBlocksN; ++j)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            function(r, 16 * i + lane / 4 + 8 * half, 8 * j + lane % 4 * 2,
                     value[r][i][j][2 * half], value[r][i][j][2 * half + 1]);
  }

  // `rows` of taps are real: where warps do not share them evenly, the last has fewer.
  __device__ __forceinline__ void multiply(SharedAddress dy, SharedAddress x, int row_bytes,
                                           int rows) {
    uint left[kBlocksM][4];
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i) load_matrices_transposed(left[i], dy + i * 32);
#pragma unroll
    for (int r = 0; r < RN_FILTER_ROWS; ++r) {
      if (RN_R % RN_FILTER_ROWS != 0 && r >= rows) break;
#pragma unroll
      for (int j = 0; j < kBlocksN; j += 2) {
        uint right[4];
        load_matrices_transposed(right, x + r * row_bytes + j * 16);
#pragma unroll
        for (int i = 0; i < kBlocksM; ++i) {
          multiply_add(value[r][i][j], left[i], right[0], right[1]);
          multiply_add(value[r][i][j + 1], left[i], right[2], right[3]);
        }
      }
    }
  }
};

// Adds the sums of all parts, in their order, to those of part 0.
__device__ __forceinline__ void add_parts(Sums& sums, float* shared, int part, int job) {
  constexpr int kOfJob = RN_FILTER_ROWS * kBlocksM * kBlocksN * 4 * 32;
  wait_copies<0>();
  for (int other = 1; other < RN_PARTS; ++other) {
    __syncthreads();
    float* mine = shared + job * kOfJob + threadIdx.x % 32 * 2;
    if (part == other)
      sums.each([&](int, int, int, float& first, float& second) {
        *reinterpret_cast<Vector<float, 2>*>(mine) = {first, second};
        mine += 64;
      });
    __syncthreads();
    if (part == 0)
      sums.each([&](int, int, int, float& first, float& second) {
        first += mine[0], second += mine[1];
        mine += 64;
      });
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, RN_BLOCKS)
    stem_conv_weight_kernel(const ConvBackwardWeight op) {
  extern __shared__ __align__(16) unsigned char shared[];
  const ConvShape& s = op.shape;
  RowTiles tiles(s);
  Stage layout(tiles);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int part = warp / kJobs, k0 = warp % kJobs / kFilterWarps * kOfWarp;
  int r0 = warp % kFilterWarps * RN_FILTER_ROWS, row_elements = tiles.pitch * kChannels;
  int count = Group::count(s), step = gridDim.x, stage = 0;
  half_bits* stages = reinterpret_cast<half_bits*>(shared);
  Sums sums;
  auto fetch = [&](int to, int index) {
    if (index < count) {
      half_bits* place = stages + to * layout.elements;
      Group group(s, index);
      fetch_outputs(place + layout.x_elements, op, group, tiles);
      fetch_rows<kWarps>(place, op.x, s, group, tiles.pitch);
    }
    commit_copies();
  };
  for (int ahead = 0; ahead < RN_STAGES - 1; ++ahead) fetch(ahead, blockIdx.x + ahead * step);
  for (int index = blockIdx.x; index < count; index += step) {
    wait_copies<RN_STAGES - 2>();
    __syncthreads();
    fetch((stage + RN_STAGES - 1) % RN_STAGES, index + (RN_STAGES - 1) * step);
    const half_bits* x = stages + stage * layout.elements;
    const half_bits* dy = x + layout.x_elements + k0;
    int rows = min(RN_ROWS, static_cast<int>(s.p) - Group(s, index).p0);
    for (int i = part; i < rows * tiles.count; i += RN_PARTS) {
      int row = i / tiles.count, m0 = (i - row * tiles.count) * kTile;
      const half_bits* outputs =
          dy + (i * kTile + lane / 16 * 8 + lane % 8) * kPitch + lane % 16 / 8 * 8;
      const half_bits* windows = x + (row * RN_STRIDE + r0) * row_elements +
                                 (m0 + lane % 16) * kStep * kChannels + lane / 16 * 8;
      sums.multiply(shared_address(outputs), shared_address(windows), row_elements * 2,
                    RN_R - r0);
    }
    stage = (stage + 1) % RN_STAGES;
  }
  add_parts(sums, reinterpret_cast<float*>(shared), part, warp % kJobs);
  if (part > 0) return;
  float* piece = static_cast<float*>(op.workspace) + static_cast<Index>(blockIdx.x) * kPiece;
  sums.each([&](int r, int m, int n, float& first, float& second) {
    if (k0 + m >= kWide || r0 + r >= RN_R) return;
    float* to = piece + ((k0 + m) * RN_R + r0 + r) * kDepth + n;
    *reinterpret_cast<Vector<float, 2>*>(to) = {first, second};
  });
}

// Blocks of 32 elements of dw by 32 lanes, each lane with its share of the pieces.
extern "C" __global__ void __launch_bounds__(1024)
    stem_conv_weight_finish_kernel(const ConvBackwardWeight op) {
  __shared__ double lanes[32][33];
  constexpr int kTaps = RN_S * kChannels, kCount = RN_K * RN_R * kTaps;
  int element = blockIdx.x * 32 + threadIdx.x % 32, lane = threadIdx.x / 32;
  int k = element / (RN_R * kTaps), r = element / kTaps % RN_R, tap = element % kTaps;
  const float* from = static_cast<const float*>(op.workspace);
  double sum = 0.0;
  if (element < kCount)
#pragma unroll 4
    for (int piece = lane; piece < RN_PIECES; piece += 32)
#pragma unroll
      for (int u = 0; u < kAcross; ++u)
        sum += from[static_cast<Index>(piece) * kPiece + ((u * RN_K + k) * RN_R + r) * kDepth +
                    u * RN_STRIDE * kChannels + tap];
  lanes[lane][threadIdx.x % 32] = sum;
  __syncthreads();
  if (lane > 0 || element >= kCount) return;
  double total = 0.0;
  for (int l = 0; l < 32; ++l) total += lanes[l][threadIdx.x];
  static_cast<half_bits*>(op.dw)[element] = narrow<half_bits>(static_cast<float>(total));
}
