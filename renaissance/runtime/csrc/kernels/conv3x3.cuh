// What the 3x3 convolution of 64 channels (conv3x3.cu) keeps in shared memory: filters that stay, and
// rows of the map that come and go.
//
// Channels lie eight by eight, pixels side by side (not swizzled): a window's other column begins 16
// bytes further on, so one copy of a row serves three columns of taps.
#pragma once

#include "map_operations.h"
#include "warpgroup.cuh"

namespace rn {

constexpr int kChannels = 64, kChunks = kChannels / 8;
constexpr int kGroups = RN_GROUPS, kThreads = kGroups * 128, kStages = RN_STAGES, kAhead = kStages - 2;
constexpr int kStrip = RN_STRIP, kSteps = kStrip + 2, kStrips = 8, kWide = 8;
constexpr int kSeen = kWide + 2, kPixels = kStrips * kSeen;
constexpr int kPlane = (kPixels | 1) * 16;       // bytes of eight channels; odd, so that banks differ
constexpr int kStageBytes = kChunks * kPlane;
constexpr int kCopies = kPixels * kChunks / 128;  // of a thread, each step
static_assert(kPixels * kChunks % 128 == 0 && kAhead >= 1 && kAhead < kSteps, "stages");

// Filters: for each column of taps and eight channels in, blocks of eight channels out. Rows of taps in
// the order 2, 1, 0, 2, 1, so that any of them can come first: sums of a row of y keep their place.
constexpr int kTapRows = 5, kDepth = kTapRows * 8 * 128;
constexpr int kFilterBytes = 3 * kChunks * kDepth;
static_assert(kFilterBytes + kGroups * kStages * kStageBytes <= RN_SHARED_BYTES, "the plan counts otherwise");

// Column n of a product is channel n / 32 * 32 + n % 8 / 2 * 8 + n / 8 % 4 * 2 + n % 2: so a thread ends
// up with eight neighbours, twice.
//
// Eight lanes write eight rows of a block: no two of a warp meet in a bank.
__device__ __forceinline__ void load_filters(unsigned char* to, const void* w) {
  const Vector<uint, 4>* packs = static_cast<const Vector<uint, 4>*>(w);  // 64, 3, 3, 8 of them
  constexpr int kPacks = kChannels * 9 * kChunks;
#pragma unroll 6
  for (int i = threadIdx.x; i < kPacks; i += kThreads) {
    int row = i % 8, chunk = i / 8 % kChunks, part = i / 8 / kChunks % 8, tap = i / 64 / kChunks;
    int k = RN_BACKWARD ? part * 8 + row : part / 4 * 32 + row / 2 * 8 + part % 4 * 2 + row % 2;
    Vector<uint, 4> pack = packs[(k * 9 + tap) * kChunks + chunk];
    int r = tap / 3, s = tap - r * 3;
    if (RN_BACKWARD) r = 2 - r, s = 2 - s;
#pragma unroll
    for (int copy = 0; copy < 2; ++copy) {
      int at = 2 - r + 3 * copy;
      if (at >= kTapRows) continue;
      if (RN_BACKWARD) {
        unsigned char* block = to + (s * kChunks + part) * kDepth + at * 1024 + row * 16;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          *reinterpret_cast<uint*>(block + (chunk / 4 * 4 + j) * 128 + chunk % 4 * 4) = pack.value[j];
      } else {
        unsigned char* block = to + (s * kChunks + chunk) * kDepth + at * 1024 + part * 128 + row * 16;
        *reinterpret_cast<Vector<uint, 4>*>(block) = pack;
      }
    }
  }
}

// Tiles run along rows of the map first, then down, then through the images.
struct Tile {
  Index first;  // pixel of its corner
  int h0, w0;
  bool real;

  __device__ __forceinline__ Tile(const ConvShape& s, int index, int count) {
    int across = (static_cast<int>(s.w) + kWide - 1) / kWide;
    int down = (static_cast<int>(s.h) + kStrips * kStrip - 1) / (kStrips * kStrip);
    real = index < count;
    int line = index / across, n = line / down;
    w0 = (index - line * across) * kWide;
    h0 = (line - n * down) * kStrips * kStrip;
    first = (n * s.h + h0) * s.w + w0;
  }
  static __device__ __forceinline__ int count(const ConvShape& s) {
    int across = (static_cast<int>(s.w) + kWide - 1) / kWide;
    int down = (static_cast<int>(s.h) + kStrips * kStrip - 1) / (kStrips * kStrip);
    return static_cast<int>(s.n) * across * down;
  }
};

// Row `step` - 1 of every strip, with a column more on either side.
__device__ __forceinline__ void fetch(SharedAddress to, const half_bits* x, const ConvShape& s,
                                      const Tile& tile, int step) {
  if (tile.real) {
    int height = static_cast<int>(s.h), width = static_cast<int>(s.w);
    int thread = threadIdx.x % 128, chunk = thread % kChunks;
    const half_bits* corner = x + tile.first * kChannels + chunk * 8;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      int pixel = i * (128 / kChunks) + thread / kChunks;
      int strip = pixel / kSeen, column = pixel - strip * kSeen - 1, row = strip * kStrip + step - 1;
      bool inside = static_cast<uint>(tile.h0 + row) < static_cast<uint>(height) &&
                    static_cast<uint>(tile.w0 + column) < static_cast<uint>(width);
      const half_bits* from = corner + (row * width + column) * kChannels;
      copy_async<16>(to + chunk * kPlane + pixel * 16, inside ? from : x, inside);
    }
  }
  commit_copies();
}

}  // namespace rn
