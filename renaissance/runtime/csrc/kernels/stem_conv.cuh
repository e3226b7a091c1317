// Rows of a map of four channels in shared memory, as the convolutions of a network's stem read them.
//
// Four halves a pixel: the pixels under a row of taps lie together in memory, and so do the values that
// a row of taps multiplies. A matrix product then sees window m of a row as kDepth halves from column
// m kStep on, zeros around the image included; windows overlap, and nothing is laid out anew. kStep is
// even, so that windows begin at 16 bytes as matrix loads need it: with an odd stride two neighbouring
// outputs share a window, each with its own place of the filter in it.
#pragma once

#include "device.cuh"
#include "map_operations.h"

namespace rn {

constexpr int kChannels = 4;
constexpr int kAcross = RN_STRIDE % 2 + 1;  // outputs that share a window
constexpr int kStep = RN_STRIDE * kAcross;
constexpr int kWindow = (RN_S + (kAcross - 1) * RN_STRIDE + 3) / 4 * 4;  // columns
constexpr int kDepth = kWindow * kChannels;
constexpr int kRows = (RN_ROWS - 1) * RN_STRIDE + RN_R;  // rows of x that RN_ROWS of y see
constexpr int kTile = 16;                                // windows of a tile

// How a row of y is cut into windows and tiles of them.
struct RowTiles {
  int count;  // tiles of a row
  int pitch;  // columns of a row of x in shared memory

  __device__ __forceinline__ explicit RowTiles(const ConvShape& s) {
    count = (static_cast<int>(s.q) + kAcross * kTile - 1) / (kAcross * kTile);
    pitch = (count * kTile - 1) * kStep + kWindow;
  }
};

// Groups of RN_ROWS rows of y, image by image; the last one of an image may be cut off.
struct Group {
  Index n;
  int p0;

  __device__ __forceinline__ Group(const ConvShape& s, int index) {
    int of_image = groups_of_image(s);
    n = index / of_image;
    p0 = (index - static_cast<int>(n) * of_image) * RN_ROWS;
  }

  static __device__ __forceinline__ int groups_of_image(const ConvShape& s) {
    return (static_cast<int>(s.p) + RN_ROWS - 1) / RN_ROWS;
  }

  static __device__ __forceinline__ int count(const ConvShape& s) {
    return static_cast<int>(s.n) * groups_of_image(s);
  }
};

// Starts bringing the rows of x that a group sees to shared memory; a warp takes whole rows.
template <int kWarps>
__device__ __forceinline__ void fetch_rows(half_bits* to, const void* x, const ConvShape& s,
                                           const Group& group, int pitch) {
  int h0 = group.p0 * RN_STRIDE - RN_PAD, width = static_cast<int>(s.w);
  for (int row = threadIdx.x / 32; row < kRows; row += kWarps) {
    bool real = h0 + row >= 0 && h0 + row < s.h;
    Index line = real ? (group.n * s.h + h0 + row) * s.w : 0;
    const half_bits* from = static_cast<const half_bits*>(x) + line * kChannels;
    half_bits* place = to + row * pitch * kChannels;
    for (int column = threadIdx.x % 32; column < pitch; column += 32) {
      int w = column - RN_PAD;
      bool inside = real && w >= 0 && w < width;
      copy_async<2 * kChannels>(shared_address(place + column * kChannels),
                                from + (inside ? w * kChannels : 0), inside);
    }
  }
}

}  // namespace rn
