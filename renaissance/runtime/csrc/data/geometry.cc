#include "data/geometry.h"

#include <cstring>
#include <utility>

namespace rn::data {
namespace {

int32_t source_of(int32_t position, int32_t extent, int32_t mode) {
  if (position >= 0 && position < extent) return position;
  switch (mode) {
    case kEdge: return position < 0 ? 0 : extent - 1;
    case kReflect: return position < 0 ? -position : 2 * (extent - 1) - position;
    case kSymmetric: return position < 0 ? -1 - position : 2 * extent - 1 - position;
    default: return -1;
  }
}

void pad(const Operation& op, int32_t c, const uint8_t* in, uint8_t* out) {
  const int32_t top = op.args[0], left = op.args[1], mode = op.args[4], fill = op.args[5];
  for (int32_t y = 0; y < op.out_h; ++y, out += op.out_w * c) {
    int32_t row = source_of(y - top, op.in_h, mode);
    if (row < 0) {
      std::memset(out, fill, static_cast<size_t>(op.out_w) * c);
      continue;
    }
    const uint8_t* line = in + static_cast<int64_t>(row) * op.in_w * c;
    std::memcpy(out + left * c, line, static_cast<size_t>(op.in_w) * c);
    for (int32_t x = 0; x < op.out_w; ++x) {
      if (x == left) x += op.in_w;
      if (x >= op.out_w) break;
      int32_t column = source_of(x - left, op.in_w, mode);
      for (int32_t k = 0; k < c; ++k)
        out[x * c + k] = static_cast<uint8_t>(column < 0 ? fill : line[column * c + k]);
    }
  }
}

void window(const Operation& op, int32_t c, int32_t top, int32_t left, const uint8_t* in,
            uint8_t* out) {
  const size_t bytes = static_cast<size_t>(op.out_w) * c;
  for (int32_t y = 0; y < op.out_h; ++y)
    std::memcpy(out + y * bytes, in + (static_cast<int64_t>(top + y) * op.in_w + left) * c, bytes);
}

void flip(const Operation& op, int32_t c, const uint8_t* in, uint8_t* out) {
  for (int32_t y = 0; y < op.in_h; ++y)
    for (int32_t x = 0; x < op.in_w; ++x)
      for (int32_t k = 0; k < c; ++k)
        out[(y * op.in_w + x) * c + k] = in[(y * op.in_w + op.in_w - 1 - x) * c + k];
}

// One affine map about the centre: the source of output pixel (x, y) lies at
//   centre + (xx * dx + xy * dy, yx * dx + yy * dy),
// positions in 1/65536 pixel, read by bilinear interpolation with weights of 1/256. Pixels outside
// the picture have the value `fill`.
struct Affine {
  int32_t xx, xy, yx, yy;
};

template <int C>
void warp(const Operation& op, const Affine& map, const uint8_t* in, uint8_t* bordered,
          uint8_t* out) {
  const int32_t h = op.in_h, w = op.in_w, stride = (w + 2) * C;
  const uint8_t fill = static_cast<uint8_t>(op.args[0]);
  // a border of one pixel makes all four taps of every position near the picture readable
  std::memset(bordered, fill, static_cast<size_t>(stride) * (h + 2));
  for (int32_t y = 0; y < h; ++y)
    std::memcpy(bordered + (y + 1) * stride + C, in + static_cast<int64_t>(y) * w * C,
                static_cast<size_t>(w) * C);
  for (int32_t y = 0; y < h; ++y) {
    // twice the distance to the centre, which lies between pixels if the extent is even
    const int32_t dx = 1 - w, dy = 2 * y + 1 - h;
    int32_t sx = ((w - 1) << 15) + ((dx * map.xx + dy * map.xy) >> 1);
    int32_t sy = ((h - 1) << 15) + ((dx * map.yx + dy * map.yy) >> 1);
    for (int32_t x = 0; x < w; ++x, sx += map.xx, sy += map.yx, out += C) {
      const int32_t column = (sx >> 16) + 1, row = (sy >> 16) + 1;
      if (static_cast<uint32_t>(column) > static_cast<uint32_t>(w) ||
          static_cast<uint32_t>(row) > static_cast<uint32_t>(h)) {
        for (int k = 0; k < C; ++k) out[k] = fill;
        continue;
      }
      const int32_t fx = (sx >> 8) & 255, fy = (sy >> 8) & 255;
      const uint8_t* tap = bordered + row * stride + column * C;
      for (int k = 0; k < C; ++k) {
        const int32_t upper = (256 - fx) * tap[k] + fx * tap[k + C];
        const int32_t lower = (256 - fx) * tap[k + stride] + fx * tap[k + stride + C];
        out[k] = static_cast<uint8_t>(((256 - fy) * upper + fy * lower + 32768) >> 16);
      }
    }
  }
}

void warp(const Operation& op, int32_t c, const Affine& map, const uint8_t* in, uint8_t* bordered,
          uint8_t* out) {
  switch (c) {
    case 1: return warp<1>(op, map, in, bordered, out);
    case 2: return warp<2>(op, map, in, bordered, out);
    case 3: return warp<3>(op, map, in, bordered, out);
    default: return warp<4>(op, map, in, bordered, out);
  }
}

// Ten tries for a rectangle that fits, each with its own block of random words.
void choose_rectangle(const Operation& op, const Origin& origin, Finish* finish) {
  if (!happens(draw(origin, op.id, 0).word[0], op.args[0])) return;
  const int32_t* sides = op.table.data();
  for (uint32_t attempt = 1; attempt <= 10; ++attempt) {
    const PhiloxBlock block = draw(origin, op.id, attempt);
    const int32_t side = sides[entry_of(block.word[0])];
    const uint32_t ratio = entry_of(block.word[1]);
    const int32_t height = (side * sides[kEntries + ratio] + (1 << 17)) >> 18;
    const int32_t width = (side * sides[2 * kEntries + ratio] + (1 << 17)) >> 18;
    if (height < 1 || width < 1 || height >= op.in_h || width >= op.in_w) continue;
    finish->erase = true;
    finish->height = height;
    finish->width = width;
    finish->top = bounded(block.word[2], op.in_h - height + 1);
    finish->left = bounded(block.word[3], op.in_w - width + 1);
    return;
  }
}

}  // namespace

const uint8_t* transform(const Plan& plan, const Origin& origin, const uint8_t* image,
                         uint8_t* scratch, Finish* finish) {
  const int32_t c = plan.c;
  const int64_t bytes = plan.most_pixels * c;
  const uint8_t* now = image;
  uint8_t *next = scratch, *other = scratch + bytes, *bordered = scratch + 2 * bytes;
  for (const Operation& op : plan.operations) {
    bool moved = true;
    switch (op.kind) {
      case kPad: pad(op, c, now, next); break;
      case kWindow: window(op, c, op.args[0], op.args[1], now, next); break;
      case kCrop: {
        const PhiloxBlock block = draw(origin, op.id, 0);
        window(op, c, bounded(block.word[0], op.in_h - op.out_h + 1),
               bounded(block.word[1], op.in_w - op.out_w + 1), now, next);
        break;
      }
      case kFlip:
        moved = false;
        if (!happens(draw(origin, op.id, 0).word[0], op.args[0])) break;
        if (op.last) {
          finish->flip = !finish->flip;
          finish->left = op.in_w - finish->left - finish->width;
        } else {
          flip(op, c, now, next);
          moved = true;
        }
        break;
      case kRotate:
      case kScale: {
        const uint32_t entry = entry_of(draw(origin, op.id, 0).word[0]);
        Affine map;
        if (op.kind == kRotate) {
          const int32_t cosine = op.table[2 * entry], sine = op.table[2 * entry + 1];
          map = {cosine, -sine, sine, cosine};
        } else {
          map = {op.table[entry], 0, 0, op.table[entry]};
        }
        warp(op, c, map, now, bordered, next);
        break;
      }
      case kErase:
        moved = false;
        choose_rectangle(op, origin, finish);
        break;
    }
    if (moved) {
      now = next;
      std::swap(next, other);
    }
  }
  return now;
}

}  // namespace rn::data
