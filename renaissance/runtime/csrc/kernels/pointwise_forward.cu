// y = activation(norm(x) + shortcut), its 1x1 convolution and the sums that statistics are made of, in
// one pass. RN_PROLOGUE: 0 x is convolved as it is, 1 norm, 2 with a shortcut, 3 with a normalised one.
//
// A warp works on tiles of rows from end to end: it makes y in registers, stores it and multiplies it.
// RN_AHEAD times RN_DEPTH steps of x and the shortcut are always on their way, into places of shared
// memory that only the thread which asked for them reads. A step is half a line of memory, so RN_DEPTH
// of them are asked for at once. Where several blocks share rows because one cannot multiply by all
// filters, they take turns in storing y.
//
// RN_STREAM: a block's filters do not fit its memory. Another kernel has brought them into the order of
// lanes; with each turn's rows comes that turn's part of them, and all warps wait for it together.
#include "norm.h"
#include "pointwise_operations.h"
#include "pointwise_tile.cuh"

using namespace rn;

constexpr bool kNorm = RN_PROLOGUE > 0, kShortcut = RN_PROLOGUE > 1, kBothNorms = RN_PROLOGUE > 2;
constexpr int kPadded = kSteps * 32, kNorms = kNorm + kBothNorms;
constexpr int kShares = RN_K / kFilters;  // blocks that see the same rows
constexpr int kSumBytes = kWarps * 2 * kFilters * 4;
constexpr int kSlots = RN_AHEAD + RN_STREAM;  // filters are read until all warps are behind them
constexpr int kHeldBytes = (RN_STREAM ? kSlots * RN_DEPTH * kStepFilters : kFilterPacks) * 16;
constexpr int kFilterBytes = kHeldBytes > kSumBytes ? kHeldBytes : kSumBytes;
constexpr int kNormBytes = kNorms * 3 * kPadded * 4;
constexpr int kPacks = kRowsOfLane * (1 + kShortcut);  // that a lane needs in a step
constexpr int kRingBytes = kSlots * RN_DEPTH * kPacks * kThreads * 16;
static_assert(kFilterBytes + kNormBytes + kRingBytes == RN_SHARED_BYTES, "planned otherwise");
static_assert(kSteps % RN_DEPTH == 0, "steps come in whole turns");

// Mean, scale and shift of all channels in shared memory, a row each; zeros behind the last channel.
__device__ __forceinline__ void load_norm(float* to, const Norm& norm) {
  for (int c = threadIdx.x; c < kPadded; c += kThreads) {
    bool real = c < RN_C;
    to[c] = real ? norm.mean[c] : 0.0f;
    to[kPadded + c] = real ? norm.gamma[c] * norm.inverse_std[c] : 0.0f;
    to[2 * kPadded + c] = real ? norm.beta[c] : 0.0f;
  }
}

// The constants of four channels.
struct FourNorms {
  float mean[4], scale[4], beta[4];

  __device__ __forceinline__ FourNorms(const float* from) {
    read(mean, from), read(scale, from + kPadded), read(beta, from + 2 * kPadded);
  }
  static __device__ __forceinline__ void read(float (&to)[4], const float* from) {
    Vector<float, 4> four = *reinterpret_cast<const Vector<float, 4>*>(from);
#pragma unroll
    for (int j = 0; j < 4; ++j) to[j] = four.value[j];
  }
  __device__ __forceinline__ float operator()(float x, int j) const {
    return (x - mean[j]) * scale[j] + beta[j];
  }
};

// ReLU and ReLU6 of a value are exact: rounding it first changes nothing.
__device__ __forceinline__ float activated(float z) {
  constexpr bool kExact = RN_ACTIVATION == kNone || RN_ACTIVATION == kRelu || RN_ACTIVATION == kRelu6;
  return activate(RN_ACTIVATION, kExact ? z : rounded<half_bits>(z));
}

// Whether the gradient passes the activation: a question to z as a half, answered without rounding it.
__device__ __forceinline__ bool passes(float z) {
  constexpr float kZero = 0x1p-25f, kSix = 6.0f - 0x1p-9f;  // the last to become 0, the first to be 6
  if (RN_ACTIVATION == kRelu) return !(z <= kZero);
  if (RN_ACTIVATION == kRelu6) return !(z <= kZero || z >= kSix);
  return is_open(RN_ACTIVATION, rounded<half_bits>(z));
}

struct Rows {
  Index first;  // this lane's first row; then every eighth
  Index at;     // where its channels of the first step lie
  bool inside[kRowsOfLane];

  __device__ __forceinline__ Rows(Index tile, Index tiles, Index rows) {
    first = (RN_DESCENDING ? tiles - 1 - tile : tile) * kWarpRows + threadIdx.x % 32 / 4;
    at = first * RN_C + threadIdx.x % 4 * 8;
#pragma unroll
    for (int r = 0; r < kRowsOfLane; ++r) inside[r] = tile < tiles && first + 8 * r < rows;
  }
};

__device__ __forceinline__ bool is_real(int channel) { return RN_C % 32 == 0 || channel < RN_C; }

// Walks over a warp's tiles and steps, and asks for what lies there. This thread's packs of a step are
// kThreads apart.
struct Fetch {
  Pack *ring, *filters;
  const Pack* packed;
  Index tile, apart, tiles;
  Rows rows;
  int step = 0, slot = 0;

  __device__ __forceinline__ Fetch(Pack* ring, Pack* filters, const Pack* packed, Index tile, Index apart,
                                   Index tiles, Index all)
      : ring(ring), filters(filters), packed(packed), tile(tile), apart(apart), tiles(tiles), rows(tile, tiles, all) {}

  __device__ __forceinline__ void next(const BatchNormApply& op) {
    const half_bits* x = static_cast<const half_bits*>(op.x);
    const half_bits* shortcut = static_cast<const half_bits*>(op.shortcut);
#pragma unroll
    for (int r = 0; r < kRowsOfLane; ++r)
#pragma unroll
      for (int d = 0; d < RN_DEPTH; ++d) {
        const Pack* to = ring + ((slot * RN_DEPTH + d) * kPacks + r) * kThreads;
        bool real = rows.inside[r] && is_real((step + d) * 32 + threadIdx.x % 4 * 8);
        Index at = real ? rows.at + (8 * r * RN_C + 32 * (step + d)) : 0;
        copy_async<16>(shared_address(to), x + at, real);
        if (kShortcut) copy_async<16>(shared_address(to + kRowsOfLane * kThreads), shortcut + at, real);
      }
    if (RN_STREAM)
#pragma unroll
      for (int i = threadIdx.x; i < RN_DEPTH * kStepFilters; i += kThreads)
        copy_async<16>(shared_address(filters + slot * RN_DEPTH * kStepFilters + i),
                       packed + step * kStepFilters + i, true);
    commit_copies();
    slot = slot + 1 == kSlots ? 0 : slot + 1;
    if ((step += RN_DEPTH) < kSteps) return;
    step = 0, tile += apart;
    rows = Rows(tile, tiles, op.rows);
  }
};

// x becomes y; bits become a byte of the mask for every row.
__device__ __forceinline__ void apply(Pack (&x)[kRowsOfLane], const Pack (&shortcut)[kRowsOfLane],
                                      const float* constants, uint (&bits)[kRowsOfLane]) {
#pragma unroll
  for (int r = 0; r < kRowsOfLane; ++r) bits[r] = 0;
#pragma unroll
  for (int four = 0; four < 2; ++four) {
    FourNorms norm(constants + 4 * four);
    FourNorms other(constants + 4 * four + (kBothNorms ? 3 * kPadded : 0));
#pragma unroll
    for (int r = 0; r < kRowsOfLane; ++r)
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        uint pair = x[r].value[2 * four + p], along = shortcut[r].value[2 * four + p];
        float z[2] = {norm(low_half(pair), 2 * p), norm(high_half(pair), 2 * p + 1)};
        float s[2] = {low_half(along), high_half(along)};
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (kBothNorms) z[e] += other(s[e], 2 * p + e);
          else if (kShortcut) z[e] += s[e];
          if (RN_MASK) bits[r] |= passes(z[e]) ? 1u << (4 * four + 2 * p + e) : 0u;
        }
        x[r].value[2 * four + p] = pack_halves(activated(z[0]), activated(z[1]));
      }
  }
}

extern "C" __global__ void __launch_bounds__(RN_THREADS, RN_BLOCKS)
    pointwise_forward_kernel(const PointwiseForward op) {
  extern __shared__ __align__(16) unsigned char shared[];
  Pack* filters = reinterpret_cast<Pack*>(shared);
  float* constants = reinterpret_cast<float*>(shared + kFilterBytes);
  Pack* ring = reinterpret_cast<Pack*>(shared + kFilterBytes + kNormBytes);
  int filter0 = blockIdx.y * kFilters, lane = threadIdx.x % 32;
  const half_bits* w = static_cast<const half_bits*>(op.w) + static_cast<Index>(filter0) * RN_C;
  if (!RN_STREAM) load_filters(filters, w, threadIdx.x, kThreads);
  if (kNorm) load_norm(constants, op.apply.norm);
  if (kBothNorms) load_norm(constants + 3 * kPadded, op.apply.shortcut_norm);
  if (kWarpgroups) publish_to_products();
  __syncthreads();
  Index tiles = (op.apply.rows + kWarpRows - 1) / kWarpRows, apart = gridDim.x * kWarps;
  half_bits* output = static_cast<half_bits*>(const_cast<void*>(op.statistics.x)) + filter0;
  Product product;
  product.begin();
  Index tile = blockIdx.x * kWarps + threadIdx.x / 32;
  const Pack* packed = static_cast<const Pack*>(op.packed) + blockIdx.y * kFilterPacks;
  Fetch fetch(ring + threadIdx.x, filters, packed, tile, apart, tiles, op.apply.rows);
#pragma unroll
  for (int i = 0; i < RN_AHEAD; ++i) fetch.next(op.apply);
  // Warps that wait for each other go on together: those of a warpgroup, or all.
  Index together = RN_STREAM ? threadIdx.x / 32 : (kWarpgroups ? threadIdx.x / 32 % 4 : 0);
  int slot = 0;
  for (; tile - together < tiles; tile += apart) {
    Rows rows(tile, tiles, op.apply.rows);
    product.clear();
#pragma unroll 1
    for (int turn = 0; turn < kSteps; turn += RN_DEPTH) {
      wait_copies<RN_AHEAD - 1>();
      if (RN_STREAM) {
        if (kWarpgroups) publish_to_products();
        __syncthreads();
      }
      const Pack* here = fetch.ring + slot * RN_DEPTH * kPacks * kThreads;
      const Pack* f = filters + (RN_STREAM ? slot * RN_DEPTH : turn) * kStepFilters;
      slot = slot + 1 == kSlots ? 0 : slot + 1;
#pragma unroll
      for (int d = 0; d < RN_DEPTH; ++d) {
        int step = turn + d, channel = step * 32 + lane % 4 * 8;
        Pack x[kRowsOfLane], shortcut[kRowsOfLane];
#pragma unroll
        for (int r = 0; r < kRowsOfLane; ++r) {
          load_copied(x[r].value, shared_address(here + (d * kPacks + r) * kThreads));
          shortcut[r] = Pack{};
          if (kShortcut)
            load_copied(shortcut[r].value,
                        shared_address(here + (d * kPacks + kRowsOfLane + r) * kThreads));
        }
        if (d == RN_DEPTH - 1) fetch.next(op.apply);
        if (kNorm) {
          uint bits[kRowsOfLane];
          apply(x, shortcut, constants + channel, bits);
          bool mine = step / RN_DEPTH % kShares == blockIdx.y;
#pragma unroll
          for (int r = 0; r < kRowsOfLane; ++r) {
            if (!rows.inside[r]) x[r] = Pack{};
            if (!mine || !rows.inside[r] || !is_real(channel)) continue;
            Index at = rows.at + (8 * r * RN_C + 32 * step);
            *reinterpret_cast<Pack*>(static_cast<half_bits*>(op.apply.y) + at) = x[r];
            if (RN_MASK)
              static_cast<unsigned char*>(op.apply.mask)[at / 8] = static_cast<unsigned char>(bits[r]);
          }
        }
        product.add(f, d, x);
      }
    }
    product.finish(output + rows.first * RN_K, rows.inside);
  }
  wait_copies<0>();  // none may arrive where the sums are about to lie
  Index row = static_cast<Index>(blockIdx.x) * 2 * RN_K + filter0;
  product.write(reinterpret_cast<float*>(shared), op.statistics.partial + row);
}

// Brings all filters into the order of lanes, block after block; blockIdx.y is the block.
extern "C" __global__ void __launch_bounds__(RN_THREADS)
    pointwise_filters_kernel(const PointwiseForward op) {
  const half_bits* w = static_cast<const half_bits*>(op.w) + blockIdx.y * kFilters * RN_C;
  load_filters(static_cast<Pack*>(op.packed) + blockIdx.y * kFilterPacks, w,
               blockIdx.x * kThreads + threadIdx.x, gridDim.x * kThreads);
}
