// Both gradients of a depthwise convolution, and the passes of the norms on its two sides, in one walk.
//
// An input pixel's gradient and its part of the weights' gradient need the same few pixels of dy: a
// window. A thread walks down strips, RN_ACROSS input pixels wide, with one pack of channels, and keeps
// the window in registers, with the filters and the sums of their gradient, which it adds up over all
// its strips. What dy and x are made of is fetched a step ahead, across the end of a strip too, and
// turned into floats once a thread; only the columns of dy that two strips see are made twice.
// RN_Y_NORM: dy lies behind a norm and RN_Y_ACTIVATION. RN_X_NORM: x lies before a norm and
// RN_X_ACTIVATION. RN_WHOLE: rows are whole strips.
#include "depthwise_backward.cuh"
#include "filters.cuh"

using namespace rn;

constexpr int kAcross = RN_ACROSS;

constexpr int floor_div(int a, int b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

// Step p reads row p of dy; the RN_STRIDE rows of the input from p RN_STRIDE - RN_PAD on then have
// met all of theirs. Strips are as wide as a multiple of the stride, so which tap joins which pixels is
// known when the kernel is compiled.
static_assert(kAcross % RN_STRIDE == 0, "strip and stride");
constexpr int kLive = (RN_R + RN_STRIDE - 1) / RN_STRIDE;  // rows of dy that a row of input meets
constexpr int kFirst = -floor_div(RN_S - 1 - RN_PAD, RN_STRIDE);
constexpr int kSeen = floor_div(kAcross - 1 + RN_PAD, RN_STRIDE) - kFirst + 1;

struct Thread {
  const DepthwiseConvBackward& op;
  const Table& table;
  const Reduction& block;
  const Steps& steps;
  int across, strips;  // strips of a row, and in all
  Filters filters;
  Floats gradient[kTaps];
  Floats sum, product;          // of dx, where it lies before a norm
  Floats window[kLive][kSeen];  // rows of dy, each at its step's number modulo kLive
  Words dy[kSeen], y[kSeen], x[RN_STRIDE][kAcross];  // what the next step reads
  // Where the next step is: group, row of dy, first and end of the rows of its strip, first column of
  // dy, columns of the input that are left, and elements from the begin of the maps.
  int group, p, first, end, q0, left;
  Index outputs, inputs;

  __device__ __forceinline__ Thread(const DepthwiseConvBackward& op, const Table& table,
                                    const Reduction& block, const Steps& steps, int across)
      : op(op),
        table(table),
        block(block),
        steps(steps),
        across(across),
        strips(static_cast<int>(op.shape.n) * across),
        filters(op.w, block.active ? block.column : 0) {
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) zero(gradient[tap]);
    zero(sum), zero(product);
#pragma unroll
    for (int j = 0; j < kSeen; ++j) dy[j] = y[j] = nothing();
#pragma unroll
    for (int i = 0; i < RN_STRIDE; ++i)
#pragma unroll
      for (int w = 0; w < kAcross; ++w) x[i][w] = nothing();
    clear_window();
    group = steps.first_group, first = steps.first;
    begin();
    if (block.active && !done()) fetch();
  }

  __device__ __forceinline__ int strip() const { return group * kRowLanes + block.lane; }

  __device__ __forceinline__ bool done() const {
    return group > steps.last_group || strip() >= strips;
  }

  __device__ __forceinline__ void clear_window() {
#pragma unroll
    for (int l = 0; l < kLive; ++l)
#pragma unroll
      for (int j = 0; j < kSeen; ++j) zero(window[l][j]);
  }

  // To the first row of the group's strip that this block's steps need.
  __device__ __forceinline__ void begin() {
    const ConvShape& s = op.shape;
    uint n = static_cast<uint>(strip()) / static_cast<uint>(across);
    int w0 = (strip() - static_cast<int>(n) * across) * kAcross;
    q0 = w0 / RN_STRIDE + kFirst;
    left = static_cast<int>(s.w) - w0;
    end = group == steps.last_group ? steps.end : steps.count;
    p = first >= kLive ? first - kLive + 1 : 0;
    outputs = ((n * s.p + p) * s.q + q0) * RN_C + block.column * kWidth;
    inputs = ((n * s.h + p * RN_STRIDE - RN_PAD) * s.w + w0) * RN_C + block.column * kWidth;
  }

  // To the next step; returns whether it is in another strip.
  __device__ __forceinline__ bool advance() {
    const ConvShape& s = op.shape;
    ++p;
    outputs += static_cast<int>(s.q) * RN_C;
    inputs += static_cast<int>(s.w) * (RN_STRIDE * RN_C);
    if (p < end) return false;
    ++group, first = 0;
    if (!done()) begin();
    return true;
  }

  // With whole strips, the outputs under a strip's own pixels are inside.
  __device__ __forceinline__ bool is_output(int j) const {
    int under = j + kFirst;
    bool is_own = RN_WHOLE && under < kAcross / RN_STRIDE;
    return (under >= 0 || q0 + j >= 0) && (is_own || q0 + j < static_cast<int>(op.shape.q));
  }

  static __device__ __forceinline__ bool is_input(int left, int w) {
    return RN_WHOLE || w < left;
  }

  static __device__ __forceinline__ Words read(const void* map, Index at, int pixel) {
    return *reinterpret_cast<const Words*>(static_cast<const Element*>(map) + at + pixel * RN_C);
  }

  __device__ __forceinline__ bool completes(int i) const {
    int h = p * RN_STRIDE - RN_PAD + i;
    return p >= first && h >= 0 && h < static_cast<int>(op.shape.h);
  }

  __device__ __forceinline__ void fetch() {
    const ConvShape& s = op.shape;
    if (p < static_cast<int>(s.p)) {
#pragma unroll
      for (int j = 0; j < kSeen; ++j) {
        if (!is_output(j)) continue;
        dy[j] = read(op.dy, outputs, j);
        if (RN_Y_NORM) y[j] = read(op.y, outputs, j);
      }
    }
#pragma unroll
    for (int i = 0; i < RN_STRIDE; ++i) {
      if (!completes(i)) continue;
#pragma unroll
      for (int w = 0; w < kAcross; ++w)
        if (is_input(left, w)) x[i][w] = read(op.x, inputs + i * static_cast<int>(s.w) * RN_C, w);
    }
  }

  // Row p of dy becomes row `slot` of the window.
  __device__ __forceinline__ void open(int slot) {
    if (p >= static_cast<int>(op.shape.p)) {
#pragma unroll
      for (int j = 0; j < kSeen; ++j) zero(window[slot][j]);
      return;
    }
    Floats scale, shift, slope, offset;
    if (RN_Y_NORM) {
      take(scale, table, kScale, block.slot), take(shift, table, kShift, block.slot);
      take(slope, table, kSlope, block.slot), take(offset, table, kOffset, block.slot);
    }
#pragma unroll
    for (int j = 0; j < kSeen; ++j) {
      Floats value, behind;
      widen_all(value, dy[j]);
      if (RN_Y_NORM) widen_all(behind, y[j]);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        if (RN_Y_NORM) {
          float dz = passes(RN_Y_ACTIVATION, behind[k] * scale[k] + shift[k]) ? value[k] : 0.0f;
          value[k] = dz * scale[k] + (behind[k] * slope[k] + offset[k]);
        }
        window[slot][j][k] = is_output(j) ? value[k] : 0.0f;
      }
    }
  }

  // Pixel w of row i of those that a step completes whose row of dy is number `slot`.
  __device__ __forceinline__ void meet(const Floats& scale, const Floats& shift, Words given, int i,
                                       int w, int slot, bool inside, Element* to) {
    Floats before, value, dx;
    widen_all(before, given);
    zero(dx);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) value[k] = before[k];
    if (RN_X_NORM) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) value[k] = before[k] * scale[k] + shift[k];
      activate_all(RN_X_ACTIVATION, value);
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) value[k] = inside ? value[k] : 0.0f;
#pragma unroll
    for (int l = 0; l < kLive; ++l)
#pragma unroll
      for (int j = 0; j < kSeen; ++j) {
        const int r = i + l * RN_STRIDE, t = w + RN_PAD - (j + kFirst) * RN_STRIDE;
        if (r >= RN_R || t < 0 || t >= RN_S) continue;
        const Floats& d = window[(slot - l + kLive) % kLive][j];
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          dx[k] += d[k] * filters.tap[r * RN_S + t][k];
          gradient[r * RN_S + t][k] += d[k] * value[k];
        }
      }
    if (RN_X_NORM)
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        dx[k] = is_flat(RN_X_ACTIVATION, value[k]) || !inside ? 0.0f : dx[k];
        sum[k] += dx[k];
        product[k] += inside ? dx[k] * before[k] : 0.0f;
      }
    if (inside) store(to, w, 0, dx);
  }

  // A step, the `kSlot`th of kLive that are written out, so that rows of the window need not move.
  template <int kSlot>
  __device__ __forceinline__ void step() {
    if (done()) return;
    forget_loads();
    open(kSlot);
    Words now[RN_STRIDE][kAcross];
    bool complete[RN_STRIDE], inside[kAcross];
    Element* to = static_cast<Element*>(op.dx) + inputs;
#pragma unroll
    for (int i = 0; i < RN_STRIDE; ++i) {
      complete[i] = completes(i);
#pragma unroll
      for (int w = 0; w < kAcross; ++w) now[i][w] = x[i][w];
    }
#pragma unroll
    for (int w = 0; w < kAcross; ++w) inside[w] = is_input(left, w);
    bool turns = advance();
    if (!done()) fetch();
    Floats scale, shift;
    if (RN_X_NORM) {
      take(scale, table, kInputScale, block.slot), take(shift, table, kInputShift, block.slot);
    }
#pragma unroll
    for (int i = 0; i < RN_STRIDE; ++i) {
      if (!complete[i]) continue;
#pragma unroll
      for (int w = 0; w < kAcross; ++w)
        meet(scale, shift, now[i][w], i, w, kSlot, inside[w],
             to + i * static_cast<int>(op.shape.w) * RN_C);
    }
    if (turns) {
      forget_loads();  // a branch, where the compiler would select register by register
      clear_window();
    }
  }

  template <int kSlot = 0>
  __device__ __forceinline__ void turn() {
    step<kSlot>();
    if constexpr (kSlot + 1 < kLive) turn<kSlot + 1>();
  }

  // Products with x become those with x - mean.
  __device__ __forceinline__ void center() {
    Floats mean;
    constants(mean, op.x_norm.mean, block.column);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) product[k] -= mean[k] * sum[k];
  }
};

extern "C" __global__ void __launch_bounds__(256, RN_BLOCKS)
    depthwise_conv_backward_kernel(const DepthwiseConvBackward op) {
  __shared__ Table table;
  Reduction block;
  if (block.active && block.lane == 0) prepare(table, block.slot, op, block.column);
  __syncthreads();
  int across = (static_cast<int>(op.shape.w) + kAcross - 1) / kAcross;
  Steps steps(op.shape, static_cast<int>(op.shape.n) * across);
  Thread thread(op, table, block, steps, across);
  if (block.active) {
#pragma unroll 1
    while (!thread.done()) thread.turn();
    if (RN_X_NORM) thread.center();
  }
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) block.write(op.partial, thread.gradient[tap], tap, kTaps);
  if (RN_X_NORM) {
    block.write(op.sums, thread.sum, 0, 2);
    block.write(op.sums, thread.product, 1, 2);
  }
}
