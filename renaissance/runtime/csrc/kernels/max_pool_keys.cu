// Max-pool of halves with winners of a byte, windows small. RN_NORM: as in max_pool.cu.
//
// A value and its place in the window become one integer, whose order is that of the values and, among
// equals, that of the places backwards: a maximum is one instruction, and in which order a window is
// searched does not matter. So a thread walks down a column of outputs, takes the best of each row of
// a window once, and hands it to all outputs that see that row.
#include "window.cuh"

using namespace rn;

static_assert(RN_HALF && RN_ARGMAX_BYTES < 4 && kWidth % 2 == 0, "pairs of halves, places in a byte");

constexpr int kPairs = kWidth / 2, kLowest = -0x7FFFFFFF - 1;
constexpr int kLive = (RN_WINDOW + RN_STRIDE - 1) / RN_STRIDE;  // outputs that a row touches
typedef Vector<uint, kPairs> Words;

// Halves as signed 16-bit integers of the same order, and back. No -0 and only positive NaN comes in:
// zeros tie, and NaN wins.
__device__ __forceinline__ uint ordered(uint pair) {
  return pair ^ (((pair >> 15) & 0x00010001u) * 0x7FFFu);
}

struct Searched {
  const MaxPoolForward& op;
  PackNorm norm;
  int column;

  __device__ __forceinline__ Searched(const MaxPoolForward& op, int column)
      : op(op), column(column) {
    if (RN_NORM) norm.read(op.norm, column);
  }

  // A pixel's values in order, below all others where it lies outside of the map.
  __device__ __forceinline__ Words order(const Pack& x, bool inside) const {
    Words words = reinterpret_cast<const Words&>(x);
    if (RN_NORM) {
      Floats z;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) z[j] = activated(norm(widen(x.value[j]), j));
#pragma unroll
      for (int i = 0; i < kPairs; ++i) words.value[i] = pack_halves(z[2 * i], z[2 * i + 1]);
    }
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
      words.value[i] = inside ? ordered(add_zero(words.value[i])) : 0x80008000u;
    return words;
  }

  // The activation of a rounded value, up to one more rounding. Rounding first changes nothing where
  // the activation only clips, at numbers that a half can hold.
  static __device__ __forceinline__ float activated(float z) {
    constexpr bool kClips = RN_ACTIVATION == kNone || RN_ACTIVATION == kRelu || RN_ACTIVATION == kRelu6;
    return activate(RN_ACTIVATION, kClips ? z : rounded<Element>(z));
  }
};

__device__ __forceinline__ void write(const MaxPoolForward& op, Index row, int column,
                                      const int (&best)[kWidth]) {
  Words words;
#pragma unroll
  for (int i = 0; i < kPairs; ++i)
    words.value[i] = ordered(static_cast<uint>(best[2 * i]) >> 16 |
                             (static_cast<uint>(best[2 * i + 1]) & 0xFFFF0000u));
  reinterpret_cast<Words*>(op.y)[row * kColumns + column] = words;
  if (RN_ARGMAX_BYTES) {
    Places places;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) places.value[j] = static_cast<Place>(255 - (best[j] & 255));
    reinterpret_cast<Places*>(op.argmax)[row * kColumns + column] = places;
  }
}

extern "C" __global__ void __launch_bounds__(256, RN_NORM ? 2 : 3)
    max_pool_keys_kernel(const MaxPoolForward op) {
  const PoolShape& s = op.pool;
  Walk walk;
  int steps = static_cast<int>(s.p), strips = static_cast<int>(s.q);
  Index count = Strip::count(s.n, steps, strips, RN_ROWS);
  if (walk.row >= count) return;
  Searched searched(op, walk.column);
  for (Index index = walk.row; index < count; index += walk.step) {
    Strip strip(index, steps, strips, RN_ROWS);
    int w0 = strip.across * RN_STRIDE - RN_PAD;
    int best[kLive][kWidth];
#pragma unroll
    for (int l = 0; l < kLive; ++l)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) best[l][j] = kLowest;
#pragma unroll 1
    for (int p = strip.first - kLive + 1; p < strip.end; ++p) {
      // The rows that window p - 1 did not see; before the strip begins, only those it still needs.
      Pack fresh[RN_STRIDE][RN_WINDOW];
      bool inside[RN_STRIDE][RN_WINDOW];
      int h0 = p * RN_STRIDE - RN_PAD + RN_WINDOW - RN_STRIDE;
#pragma unroll
      for (int i = 0; i < RN_STRIDE; ++i) {
        bool seen = h0 + i >= 0 && h0 + i < s.h && RN_WINDOW - RN_STRIDE + i >= 0 &&
                    (p >= strip.first || RN_WINDOW - 2 * RN_STRIDE + i >= 0);
        Index row = (strip.n * s.h + h0 + i) * s.w + w0;
#pragma unroll
        for (int t = 0; t < RN_WINDOW; ++t) {
          inside[i][t] = seen && w0 + t >= 0 && w0 + t < s.w;
          fresh[i][t] = inside[i][t] ? fetch(op.x, row + t, walk.column) : zeros();
        }
      }
#pragma unroll
      for (int i = 0; i < RN_STRIDE; ++i) {
        if (RN_WINDOW - RN_STRIDE + i < 0) continue;
        int of_row[kWidth];
#pragma unroll
        for (int t = 0; t < RN_WINDOW; ++t) {
          Words words = searched.order(fresh[i][t], inside[i][t]);
#pragma unroll
          for (int j = 0; j < kWidth; ++j) {
            uint word = words.value[j / 2];
            int key = static_cast<int>((j % 2 ? word & 0xFFFF0000u : word << 16) | (255u - t));
            of_row[j] = t == 0 || key > of_row[j] ? key : of_row[j];
          }
        }
#pragma unroll
        for (int l = 0; l < kLive; ++l) {
          const int r = RN_WINDOW - RN_STRIDE + i - l * RN_STRIDE;
          if (r < 0 || r >= RN_WINDOW) continue;
#pragma unroll
          for (int j = 0; j < kWidth; ++j) {
            int key = of_row[j] - r * RN_WINDOW;
            best[l][j] = key > best[l][j] ? key : best[l][j];
          }
        }
      }
      if (p >= strip.first)
        write(op, (strip.n * s.p + p) * s.q + strip.across, walk.column, best[0]);
#pragma unroll
      for (int l = 0; l < kLive; ++l)
#pragma unroll
        for (int j = 0; j < kWidth; ++j)
          best[l][j] = l + 1 < kLive ? best[l + 1 < kLive ? l + 1 : 0][j] : kLowest;
    }
  }
}
