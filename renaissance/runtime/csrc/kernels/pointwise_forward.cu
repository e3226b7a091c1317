// y = activation(norm(x) + shortcut), its 1x1 convolution and the sums that statistics are made of, in
// one pass. RN_PROLOGUE says what of y there is (pointwise_norm.cuh).
//
// A warp works on tiles of rows from end to end: it makes y in registers, stores it and multiplies it. A
// step is half a line of memory, so RN_DEPTH of them are asked for in a turn. RN_AHEAD turns of x and the
// shortcut are always on their way, into places of shared memory that only the thread which asked for
// them reads; with RN_AHEAD 0 the next turn is on its way into registers. Where several blocks share rows
// because one cannot multiply by all filters, they take turns in storing y.
#include "pointwise_norm.cuh"

using namespace rn;

constexpr int kShares = RN_K / kFilters;  // blocks that see the same rows
constexpr int kSumBytes = kWarps * 2 * kFilters * 4;
constexpr int kFilterBytes = kFilterPacks * 16 > kSumBytes ? kFilterPacks * 16 : kSumBytes;
constexpr int kNormBytes = kNorms * 3 * kPadded * 4;
constexpr int kPacks = kRowsOfLane * (1 + kShortcut);  // that a lane needs in a step
constexpr int kRingBytes = RN_AHEAD * RN_DEPTH * kPacks * kThreads * 16;
constexpr bool kInRegisters = RN_AHEAD == 0;
constexpr int kUnroll = kInRegisters ? 2 : 1;  // packs need not change their registers then
static_assert(kFilterBytes + kNormBytes + kRingBytes == RN_SHARED_BYTES, "planned otherwise");
static_assert(kSteps % RN_DEPTH == 0, "steps come in whole turns");

// A lane's rows of a warp's tile.
struct Rows {
  Index first;  // lane / 4; the other one is 8 behind
  Index at;     // where its channels of the first step lie
  bool inside[kRowsOfLane];

  __device__ __forceinline__ Rows(Index tile, Index tiles, Index rows) {
    first = (RN_DESCENDING ? tiles - 1 - tile : tile) * kWarpRows + threadIdx.x % 32 / 4;
    at = first * RN_C + threadIdx.x % 4 * 8;
#pragma unroll
    for (int r = 0; r < kRowsOfLane; ++r) inside[r] = tile < tiles && first + 8 * r < rows;
  }

  __device__ __forceinline__ bool is_real(int r, int step) const {
    return inside[r] && (RN_C % 32 == 0 || step * 32 + threadIdx.x % 4 * 8 < RN_C);
  }
};

// What a lane needs in a turn.
struct Turn {
  Pack x[RN_DEPTH][kRowsOfLane], shortcut[RN_DEPTH][kRowsOfLane];

  __device__ __forceinline__ void load(const BatchNormApply& op, const Rows& rows, int step) {
#pragma unroll
    for (int d = 0; d < RN_DEPTH; ++d)
#pragma unroll
      for (int r = 0; r < kRowsOfLane; ++r) {
        bool real = rows.is_real(r, step + d);
        Index at = rows.at + (8 * r * RN_C + 32 * (step + d));
        x[d][r] = shortcut[d][r] = Pack{};
        if (real) x[d][r] = *pack_at(op.x, at);
        if (kShortcut && real) shortcut[d][r] = *pack_at(op.shortcut, at);
      }
  }

  static __device__ __forceinline__ const Pack* pack_at(const void* map, Index at) {
    return reinterpret_cast<const Pack*>(static_cast<const half_bits*>(map) + at);
  }
};

// Walks over a warp's tiles and turns, and asks for what lies there. This thread's packs of a step are
// kThreads apart in the ring.
struct Fetch {
  Pack* ring;
  Index tile, apart, tiles;
  Rows rows;
  int step, slot;
  Turn held;

  __device__ __forceinline__ void next(const BatchNormApply& op) {
    if (kInRegisters) held.load(op, rows, step);
    else copy(op);
    if ((step += RN_DEPTH) < kSteps) return;
    step = 0, tile += apart;
    rows = Rows(tile, tiles, op.rows);
  }

  __device__ __forceinline__ Pack* place(int d, int r) const {
    return ring + ((slot * RN_DEPTH + d) * kPacks + r) * kThreads;
  }

  __device__ __forceinline__ void copy(const BatchNormApply& op) {
    const half_bits* x = static_cast<const half_bits*>(op.x);
    const half_bits* shortcut = static_cast<const half_bits*>(op.shortcut);
#pragma unroll
    for (int r = 0; r < kRowsOfLane; ++r)
#pragma unroll
      for (int d = 0; d < RN_DEPTH; ++d) {
        bool real = rows.is_real(r, step + d);
        Index at = real ? rows.at + (8 * r * RN_C + 32 * (step + d)) : 0;
        copy_async<16>(shared_address(place(d, r)), x + at, real);
        if (kShortcut) copy_async<16>(shared_address(place(d, kRowsOfLane + r)), shortcut + at, real);
      }
    commit_copies();
    slot = slot + 1 == RN_AHEAD ? 0 : slot + 1;
  }

  // A step of the turn that came first, out of its slot.
  __device__ __forceinline__ void take(Turn& turn, int d) const {
#pragma unroll
    for (int r = 0; r < kRowsOfLane; ++r) {
      load_copied(turn.x[d][r].value, shared_address(place(d, r)));
      turn.shortcut[d][r] = Pack{};
      if (kShortcut)
        load_copied(turn.shortcut[d][r].value, shared_address(place(d, kRowsOfLane + r)));
    }
  }
};

// Stores y and the mask of a step, as far as there is any; rows beyond the map become zeros.
__device__ __forceinline__ void store(const BatchNormApply& op, const Rows& rows, int step, bool mine,
                                      Pack (&y)[kRowsOfLane], const uint (&bits)[kRowsOfLane]) {
#pragma unroll
  for (int r = 0; r < kRowsOfLane; ++r) {
    if (!rows.inside[r]) y[r] = Pack{};
    if (!mine || !rows.is_real(r, step)) continue;
    Index at = rows.at + (8 * r * RN_C + 32 * step);
    if (op.y) *reinterpret_cast<Pack*>(static_cast<half_bits*>(op.y) + at) = y[r];
    if (RN_MASK) static_cast<unsigned char*>(op.mask)[at / 8] = static_cast<unsigned char>(bits[r]);
  }
}

extern "C" __global__ void __launch_bounds__(RN_THREADS, RN_BLOCKS)
    pointwise_forward_kernel(const PointwiseForward op) {
  extern __shared__ __align__(16) unsigned char shared[];
  Pack* filters = reinterpret_cast<Pack*>(shared);
  float* constants = reinterpret_cast<float*>(shared + kFilterBytes);
  Pack* ring = reinterpret_cast<Pack*>(shared + kFilterBytes + kNormBytes);
  int filter0 = blockIdx.y * kFilters, lane = threadIdx.x % 32;
  load_filters(filters, static_cast<const half_bits*>(op.w) + static_cast<Index>(filter0) * RN_C);
  if (kNorm) load_norm(constants, op.apply.norm);
  if (kBothNorms) load_norm(constants + 3 * kPadded, op.apply.shortcut_norm);
  __syncthreads();
  Index tiles = (op.apply.rows + kWarpRows - 1) / kWarpRows, apart = gridDim.x * kWarps;
  half_bits* output = static_cast<half_bits*>(const_cast<void*>(op.statistics.x)) + filter0;
  Product product;
  product.begin();
  Index tile = blockIdx.x * kWarps + threadIdx.x / 32;
  Fetch fetch{ring + threadIdx.x, tile, apart, tiles, Rows(tile, tiles, op.apply.rows), 0, 0, {}};
#pragma unroll
  for (int i = 0; i < (kInRegisters ? 1 : RN_AHEAD); ++i) fetch.next(op.apply);
  for (; tile < tiles; tile += apart) {
    Rows rows(tile, tiles, op.apply.rows);
    product.clear();
#pragma unroll kUnroll
    for (int first = 0; first < kSteps; first += RN_DEPTH) {
      Turn turn;
      if constexpr (kInRegisters) {
        turn = fetch.held;
        fetch.next(op.apply);
      } else {
        wait_copies<RN_AHEAD - 1>();
      }
#pragma unroll
      for (int d = 0; d < RN_DEPTH; ++d) {
        int step = first + d;
        if (!kInRegisters) fetch.take(turn, d);
        if (!kInRegisters && d == RN_DEPTH - 1) fetch.next(op.apply);  // into the slot just emptied
        if (kNorm) {
          uint bits[kRowsOfLane];
          apply(turn.x[d], turn.shortcut[d], constants + step * 32 + lane % 4 * 8, bits);
          store(op.apply, rows, step, step / RN_DEPTH % kShares == blockIdx.y, turn.x[d], bits);
        }
        product.add(filters, step, turn.x[d]);
      }
    }
    product.finish(output + rows.first * RN_K, rows.inside);
  }
  Index row = static_cast<Index>(blockIdx.x) * 2 * RN_K + filter0;
  product.write(reinterpret_cast<float*>(shared), op.statistics.partial + row);
}
