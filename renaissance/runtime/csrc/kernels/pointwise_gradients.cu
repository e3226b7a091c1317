// Both gradients of a 1x1 convolution behind a norm and its activation, and the first pass of that norm's
// backward: dy is read once for all of it, and the convolution's input not at all, because the norm makes
// it again from x anyway.
//
// As in pointwise_backward.cu a block keeps RN_TILE_N columns of w in shared memory and walks over tiles
// of RN_TILE_M pixels. Of a tile, the product with w comes first, then the epilogue: dz into memory and
// into sums, and a into the product's place; then dy^T a is added to the block's share of dw. So a whole
// tile of dy stays in its stages until then, and RN_STAGES are more than its slices. RN_X_STAGES tiles of x
// are on their way or here; RN_BATCH slices are waited for at once.
#include "map.cuh"
#include "pointwise_backward.h"
#include "pointwise_weight.cuh"

using namespace rn;

// The epilogue: a thread keeps to one pack of channels, kLanes pixels side by side.
constexpr int kPacks = kTileN / kWidth, kLanes = kThreads / kPacks;
constexpr int kSteps = (kTileM + kLanes - 1) / kLanes;

// Halves in shared memory: w, the tile's product, packs of x, the stages of dy. Where warps stand in for
// the warpgroups that were planned, rows are padded, and fewer stages may have to do.
constexpr int kXStages = RN_X_STAGES, kBatch = RN_BATCH;
constexpr int kProductHalves = kTileM * kPitch, kXHalves = kXStages * kSteps * kThreads * kWidth;
constexpr int kRoom = (RN_SHARED_BYTES / 2 - kFilterElements - kProductHalves - kXHalves) / kSliceElements;
constexpr int kStages = kRoom < RN_STAGES ? kRoom : RN_STAGES, kAhead = kStages - kSlices;
constexpr int kDyAt = kFilterElements, kProductAt = kDyAt + kStages * kSliceElements;
constexpr int kXAt = kProductAt + kProductHalves;
static_assert(kAhead > 0 && (RN_WGMMA || kStages == RN_STAGES), "the plan counts otherwise");
static_assert(kWidth == 8 && RN_K % 8 == 0, "vectors of 16 bytes");
static_assert(kTileM * kPitch * 2 >= kThreads * kWidth * 4, "the lanes' sums take the product's place");

// The tiles that a block walks over: every gridDim.y-th one, so that all blocks read neighbours.
struct Tiles {
  Index rows;

  __device__ __forceinline__ Index row(int index) const {
    return (blockIdx.y + static_cast<Index>(index) * gridDim.y) * kTileM;
  }
  __device__ __forceinline__ bool has(int index) const { return row(index) < rows; }
  // Pixels of a tile: all of it, fewer of the last one, none behind that.
  __device__ __forceinline__ int count(int index) const {
    Index left = rows - row(index);
    return left < kTileM ? static_cast<int>(left) : kTileM;
  }
};

struct Epilogue {
  const BatchNormBackward& op;
  half_bits* shared;
  int slot, lane, column;
  bool active;
  PackNorm norm;
  Floats sum, product;

  __device__ __forceinline__ Epilogue(const BatchNormBackward& op, half_bits* shared)
      : op(op), shared(shared) {
    slot = threadIdx.x % kPacks, lane = threadIdx.x / kPacks;
    column = blockIdx.x * kPacks + slot;
    active = lane < kLanes && column < kColumns;
    zero(sum), zero(product);
    if (active) norm.read(op.norm, column);
  }

  __device__ __forceinline__ half_bits* place(int tile, int step) const {
    return shared + kXAt + ((tile % kXStages * kSteps + step) * kThreads + threadIdx.x) * kWidth;
  }

  // Calls function(step, row in the tile) for the thread's pixels.
  template <class Function>
  __device__ __forceinline__ void each(Function function) const {
    if (!active) return;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      int inner = step * kLanes + lane;
      if (kTileM % kLanes != 0 && inner >= kTileM) continue;
      function(step, inner);
    }
  }

  // Starts the copies of x of a tile, each pack by the thread that will use it.
  __device__ __forceinline__ void fetch(const Tiles& tiles, int tile) const {
    const half_bits* from = static_cast<const half_bits*>(op.x) + at(tiles, tile);
    int count = tiles.count(tile);
    each([&](int step, int inner) {
      copy_async<16>(shared_address(place(tile, step)), from + step * kApart, inner < count);
    });
  }

  // Where the thread's first pack of a tile lies in a map; its others are kApart from each other.
  static constexpr int kApart = kLanes * RN_C;
  __device__ __forceinline__ Index at(const Tiles& tiles, int tile) const {
    return (tiles.row(tile) + lane) * RN_C + column * kWidth;
  }

  // dz of the tile from its product, into memory and into the sums; a takes the product's place, zeros
  // where the tile ends behind the last pixel.
  __device__ __forceinline__ void use(const Tiles& tiles, int tile) {
    half_bits* to = static_cast<half_bits*>(const_cast<void*>(op.dy)) + at(tiles, tile);
    int count = tiles.count(tile);
    each([&](int step, int inner) {
      half_bits* at = shared + kProductAt + inner * kPitch + slot * kWidth;
      Floats dz, x;
      Vector<uint, 4> a = {};
      if (inner < count) {
        unpack(dz, *reinterpret_cast<const Pack*>(at));
        unpack(x, *reinterpret_cast<const Pack*>(place(tile, step)));
#pragma unroll
        for (int j = 0; j < kWidth; j += 2) {
          float z[2] = {norm(x[j], j), norm(x[j + 1], j + 1)};
          pass(dz[j], z[0]), pass(dz[j + 1], z[1]);
          a.value[j / 2] = pack_halves(z[0], z[1]);
        }
        store(to + step * kApart, 0, 0, dz);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          sum[j] += dz[j];
          product[j] += dz[j] * (x[j] - norm.mean[j]);
        }
      }
      *reinterpret_cast<Vector<uint, 4>*>(at) = a;
    });
  }

  // Takes dz back through the activation, and z forth. z is not yet rounded: comparing with the largest
  // value that rounds to a kink says as much as rounding would.
  static __device__ __forceinline__ void pass(float& dz, float& z) {
    if (RN_ACTIVATION == kNone) return;
    bool low = z <= 0x1p-25f, high = RN_ACTIVATION == kRelu6 && z >= 0x1.7fep2f;
    dz = low || high ? 0.0f * dz : dz;
    z = low ? 0.0f : (high ? 6.0f : z);
  }

  // Adds up the lanes in order and writes row blockIdx.y of sums number `which`.
  __device__ __forceinline__ void write(const Floats& mine, int which) const {
    float* lanes = reinterpret_cast<float*>(shared + kProductAt);
    __syncthreads();
    if (lane < kLanes)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) lanes[lane * kTileN + slot * kWidth + j] = mine[j];
    __syncthreads();
    float* row = op.partial + (static_cast<Index>(blockIdx.y) * 2 + which) * RN_C;
    for (int i = threadIdx.x; i < kTileN; i += kThreads) {
      int c = blockIdx.x * kTileN + i;
      if (c >= RN_C) continue;
      float total = 0.0f;
      for (int l = 0; l < kLanes; ++l) total += lanes[l * kTileN + i];
      row[c] = total;
    }
  }
};

// The stages of dy. Slices are numbered through all tiles; there are none below zero.
struct Stages {
  const Tiles& tiles;
  const half_bits* dy;
  half_bits* shared;
  int next;

  __device__ __forceinline__ half_bits* place(int slice) const {
    return shared + kDyAt + slice % kStages * kSliceElements;
  }

  // Starts the copy of the next slice.
  __device__ __forceinline__ void fetch() {
    if (next >= 0 && tiles.has(next / kSlices))
      load_slice(place(next), dy, static_cast<int>(tiles.rows),
                 static_cast<int>(tiles.row(next / kSlices)), next % kSlices * kSlice);
    ++next;
    commit_copies();
  }

  __device__ __forceinline__ void fetch_tile() {
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) fetch();
  }
};

// A turn asks for a tile of x, then for as many slices as a tile has. Behind a slice of the tile in hand
// the rest of the stages was asked for, and a tile of x in every turn since.
constexpr int behind_slice(int number) {
  return kStages - 1 - number + (number < kAhead ? (kAhead - number + kSlices - 1) / kSlices : 0);
}
constexpr int kBehindX = kXStages * (kSlices + 1) - 1;

static_assert(kSlices % kBatch == 0, "whole batches");

// The product of a tile, slices as they arrive.
template <int kNumber, class Place>
__device__ __forceinline__ void multiply(Product& product, const half_bits* filters, Place dy) {
  wait_copies<behind_slice(kNumber + kBatch - 1)>();
  publish();
  __syncthreads();
  add_slices<kNumber, kBatch>(product, dy, filters);
  if constexpr (kNumber + kBatch < kSlices) multiply<kNumber + kBatch>(product, filters, dy);
}

extern "C" __global__ void __launch_bounds__(kThreads, RN_BLOCKS)
    pointwise_gradients_kernel(const PointwiseBackward op) {
  extern __shared__ __align__(1024) unsigned char shared[];
  half_bits* halves = reinterpret_cast<half_bits*>(shared);
  const Tiles tiles{op.norm.rows};
  load_filters(halves, static_cast<const half_bits*>(op.w), blockIdx.x * kTileN);
  Epilogue epilogue(op.norm, halves);
  // Turns before the first tile, as many as fill all stages.
  constexpr int kTurns = kStages / kSlices + 1 > kXStages ? kStages / kSlices + 1 : kXStages;
  Stages stages{tiles, static_cast<const half_bits*>(op.dy), halves, kStages - kTurns * kSlices};
  for (int tile = -kTurns; tile < 0; ++tile) {
    if (tile + kXStages >= 0) epilogue.fetch(tiles, tile + kXStages);
    commit_copies();
    stages.fetch_tile();
  }
  Product product;
  WeightProduct weight;
  for (int tile = 0; tiles.has(tile); ++tile) {
    auto slice = [&](int number) { return stages.place(tile * kSlices + number); };
    multiply<0>(product, halves, slice);
    product.write(halves + kProductAt);
    wait_copies<kBehindX>();
    __syncthreads();
    epilogue.use(tiles, tile);
    keep_order();  // the copies of a later tile go where this one was read
    epilogue.fetch(tiles, tile + kXStages);
    commit_copies();
    __syncthreads();
    weight.add(halves + kProductAt, slice);
    __syncthreads();
    stages.fetch_tile();
  }
  wait_copies<0>();
  epilogue.write(epilogue.sum, 0);
  epilogue.write(epilogue.product, 1);
  __syncthreads();
  float* row = op.weight_partial + static_cast<Index>(blockIdx.y) * (RN_K * RN_C);
  weight.write(halves, row, blockIdx.x * kTileN);
}
