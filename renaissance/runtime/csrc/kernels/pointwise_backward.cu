// Gradient of the input of a 1x1 convolution, with the first pass of the norm in front of it as the
// epilogue: dz and its sums come from the product while it is still on the chip.
//
// A block keeps RN_TILE_N columns of w in shared memory and walks over tiles of RN_TILE_M pixels, so
// its sums stay in registers. Bytes are what limits it: dy comes in slices of RN_SLICE, RN_STAGES of
// them in flight, and what the epilogue reads of a tile is fetched during the epilogue before it, each
// pack by the thread that will use it.
//
// RN_ADDEND: dy is a sum of two (addend.cuh). RN_MASK: 1 the activation's output is given, 2 the bits where it is
// not flat; else norm(x) is computed again. RN_SHORTCUT: 0 none, 1 dz stays in dshortcut, 2 the
// shortcut was normalised too.
#include "addend.cuh"
#include "pointwise_backward.h"
#include "pointwise_product.cuh"

using namespace rn;

constexpr int kStages = RN_STAGES;
static_assert(kStages > 1 && kWidth == 8 && RN_K % 8 == 0, "vectors of 16 bytes");

// The epilogue: a thread keeps to one pack of channels, kLanes pixels side by side.
constexpr int kPacks = kTileN / kWidth, kLanes = kThreads / kPacks;
constexpr int kSteps = (kTileM + kLanes - 1) / kLanes;
constexpr int kSums = RN_SHORTCUT == 2 ? 3 : 2;

// Maps that the epilogue reads, in the order of their places in shared memory; x is the first.
constexpr int kAddend = 1, kGate = kAddend + (RN_ADDEND > 0), kShortcut = kGate + (RN_MASK == 1);
constexpr int kMaps = kShortcut + (RN_SHORTCUT == 2);

// Halves in shared memory: w, the stages of dy, the tile's product, packs of maps, words of bits.
constexpr int kDyAt = kFilterElements, kProductAt = kDyAt + kStages * kSliceElements;
constexpr int kMapsAt = kProductAt + kTileM * kPitch;
constexpr int kBitsAt = kMapsAt + kMaps * kSteps * kThreads * kWidth;
constexpr int kEnd = kBitsAt + (RN_MASK == 2 ? kSteps * kThreads * 2 : 0);
static_assert(kEnd * 2 <= RN_SHARED_BYTES, "the plan counts otherwise");
static_assert(kTileM * kPitch * 2 >= kThreads * kWidth * 4, "the lanes' sums take the product's place");

// The tiles that a block walks over: every gridDim.y-th one, so that all blocks read neighbours.
struct Tiles {
  Index rows;

  __device__ __forceinline__ Index row(int index) const {
    return (blockIdx.y + static_cast<Index>(index) * gridDim.y) * kTileM;
  }
  __device__ __forceinline__ bool has(int index) const { return row(index) < rows; }
};

struct Epilogue {
  const BatchNormBackward& op;
  half_bits* shared;
  int slot, lane, column;
  bool active;
  PackNorm norm;
  Floats sum, product, other, center;

  __device__ __forceinline__ Epilogue(const BatchNormBackward& op, half_bits* shared)
      : op(op), shared(shared) {
    slot = threadIdx.x % kPacks, lane = threadIdx.x / kPacks;
    column = blockIdx.x * kPacks + slot;
    active = lane < kLanes && column < kColumns;
    zero(sum), zero(product), zero(other);
    if (!active) return;
    norm.read(op.norm, column);
    if (RN_SHORTCUT == 2) constants(center, op.shortcut_norm.mean, column);
  }

  __device__ __forceinline__ half_bits* place(int map, int step) const {
    return shared + kMapsAt + ((map * kSteps + step) * kThreads + threadIdx.x) * kWidth;
  }
  __device__ __forceinline__ uint* bits_place(int step) const {
    return reinterpret_cast<uint*>(shared + kBitsAt) + step * kThreads + threadIdx.x;
  }
  __device__ __forceinline__ Index pack_of(Index row) const { return row * kColumns + column; }

  __device__ __forceinline__ void fetch_pack(int map, int step, const void* from, Index pack) const {
    copy_async<16>(shared_address(place(map, step)),
                   static_cast<const half_bits*>(from) + pack * kWidth, true);
  }

  // Calls function(step, row) for the thread's pixels of the tile from row0.
  template <class Function>
  __device__ __forceinline__ void each(Index row0, Function function) const {
    if (!active) return;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      int inner = step * kLanes + lane;
      if (kTileM % kLanes != 0 && inner >= kTileM) continue;
      if (row0 + inner < op.rows) function(step, row0 + inner);
    }
  }

  // Starts the copies of all that the epilogue of a tile reads.
  __device__ __forceinline__ void fetch(Index row0) const {
    each(row0, [&](int step, Index row) {
      Index pack = pack_of(row);
      fetch_pack(0, step, op.x, pack);
#if RN_ADDEND
      Index other = addend_pixel(row);
      if (other >= 0) fetch_pack(kAddend, step, op.addend, pack_of(other));
#endif
      if (RN_MASK == 1) fetch_pack(kGate, step, op.gate, pack);
      if (RN_SHORTCUT == 2) fetch_pack(kShortcut, step, op.shortcut, pack);
#if RN_MASK == 2
      const char* byte = static_cast<const char*>(op.mask) + pack;  // of an aligned word
      copy_async<4>(shared_address(bits_place(step)), byte - (pack & 3), true);
#endif
    });
  }

  __device__ __forceinline__ void read(Floats& to, int map, int step) const {
    unpack(to, *reinterpret_cast<const Pack*>(place(map, step)));
  }

  // dz of the tile from its product, into memory and into the sums.
  __device__ __forceinline__ void use(Index row0) {
    void* stash = RN_SHORTCUT == 1 ? op.dshortcut : const_cast<void*>(op.dy);
    each(row0, [&](int step, Index row) {
      int inner = static_cast<int>(row - row0);
      Floats dz, x, more;
      unpack(dz, *reinterpret_cast<const Pack*>(shared + kProductAt + inner * kPitch +
                                                slot * kWidth));
      read(x, 0, step);
      if (RN_ADDEND && addend_pixel(row) >= 0) {
        read(more, kAddend, step);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) dz[j] = rounded<Element>(dz[j] + more[j]);
      }
      if (RN_MASK == 1) read(more, kGate, step);
      uint bits = RN_MASK == 2 ? *bits_place(step) >> (pack_of(row) & 3) * 8 : 0;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        if (RN_MASK == 2)
          dz[j] *= bits >> j & 1 ? 1.0f : 0.0f;
        else if (RN_MASK == 1)
          dz[j] *= activation_slope(RN_ACTIVATION, more[j]);
        else if (RN_ACTIVATION)
          dz[j] = masked(dz[j], norm(x[j], j));
      }
      store(stash, row, column, dz);
      if (RN_SHORTCUT == 2) read(more, kShortcut, step);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        sum[j] += dz[j];
        product[j] += dz[j] * (x[j] - norm.mean[j]);
        if (RN_SHORTCUT == 2) other[j] += dz[j] * (more[j] - center[j]);
      }
    });
  }

  // dz for a z not yet rounded: comparing with the largest value that rounds to a kink says as much as
  // rounding would.
  static __device__ __forceinline__ float masked(float dz, float z) {
    bool flat = z <= 0x1p-25f || (RN_ACTIVATION == kRelu6 && z >= 0x1.7fep2f);
    return flat ? 0.0f * dz : dz;
  }

  // Adds up the lanes in order and writes row blockIdx.y of sums number `which`.
  __device__ __forceinline__ void write(const Floats& mine, int which) const {
    float* lanes = reinterpret_cast<float*>(shared + kProductAt);
    __syncthreads();
    if (lane < kLanes)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) lanes[lane * kTileN + slot * kWidth + j] = mine[j];
    __syncthreads();
    float* row = op.partial + (static_cast<Index>(blockIdx.y) * kSums + which) * RN_C;
    for (int i = threadIdx.x; i < kTileN; i += kThreads) {
      int c = blockIdx.x * kTileN + i;
      if (c >= RN_C) continue;
      float total = 0.0f;
      for (int l = 0; l < kLanes; ++l) total += lanes[l * kTileN + i];
      row[c] = total;
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, RN_BLOCKS)
    pointwise_backward_data_kernel(const PointwiseBackwardData op) {
  extern __shared__ __align__(1024) unsigned char shared[];
  half_bits* halves = reinterpret_cast<half_bits*>(shared);
  const Tiles tiles{op.norm.rows};
  load_filters(halves, static_cast<const half_bits*>(op.w), blockIdx.x * kTileN);
  // Slices are numbered through all tiles; `next` is brought in while `at` is used.
  int next = 0, at = 0;
  auto fetch = [&] {
    if (tiles.has(next / kSlices))
      load_slice(halves + kDyAt + next % kStages * kSliceElements,
                 static_cast<const half_bits*>(op.dy), static_cast<int>(tiles.rows),
                 static_cast<int>(tiles.row(next / kSlices)), next % kSlices * kSlice);
    ++next;
    commit_copies();
  };
  while (next < kStages - 1) fetch();
  Epilogue epilogue(op.norm, halves);
  epilogue.fetch(tiles.row(0));
  commit_copies();
  Product product;
  for (int tile = 0; tiles.has(tile); ++tile) {
    for (int slice = 0; slice < kSlices; ++slice) {
      // the first slices were asked for before the maps of this tile
      if (slice < kStages - 1)
        wait_copies<kStages - 1>();
      else
        wait_copies<kStages - 2>();
      publish();
      __syncthreads();
      fetch();
      product.add(halves + kDyAt + at++ % kStages * kSliceElements, halves, slice * kSlice);
    }
    product.write(halves + kProductAt);
    wait_copies<kSlices>();
    __syncthreads();
    epilogue.use(tiles.row(tile));
    keep_order();  // the copies of the next tile go where this one was read
    epilogue.fetch(tiles.row(tile + 1));
    commit_copies();
  }
  wait_copies<0>();
  epilogue.write(epilogue.sum, 0);
  epilogue.write(epilogue.product, 1);
  if (RN_SHORTCUT == 2) epilogue.write(epilogue.other, 2);
}
