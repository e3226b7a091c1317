// The product of a tile of pixels with the filters that a block keeps: by warps with mma.sync, or with
// RN_WGMMA and a device that has it by warpgroups, which read both operands from shared memory.
//
// Both have the same parts: loads of w and of a slice of dy, a product in registers, and its rounding
// into shared memory. RN_WARPS_M and RN_WARPS_N lay the warps over the tile; four along the pixels
// are a warpgroup.
#pragma once

#include "tile.cuh"

namespace rn {

constexpr int kWarpsM = RN_WARPS_M, kWarpsN = RN_WARPS_N, kThreads = 32 * kWarpsM * kWarpsN;
constexpr int kTileM = RN_TILE_M, kTileN = RN_TILE_N, kSlice = RN_SLICE;
constexpr int kSlices = (RN_K + kSlice - 1) / kSlice, kDepth = kSlices * kSlice;
constexpr int kPitch = kTileN + 8;  // of the rounded product

#if RN_WGMMA && defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kGroupM = kTileM / (kWarpsM / 4), kGroupN = kTileN / kWarpsN;
constexpr int kBlocksM = kGroupM / 64, kBlocksN = kGroupN / 8, kBlockRows = 64;
static_assert(kWarpsM % 4 == 0 && kGroupM % 64 == 0 && kSlice == 64 && kTileN % 64 == 0, "tile");
constexpr int kFilterElements = kDepth * kTileN, kSliceElements = kTileM * 64;
constexpr bool kSwizzled = true;

// Rows of 64 halves; the eight 16-byte pieces of a row are permuted by the row's number.
template <int kRows>
__device__ __forceinline__ void load_rows(half_bits* shared, const half_bits* from, int rows,
                                          int row0, int stride, int column0, int columns) {
#pragma unroll
  for (int i = 0; i < (kRows * 8 + kThreads - 1) / kThreads; ++i) {
    int index = i * kThreads + threadIdx.x;
    if (kRows * 8 % kThreads != 0 && index >= kRows * 8) break;
    int row = index / 8, piece = index % 8;
    bool inside = row0 + row < rows && column0 + piece * 8 < columns;
    Index offset = static_cast<Index>(row0 + row) * stride + column0 + piece * 8;
    copy_async<16>(shared_address(shared + row * 64 + (piece ^ row % 8) * 8),
                   inside ? from + offset : from, inside);
  }
}

__device__ __forceinline__ void load_filters(half_bits* shared, const half_bits* w, int column0) {
#pragma unroll
  for (int block = 0; block < kTileN / 64; ++block)
    load_rows<kDepth>(shared + block * kDepth * 64, w, RN_K, 0, RN_C, column0 + block * 64, RN_C);
}

__device__ __forceinline__ void load_slice(half_bits* shared, const half_bits* dy, int rows,
                                           int row0, int k0) {
  load_rows<kTileM>(shared, dy, rows, row0, RN_K, k0, RN_K);
}

// What copies wrote becomes visible to the matrix unit.
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A matrix of such rows: `next` bytes to its next 64 columns, eight rows after each other.
__device__ __forceinline__ ulong64 matrix(const half_bits* at, int next) {
  ulong64 place = (shared_address(at) & 0x3FFFFu) >> 4;
  return place | static_cast<ulong64>(next >> 4) << 16 | ulong64(1024 >> 4) << 32 | ulong64(1) << 62;
}

#define RN_FOUR(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define RN_SIXTEEN(j) RN_FOUR(j), RN_FOUR(j + 1), RN_FOUR(j + 2), RN_FOUR(j + 3)
#define RN_LIST16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define RN_LIST32 RN_LIST16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define RN_LIST64                                                                                \
  RN_LIST32                                                                                      \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54," \
  "%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define RN_MULTIPLY(n, list, a, b, adds, ...)                                                    \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " adds ", 0;\n"                                 \
               "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.f16.f16 {" list "}, " a ", " b     \
               ", p, 1, 1, 0, 1;\n}"                                                             \
               : __VA_ARGS__                                                                     \
               : "l"(left), "l"(right), "r"(add))

// d (64 x 8 kBlocksN) = left right, or that much more; rows of `right` are rows of k.
__device__ __forceinline__ void multiply(float (&d)[kBlocksN][4], ulong64 left, ulong64 right,
                                         int add) {
  static_assert(kBlocksN == 4 || kBlocksN == 8 || kBlocksN == 16, "columns of a warpgroup");
#if RN_TILE_N / RN_WARPS_N == 32
  RN_MULTIPLY("32", RN_LIST16, "%16", "%17", "%18", RN_SIXTEEN(0));
#elif RN_TILE_N / RN_WARPS_N == 64
  RN_MULTIPLY("64", RN_LIST32, "%32", "%33", "%34", RN_SIXTEEN(0), RN_SIXTEEN(4));
#else
  RN_MULTIPLY("128", RN_LIST64, "%64", "%65", "%66", RN_SIXTEEN(0), RN_SIXTEEN(4), RN_SIXTEEN(8),
              RN_SIXTEEN(12));
#endif
}

#else

constexpr int kWarpM = kTileM / kWarpsM, kWarpN = kTileN / kWarpsN;
constexpr int kBlocksM = kWarpM / 16, kBlocksN = kWarpN / 8, kBlockRows = 16;
static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0 && kSlice % 16 == 0, "tile");
typedef OperandTile<kTileM, kSlice, true, 8, kThreads> Slice;
typedef OperandTile<kTileN, kDepth, false, 8, kThreads> Filters;
constexpr int kFilterElements = Filters::kElements, kSliceElements = Slice::kElements;
constexpr bool kSwizzled = false;

__device__ __forceinline__ void load_filters(half_bits* shared, const half_bits* w, int column0) {
  Filters::load(shared, Operand{w, RN_C, RN_K, RN_C}, column0, 0);
}

__device__ __forceinline__ void load_slice(half_bits* shared, const half_bits* dy, int rows,
                                           int row0, int k0) {
  Slice::load(shared, Operand{dy, rows, RN_K, RN_K}, row0, k0);
}

__device__ __forceinline__ void publish() {}

#endif

struct Product {
  float sum[kBlocksM][kBlocksN][4];
  int row, column;  // of the warp's first block; of a warpgroup, its own rows in it

  __device__ __forceinline__ Product() {
    int warp = threadIdx.x / 32;
    if (kSwizzled) {
      int group = warp / 4;
      row = group / kWarpsN * (kBlocksM * 64) + warp % 4 * 16;
      column = group % kWarpsN * (kBlocksN * 8);
    } else {
      row = warp / kWarpsN * (kBlocksM * 16), column = warp % kWarpsN * (kBlocksN * 8);
    }
  }

#if RN_WGMMA && defined(__CUDA_ARCH_FEAT_SM90_ALL)
  // The first slice begins the sums.
  __device__ __forceinline__ void add(const half_bits* dy, const half_bits* w, int k0) {
    const half_bits* rows = dy + row / 64 * 64 * 64;
    const half_bits* columns = w + column / 64 * kDepth * 64 + k0 * 64 + column % 64;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
      for (int k = 0; k < 64; k += 16)
        multiply(sum[i], matrix(rows + i * 64 * 64 + k, 16),
                 matrix(columns + k * 64, kDepth * 128), k0 + k > 0);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
#else
  // The first slice begins the sums.
  __device__ __forceinline__ void add(const half_bits* dy, const half_bits* w, int k0) {
    if (k0 == 0) clear();
#pragma unroll
    for (int k = 0; k < kSlice; k += 16) {
      uint left[kBlocksM][4], right[kBlocksN / 2][4];
#pragma unroll
      for (int i = 0; i < kBlocksM; ++i) Slice::left(left[i], dy, row + 16 * i, k);
#pragma unroll
      for (int j = 0; j < kBlocksN / 2; ++j) Filters::right(right[j], w, column + 16 * j, k0 + k);
#pragma unroll
      for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
        for (int j = 0; j < kBlocksN; ++j)
          multiply_add(sum[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
    }
  }
#endif

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
      for (int j = 0; j < kBlocksN; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[i][j][e] = 0.0f;
  }

  // Rounds, and puts the tile where packs of channels can be read.
  __device__ __forceinline__ void write(half_bits* product) const {
    int lane = threadIdx.x % 32;
    half_bits* to = product + (row + lane / 4) * kPitch + column + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i)
#pragma unroll
      for (int j = 0; j < kBlocksN; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          *reinterpret_cast<uint*>(to + (kBlockRows * i + 8 * h) * kPitch + 8 * j) =
              pack_halves(sum[i][j][2 * h], sum[i][j][2 * h + 1]);
  }
};

}  // namespace rn
