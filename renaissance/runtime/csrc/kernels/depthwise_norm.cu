// Depthwise 3 x 3 convolution of activation(norm(x)), with partial sums of its output's statistics.
//
// A thread walks down a strip of outputs, RN_ACROSS pixels wide, with one pack of channels. A pixel of
// the input is read kAhead rows before its use, into a ring in shared memory of which every thread has
// a part of its own; then it is normalised, rounded and activated, and meets all outputs that see it.
// Sums of three rows of outputs wait in registers, or two at stride 2; the loop over rows is written out
// until they are back in their places, so none is ever moved. Where RN_STORE, the owner of a pixel
// writes it activated. Blocks side by side work on the same pixels, so that their reads meet in memory.
//
// RN_NORM 0: the convolution reads x as it is. RN_WHOLE: strips cover the rows of the map exactly.
// Padding is one pixel of zeros behind the activation.
#include "depthwise_operations.h"
#include "filters.cuh"

using namespace rn;

static_assert(RN_R == 3 && RN_S == 3 && kWidth % 2 == 0 && sizeof(Element) == 2, "3 x 3 of halves");

constexpr int kAcross = RN_ACROSS, kStride = RN_STRIDE, kPairs = kWidth / 2;
constexpr int kLive = kStride == 1 ? 3 : 2;              // rows of outputs that are being summed
constexpr int kPeriod = kLive * kStride;                 // rows of input until their places recur
constexpr int kSeen = (kAcross - 1) * kStride + 3;       // pixels of a row that a strip sees
constexpr int kPixel = RN_C * sizeof(Element);           // bytes
constexpr int kTiles = (kColumns + kTile - 1) / kTile;
constexpr int kAhead = kStride == 1 ? 3 : 2;             // rows that are read before their use
static_assert(kPeriod % kAhead == 0, "places in the ring recur with the period");

typedef Vector<uint, kPairs> Halves;

__device__ __forceinline__ void unpack(Floats& to, const Halves& from) {
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    to[2 * j] = half_to_float(static_cast<half_bits>(from.value[j]));
    to[2 * j + 1] = half_to_float(static_cast<half_bits>(from.value[j] >> 16));
  }
}

__device__ __forceinline__ Halves pack(const Floats& from) {
  Halves to;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) to.value[j] = pack_halves(from[2 * j], from[2 * j + 1]);
  return to;
}

__device__ __forceinline__ Halves none() {
  Halves zero;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) zero.value[j] = 0;
  return zero;
}

// activation(norm(x)), rounded behind either as batch_norm_apply.cu does.
__device__ __forceinline__ Halves activated(const PackNorm& norm, const Halves& x) {
  Floats z;
  unpack(z, x);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) z[j] = norm(z[j], j);
  Halves y = pack(z);
  if constexpr (RN_ACTIVATION == kRelu || RN_ACTIVATION == kRelu6) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      y.value[j] = larger_halves(y.value[j], 0u);
      if (RN_ACTIVATION == kRelu6) y.value[j] = smaller_halves(y.value[j], 0x46004600u);
    }
  } else if constexpr (RN_ACTIVATION != kNone) {
    unpack(z, y);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) z[j] = activate(RN_ACTIVATION, z[j]);
    y = pack(z);
  }
  return y;
}

struct Sums {
  Floats sum, squares;

  __device__ __forceinline__ Halves take(const Floats& output) {
    Halves y = pack(output);
    Floats rounded;
    unpack(rounded, y);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      sum[j] += rounded[j];
      squares[j] += rounded[j] * rounded[j];
    }
    return y;
  }
};

// What a thread does along one strip.
struct Walker {
  const DepthwiseNormForward& op;
  const Filters& filters;
  const PackNorm& norm;
  Sums& sums;
  Index at, pitch;     // of the present row's first pixel, in bytes; of a row
  char* out;           // the next output
  int row, rows;       // the present row; rows of the map
  int owned, beyond;   // rows [owned, beyond) are this strip's to write
  int left, columns;   // its first pixel's place along the row; pixels from there to the row's end
  SharedAddress ring;  // of this thread's part
  Floats sum[kLive][kAcross];

  __device__ __forceinline__ bool is_real(int i) const {
    if (i == 0) return left >= 0;
    return (RN_WHOLE && i <= kAcross * kStride) || i < columns;
  }

  __device__ __forceinline__ void read(int i, int phase, const char* from, bool inside) {
    copy_async<sizeof(Halves)>(place(i, phase), from + i * kPixel, inside && is_real(i));
  }
  __device__ __forceinline__ Halves look(int i, int phase) const {
    Halves pixel;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) pixel.value[j] = load_shared(place(i, phase) + 4 * j);
    return pixel;
  }
  __device__ __forceinline__ SharedAddress place(int i, int phase) const {
    return ring + (phase % kAhead * kSeen + i) * kThreads * static_cast<int>(sizeof(Halves));
  }

  // Adds pixel i of a row to the outputs that see it from below, at tap row r; r 0 is their first.
  __device__ __forceinline__ void add(Floats (&to)[kAcross], const Floats& x, int i, int r) {
#pragma unroll
    for (int q = 0; q < kAcross; ++q) {
      const int t = i - q * kStride;
      if (t < 0 || t >= 3) continue;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        float before = r == 0 && t == 0 ? 0.0f : to[q][j];
        to[q][j] = before + x[j] * filters.tap[r * 3 + t][j];
      }
    }
  }

  // Row number `phase` of a period; `more`: whether the strip has the row to read along.
  __device__ __forceinline__ void step(int phase, bool more) {
    // Row k of the strip is tap row r of output o where k = o kStride + r.
    const int newest = phase / kStride;  // its first row; behind the last one at odd phases of stride 2
    const bool begins = phase % kStride == 0;
    const char* below = static_cast<const char*>(op.input) + at + kAhead * pitch;
    const bool inside = row >= 0 && row < rows, inside_below = row + kAhead < rows;
    Halves pixels[kSeen];
    wait_copies<kAhead - 1>();
#pragma unroll
    for (int i = 0; i < kSeen; ++i) pixels[i] = look(i, phase);
    if (more)
#pragma unroll
      for (int i = 0; i < kSeen; ++i) read(i, phase, below, inside_below);
    commit_copies();
    if (inside) {
      char* mine = static_cast<char*>(op.activated) + at;
      const bool writes = row >= owned && row < beyond;
#pragma unroll
      for (int i = 0; i < kSeen; ++i) {
        Halves pixel = pixels[i];
        if (RN_NORM) {
          pixel = activated(norm, pixel);
          if (!is_real(i)) pixel = none();
          if (RN_STORE && i >= 1 && i <= kAcross * kStride && writes && is_real(i))
            *reinterpret_cast<Halves*>(mine + i * kPixel) = pixel;
        }
        Floats x;
        unpack(x, pixel);
        if (kStride == 1) {
          add(sum[phase], x, i, 0);
          add(sum[(phase + 2) % 3], x, i, 1);
          add(sum[(phase + 1) % 3], x, i, 2);
        } else if (begins) {
          add(sum[newest], x, i, 0);
          add(sum[1 - newest], x, i, 2);
        } else {
          add(sum[newest], x, i, 1);
        }
      }
    } else if (begins) {
#pragma unroll
      for (int q = 0; q < kAcross; ++q) zero(sum[newest][q]);
    }
    at += pitch;
    ++row;
  }

  // Rounds, counts and writes the outputs that the row of this phase completed.
  __device__ __forceinline__ void finish(int phase, int outputs) {
    const int oldest = kStride == 1 ? (phase + 1) % 3 : 1 - phase / 2;
#pragma unroll
    for (int q = 0; q < kAcross; ++q) {
      if (!RN_WHOLE && q >= outputs) continue;
      *reinterpret_cast<Halves*>(out + q * kPixel) = sums.take(sum[oldest][q]);
    }
  }
};

__device__ __forceinline__ void walk(const DepthwiseNormForward& op, const Filters& filters,
                                     const PackNorm& norm, Sums& sums, const Strip& strip,
                                     int column) {
  const ConvShape& s = op.shape;
  int q0 = strip.across * kAcross, left = q0 * kStride - 1, row = strip.first * kStride - 1;
  Index channel = column * kWidth * static_cast<int>(sizeof(Element));
  Index pitch = s.w * kPixel, first = ((strip.n * s.h + row) * s.w + left) * kPixel + channel;
  char* out = static_cast<char*>(op.y) + ((strip.n * s.p + strip.first) * s.q + q0) * kPixel + channel;
  Walker walker{op, filters, norm, sums, first, pitch, out, row, static_cast<int>(s.h),
                strip.first * kStride, strip.end * kStride, left, static_cast<int>(s.w) - left};
  int count = (strip.end - strip.first - 1) * kStride + 3, outputs = static_cast<int>(s.q) - q0;
  const char* from = static_cast<const char*>(op.input) + first;
  __shared__ Halves ring[kAhead][kSeen][kThreads];
  walker.ring = shared_address(&ring[0][0][threadIdx.x]);
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
#pragma unroll
    for (int i = 0; i < kSeen; ++i)
      if (k < count) walker.read(i, k, from + k * pitch, row + k >= 0 && row + k < s.h);
    commit_copies();
  }
#pragma unroll
  for (int l = 0; l < kLive; ++l)
#pragma unroll
    for (int q = 0; q < kAcross; ++q) zero(walker.sum[l][q]);
#pragma unroll 1
  for (int k = 0; k < count; k += kPeriod)
#pragma unroll
    for (int phase = 0; phase < kPeriod; ++phase) {
      if (k + phase < count) walker.step(phase, k + phase + kAhead < count);
      if (phase % kStride == 0 && k + phase >= 2 && k + phase < count) {
        walker.finish(phase, outputs);
        walker.out += s.q * kPixel;
      }
    }
}

extern "C" __global__ void __launch_bounds__(256, RN_BLOCKS)
    depthwise_norm_forward_kernel(const DepthwiseNormForward op) {
  Reduction block(blockIdx.x / kTiles, blockIdx.x % kTiles);
  Sums sums;
  zero(sums.sum), zero(sums.squares);
  if (block.active) {
    const ConvShape& s = op.shape;
    int strips = (static_cast<int>(s.q) + kAcross - 1) / kAcross, steps = static_cast<int>(s.p);
    Index count = Strip::count(s.n, steps, strips, RN_ROWS);
    Index step = static_cast<Index>(gridDim.x / kTiles) * kRowLanes;
    Filters filters(op.w, block.column);
    PackNorm norm;
    if (RN_NORM) norm.read(op.norm, block.column);
    for (Index i = static_cast<Index>(block.piece) * kRowLanes + block.lane; i < count; i += step)
      walk(op, filters, norm, sums, Strip(i, steps, strips, RN_ROWS), block.column);
  }
  block.write(op.partial, sums.sum, 0, 2);
  block.write(op.partial, sums.squares, 1, 2);
}
