// Depthwise convolution: forward and data gradient.
//
// A thread computes a patch of RN_TILE_P x RN_TILE_Q pixels of one pack of channels. Each row of the
// input that the patch needs is read once, into registers; filters wait in shared memory as floats.
// RN_DATA: which of the two kernels this is. Two blocks to a multiprocessor bound the registers.
#include "map.cuh"

using namespace rn;

constexpr int kTaps = RN_R * RN_S, kPatchRows = RN_TILE_P, kPatchColumns = RN_TILE_Q;

// Keeps the compiler from holding all filters in registers over the whole loop, which spills.
#define RELOAD_FILTERS asm volatile("" ::: "memory")

// The block's filters (channel, tap) as (tap, channel).
struct Filters {
  float tap[kTaps][kTile * kWidth];

  __device__ __forceinline__ void read(const void* w) {
    const Element* from = static_cast<const Element*>(w);
    int c0 = blockIdx.y * kTile * kWidth;
    for (int i = threadIdx.x; i < kTaps * kTile * kWidth; i += kThreads) {
      int c = c0 + i / kTaps;
      tap[i % kTaps][i / kTaps] = c < RN_C ? widen(from[c0 * kTaps + i]) : 0.0f;
    }
    __syncthreads();
  }
};

// A patch of an output map: its image, and its first pixel.
struct Patch {
  Index n;
  int row, column;

  __device__ __forceinline__ Patch(Index index, Index rows, Index columns) {
    uint across = static_cast<uint>(columns + kPatchColumns - 1) / kPatchColumns;
    uint down = static_cast<uint>(rows + kPatchRows - 1) / kPatchRows;
    uint line = static_cast<uint>(index / across);
    column = static_cast<int>(index - static_cast<Index>(line) * across) * kPatchColumns;
    n = line / down;
    row = static_cast<int>(line % down) * kPatchRows;
  }

  static __device__ __forceinline__ Index count(Index n, Index rows, Index columns) {
    return n * ((rows + kPatchRows - 1) / kPatchRows) * ((columns + kPatchColumns - 1) / kPatchColumns);
  }
};

typedef Floats Sums[kPatchRows][kPatchColumns];

__device__ __forceinline__ void clear(Sums& sum) {
#pragma unroll
  for (int i = 0; i < kPatchRows; ++i)
#pragma unroll
    for (int j = 0; j < kPatchColumns; ++j) zero(sum[i][j]);
}

__device__ __forceinline__ void write(void* map, const Patch& at, Index rows, Index columns, int column,
                                      const Sums& sum) {
#pragma unroll
  for (int i = 0; i < kPatchRows; ++i)
#pragma unroll
    for (int j = 0; j < kPatchColumns; ++j)
      if (at.row + i < rows && at.column + j < columns)
        store(map, (at.n * rows + at.row + i) * columns + at.column + j, column, sum[i][j]);
}

__device__ __forceinline__ void load_or_zero(Floats& to, const void* map, Index n, int row, int pixel,
                                             Index rows, Index columns, int column) {
  if (row < 0 || row >= rows || pixel < 0 || pixel >= columns)
    zero(to);
  else
    load(to, map, (n * rows + row) * columns + pixel, column);
}

#if !RN_DATA

extern "C" __global__ void __launch_bounds__(256, 2)
    depthwise_conv_forward_kernel(const DepthwiseConvForward op) {
  __shared__ Filters filters;
  filters.read(op.w);
  Reduction block;
  if (!block.active) return;
  const ConvShape& s = op.shape;
  constexpr int kRows = (kPatchRows - 1) * RN_STRIDE + RN_R;
  constexpr int kSeen = (kPatchColumns - 1) * RN_STRIDE + RN_S;
  Index step = static_cast<Index>(gridDim.x) * kRowLanes, patches = Patch::count(s.n, s.p, s.q);
  for (Index i = static_cast<Index>(blockIdx.x) * kRowLanes + block.lane; i < patches; i += step) {
    Patch at(i, s.p, s.q);
    Sums sum;
    clear(sum);
#pragma unroll
    for (int h = 0; h < kRows; ++h) {
      RELOAD_FILTERS;
#pragma unroll
      for (int w = 0; w < kSeen; ++w) {
        Floats x;
        load_or_zero(x, op.x, at.n, at.row * RN_STRIDE - RN_PAD + h,
                     at.column * RN_STRIDE - RN_PAD + w, s.h, s.w, block.column);
#pragma unroll
        for (int p = 0; p < kPatchRows; ++p)
#pragma unroll
          for (int q = 0; q < kPatchColumns; ++q) {
            const int r = h - p * RN_STRIDE, t = w - q * RN_STRIDE;
            if (r < 0 || r >= RN_R || t < 0 || t >= RN_S) continue;
            const float* f = &filters.tap[r * RN_S + t][block.slot * kWidth];
#pragma unroll
            for (int j = 0; j < kWidth; ++j) sum[p][q][j] += x[j] * f[j];
          }
      }
    }
    write(op.y, at, s.p, s.q, block.column, sum);
  }
}

#else

// Outputs see a patch of the input in steps of the stride: with patches as wide as a multiple of it,
// which tap joins which pixel to which output is known when the kernel is compiled.
static_assert(kPatchRows % RN_STRIDE == 0 && kPatchColumns % RN_STRIDE == 0, "patch and stride");

constexpr int floor_div(int a, int b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

extern "C" __global__ void __launch_bounds__(256, 2)
    depthwise_conv_backward_data_kernel(const DepthwiseConvBackwardData op) {
  __shared__ Filters filters;
  filters.read(op.w);
  Reduction block;
  if (!block.active) return;
  const ConvShape& s = op.shape;
  constexpr int kFirstRow = -floor_div(RN_R - 1 - RN_PAD, RN_STRIDE);
  constexpr int kLastRow = floor_div(kPatchRows - 1 + RN_PAD, RN_STRIDE);
  constexpr int kFirstColumn = -floor_div(RN_S - 1 - RN_PAD, RN_STRIDE);
  constexpr int kLastColumn = floor_div(kPatchColumns - 1 + RN_PAD, RN_STRIDE);
  Index step = static_cast<Index>(gridDim.x) * kRowLanes, patches = Patch::count(s.n, s.h, s.w);
  for (Index i = static_cast<Index>(blockIdx.x) * kRowLanes + block.lane; i < patches; i += step) {
    Patch at(i, s.h, s.w);
    int p0 = at.row / RN_STRIDE, q0 = at.column / RN_STRIDE;
    Sums sum;
    clear(sum);
#pragma unroll
    for (int p = kFirstRow; p <= kLastRow; ++p) {
      RELOAD_FILTERS;
#pragma unroll
      for (int q = kFirstColumn; q <= kLastColumn; ++q) {
        Floats d;
        load_or_zero(d, op.dy, at.n, p0 + p, q0 + q, s.p, s.q, block.column);
#pragma unroll
        for (int h = 0; h < kPatchRows; ++h)
#pragma unroll
          for (int w = 0; w < kPatchColumns; ++w) {
            const int r = h + RN_PAD - p * RN_STRIDE, t = w + RN_PAD - q * RN_STRIDE;
            if (r < 0 || r >= RN_R || t < 0 || t >= RN_S) continue;
            const float* f = &filters.tap[r * RN_S + t][block.slot * kWidth];
#pragma unroll
            for (int j = 0; j < kWidth; ++j) sum[h][w][j] += d[j] * f[j];
          }
      }
    }
    write(op.dx, at, s.h, s.w, block.column, sum);
  }
}

#endif
