// A chain of geometric transforms on the device, its operations known to the compiler.
//
// A picture after some operations is a function of a position: padding, crops and flips only say where
// to read in the picture before. Only a warp (rotation, scaling) whose result another warp reads is
// computed once for all pixels and kept in shared memory, as its pixels are bytes that are rounded
// once. All arithmetic is that of data/geometry.cc, in integers.
//
// Constants: RN_CHAIN, the chain as data/kinds.h lays it out.
#pragma once

#include "data/kinds.h"
#include "data_operations.h"
#include "device.cuh"
#include "philox.cuh"

namespace rn::data {

constexpr int kChain[] = {RN_CHAIN};
constexpr int kHeight = kChain[0], kWidth = kChain[1], kChannels = kChain[2];
constexpr int kOperations = kChain[3];

constexpr int field(int operation, int which) {
  return kChain[kHead + operation * kFields + which];
}

constexpr int argument(int operation, int which) { return field(operation, kFieldFirst + which); }

constexpr bool is_warp(int operation) {
  return field(operation, kFieldKind) == kRotate || field(operation, kFieldKind) == kScale;
}

// Whether an operation's result is kept: a warp with another one behind it.
constexpr bool is_kept(int operation) {
  if (!is_warp(operation)) return false;
  for (int later = operation + 1; later < kOperations; ++later)
    if (is_warp(later)) return true;
  return false;
}

// Kept pictures lie in two places in turn.
constexpr int place_of_kept(int operation) {
  int before = 0;
  for (int i = 0; i < operation; ++i) before += is_kept(i);
  return before % 2;
}

constexpr int kept_bytes() {
  int most = 0;
  for (int i = 0; i < kOperations; ++i) {
    int bytes = is_kept(i) ? field(i, kFieldOutH) * field(i, kFieldOutW) * kChannels : 0;
    most = bytes > most ? bytes : most;
  }
  return (most + 15) / 16 * 16;
}

// How many blocks of random words an operation may use, and how many those before it.
constexpr int blocks_of(int operation) {
  int kind = field(operation, kFieldKind);
  return kind == kPad || kind == kWindow ? 0 : (kind == kErase ? 11 : 1);
}

constexpr int first_block(int operation) {
  int sum = 0;
  for (int i = 0; i < operation; ++i) sum += blocks_of(i);
  return sum;
}

constexpr int kBlocks = first_block(kOperations);

// What one block of random words decides. Crop: top, left. Flip: whether. Rotation: cosine, sine.
// Scaling: inverse factor. Erasing: block 0 whether; the others top, left, height, width, of height 0
// where the rectangle does not fit.
struct Drawn {
  int a, b, height, width;
};

struct Pixel {
  int value[kChannels];
};

// One sample: where its picture lies, what it drew, and the kept pictures.
struct Sample {
  const unsigned char* picture;
  const Drawn* drawn;
  unsigned char* kept;
};

// floor(u n) for u = (word >> 8) / 2^24, exact for n < 2^19.
__device__ __forceinline__ int bounded(uint word, int n) {
  uint fraction = word >> 8, count = static_cast<uint>(n);
  return static_cast<int>(((fraction >> 12) * count + (((fraction & 0xFFFu) * count) >> 12)) >> 12);
}

template <int kOp>
__device__ __forceinline__ Drawn decided(int block, const uint (&word)[4], const int* tables) {
  constexpr int kind = field(kOp, kFieldKind);
  constexpr int h = field(kOp, kFieldInH), w = field(kOp, kFieldInW);
  const int* table = tables + field(kOp, kFieldTableBegin);
  uint entry = word[0] >> 20;
  if constexpr (kind == kCrop)
    return {bounded(word[0], h - argument(kOp, 0) + 1), bounded(word[1], w - argument(kOp, 1) + 1),
            0, 0};
  if constexpr (kind == kRotate) return {table[2 * entry], table[2 * entry + 1], 0, 0};
  if constexpr (kind == kScale) return {table[entry], 0, 0, 0};
  if constexpr (kind == kErase) {
    if (block > 0) {
      int side = table[entry];
      uint ratio = word[1] >> 20;
      int height = (side * table[kEntries + ratio] + (1 << 17)) >> 18;
      int width = (side * table[2 * kEntries + ratio] + (1 << 17)) >> 18;
      if (height < 1 || width < 1 || height >= h || width >= w) return {0, 0, 0, 0};
      return {bounded(word[2], h - height + 1), bounded(word[3], w - width + 1), height, width};
    }
  }
  return {(word[0] >> 8) < static_cast<uint>(argument(kOp, 0)) ? 1 : 0, 0, 0, 0};
}

// The operation word of a block of random words, and the block's number within the operation.
template <int kOp>
__device__ __forceinline__ void find_block(int place, uint& id, uint& block) {
  if constexpr (kOp < kOperations) {
    if (place >= first_block(kOp)) {
      id = static_cast<uint>(field(kOp, kFieldId));
      block = static_cast<uint>(place - first_block(kOp));
    }
    find_block<kOp + 1>(place, id, block);
  }
}

template <int kOp>
__device__ __forceinline__ void decide(int place, const uint (&word)[4], const int* tables,
                                       Drawn* drawn) {
  if constexpr (kOp < kOperations) {
    int block = place - first_block(kOp);
    if (block >= 0 && block < blocks_of(kOp)) drawn[place] = decided<kOp>(block, word, tables);
    decide<kOp + 1>(place, word, tables, drawn);
  }
}

// Everything random about a sample; a thread takes a block of random words.
__device__ __forceinline__ void draw_all(const AugmentBatch& op, uint sample, Drawn* drawn) {
  ulong64 key = op.seed[0] | static_cast<ulong64>(op.seed[1]) << 32;
  for (int place = threadIdx.x; place < kBlocks; place += blockDim.x) {
    uint id = 0, block = 0;
    find_block<0>(place, id, block);
    uint word[4] = {block, sample, id, *op.epoch};
    philox(word, key);
    decide<0>(place, word, op.tables, drawn);
  }
}

__device__ __forceinline__ Pixel read_bytes(const unsigned char* picture, int pixel) {
  Pixel result;
#pragma unroll
  for (int k = 0; k < kChannels; ++k) result.value[k] = picture[pixel * kChannels + k];
  return result;
}

__device__ __forceinline__ Pixel filled(int value) {
  Pixel result;
#pragma unroll
  for (int k = 0; k < kChannels; ++k) result.value[k] = value;
  return result;
}

// Where a position outside an extent is read by a mode of padding; -1 for the constant.
template <int kMode>
__device__ __forceinline__ int source_of(int position, int extent) {
  if (position >= 0 && position < extent) return position;
  bool before = position < 0;
  if (kMode == kEdge) return before ? 0 : extent - 1;
  if (kMode == kReflect) return before ? -position : 2 * (extent - 1) - position;
  if (kMode == kSymmetric) return before ? -1 - position : 2 * extent - 1 - position;
  return -1;
}

template <int kCount>
__device__ __forceinline__ Pixel read(const Sample& sample, int y, int x);

// A pixel of an operation's result.
template <int kOp>
__device__ __forceinline__ Pixel made(const Sample& sample, int y, int x);

// A tap of a warp: the picture before it, with `fill` around.
template <int kOp>
__device__ __forceinline__ Pixel tap(const Sample& sample, int y, int x) {
  bool inside = static_cast<uint>(y) < static_cast<uint>(field(kOp, kFieldInH)) &&
                static_cast<uint>(x) < static_cast<uint>(field(kOp, kFieldInW));
  return inside ? read<kOp>(sample, y, x) : filled(argument(kOp, 0));
}

// Positions in 1/65536 pixel about the centre, weights of 1/256.
template <int kOp>
__device__ __forceinline__ Pixel warped(const Sample& sample, int y, int x) {
  constexpr int h = field(kOp, kFieldInH), w = field(kOp, kFieldInW);
  constexpr bool rotates = field(kOp, kFieldKind) == kRotate;
  const Drawn& drawn = sample.drawn[first_block(kOp)];
  int xx = drawn.a, yx = rotates ? drawn.b : 0;
  // twice the distance to the centre, which lies between pixels if the extent is even
  int dx = 2 * x + 1 - w, dy = 2 * y + 1 - h;
  int sx = ((w - 1) << 15) + ((dx * xx - dy * yx) >> 1);
  int sy = ((h - 1) << 15) + ((dx * yx + dy * xx) >> 1);
  int column = sx >> 16, row = sy >> 16;
  if (static_cast<uint>(column + 1) > static_cast<uint>(w) ||
      static_cast<uint>(row + 1) > static_cast<uint>(h))
    return filled(argument(kOp, 0));
  int fx = (sx >> 8) & 255, fy = (sy >> 8) & 255;
  Pixel a = tap<kOp>(sample, row, column), b = tap<kOp>(sample, row, column + 1);
  Pixel c = tap<kOp>(sample, row + 1, column), d = tap<kOp>(sample, row + 1, column + 1);
  Pixel result;
#pragma unroll
  for (int k = 0; k < kChannels; ++k) {
    int upper = (256 - fx) * a.value[k] + fx * b.value[k];
    int lower = (256 - fx) * c.value[k] + fx * d.value[k];
    result.value[k] = ((256 - fy) * upper + fy * lower + 32768) >> 16;
  }
  return result;
}

template <int kOp>
__device__ __forceinline__ Pixel made(const Sample& sample, int y, int x) {
  constexpr int kind = field(kOp, kFieldKind);
  if constexpr (field(kOp, kFieldLast)) {
    return read<kOp>(sample, y, x);
  } else if constexpr (kind == kPad) {
    int row = source_of<argument(kOp, 4)>(y - argument(kOp, 0), field(kOp, kFieldInH));
    int column = source_of<argument(kOp, 4)>(x - argument(kOp, 1), field(kOp, kFieldInW));
    if (row < 0 || column < 0) return filled(argument(kOp, 5));
    return read<kOp>(sample, row, column);
  } else if constexpr (kind == kWindow) {
    return read<kOp>(sample, y + argument(kOp, 0), x + argument(kOp, 1));
  } else if constexpr (kind == kCrop) {
    const Drawn& drawn = sample.drawn[first_block(kOp)];
    return read<kOp>(sample, y + drawn.a, x + drawn.b);
  } else if constexpr (kind == kFlip) {
    bool flips = sample.drawn[first_block(kOp)].a;
    return read<kOp>(sample, y, flips ? field(kOp, kFieldInW) - 1 - x : x);
  } else {
    return warped<kOp>(sample, y, x);
  }
}

// A pixel of the picture after the first kCount operations.
template <int kCount>
__device__ __forceinline__ Pixel read(const Sample& sample, int y, int x) {
  if constexpr (kCount == 0)
    return read_bytes(sample.picture, y * kWidth + x);
  else if constexpr (is_kept(kCount - 1))
    return read_bytes(sample.kept + place_of_kept(kCount - 1) * kept_bytes(),
                      y * field(kCount - 1, kFieldOutW) + x);
  else
    return made<kCount - 1>(sample, y, x);
}

// Computes the pictures that are kept, one after the other.
template <int kOp>
__device__ __forceinline__ void keep(const Sample& sample) {
  if constexpr (kOp < kOperations) {
    if constexpr (is_kept(kOp)) {
      constexpr int w = field(kOp, kFieldOutW), pixels = field(kOp, kFieldOutH) * w;
      unsigned char* to = sample.kept + place_of_kept(kOp) * kept_bytes();
      for (int p = threadIdx.x; p < pixels; p += blockDim.x) {
        Pixel pixel = made<kOp>(sample, p / w, p % w);
#pragma unroll
        for (int k = 0; k < kChannels; ++k)
          to[p * kChannels + k] = static_cast<unsigned char>(pixel.value[k]);
      }
      __syncthreads();
    }
    keep<kOp + 1>(sample);
  }
}

// What the end of a chain leaves to the normalisation: a flip, then an erased rectangle.
struct Finish {
  bool flips;
  int top, left, height, width;
};

template <int kOp>
__device__ __forceinline__ void finish(const Drawn* drawn, Finish& result) {
  if constexpr (kOp < kOperations) {
    const Drawn* own = drawn + first_block(kOp);
    if constexpr (field(kOp, kFieldLast) && field(kOp, kFieldKind) == kFlip) {
      if (own->a) {
        result.flips = !result.flips;
        result.left = field(kOp, kFieldInW) - result.left - result.width;
      }
    }
    if constexpr (field(kOp, kFieldKind) == kErase) {
      for (int attempt = 1; own->a && attempt <= 10; ++attempt) {
        if (own[attempt].height == 0) continue;
        result.top = own[attempt].a, result.left = own[attempt].b;
        result.height = own[attempt].height, result.width = own[attempt].width;
        break;
      }
    }
    finish<kOp + 1>(drawn, result);
  }
}

}  // namespace rn::data
