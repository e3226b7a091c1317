// Which tile a fully connected kernel uses, by the constants it is compiled with.
//
// RN_C and RN_K are the layer's widths, RN_HALF its type. RN_TILE_M and _N shape the tile, for fp16
// also RN_TILE_K, RN_WARPS_M, _N, RN_SPLITS and RN_STAGES.
#pragma once

#include "simt.cuh"
#include "tile.cuh"

namespace rn {

// The widest vector, of 8, 4, 2 or 1 elements, that rows of this length start aligned to.
constexpr int vector_of(int length) {
  return length % 8 == 0 ? 8 : (length % 4 == 0 ? 4 : (length % 2 == 0 ? 2 : 1));
}

#if RN_HALF
template <bool kAAlongK, bool kBAlongK, int kAStride, int kBStride>
struct FcTile : MatrixTile<RN_TILE_M, RN_TILE_N, RN_TILE_K, RN_WARPS_M, RN_WARPS_N, RN_SPLITS,
                           RN_STAGES, kAAlongK, kBAlongK, vector_of(kAStride), vector_of(kBStride)> {
  static constexpr int kTileM = RN_TILE_M, kTileN = RN_TILE_N;
};
typedef Operand FcOperand;
#else
template <bool kAAlongK, bool kBAlongK, int kAStride, int kBStride>
struct FcTile : FloatTile<RN_TILE_M, RN_TILE_N, kAAlongK, kBAlongK> {};
typedef FloatOperand FcOperand;
#endif

__device__ __forceinline__ FcOperand operand(const void* data, Index rows, Index depth,
                                             Index stride) {
  return {static_cast<const Element*>(data), static_cast<int>(rows), static_cast<int>(depth),
          static_cast<int>(stride)};
}

// Stores a pair of neighbours, the second only if it is inside; one access where rows allow it.
template <int kStride, class T>
__device__ __forceinline__ void store_pair(T* row, int column, float first, float second) {
  if constexpr (kStride % 2 == 0) {
    *reinterpret_cast<Vector<T, 2>*>(row + column) = {narrow<T>(first), narrow<T>(second)};
  } else {
    row[column] = narrow<T>(first);
    if (column + 1 < kStride) row[column + 1] = narrow<T>(second);
  }
}

}  // namespace rn
