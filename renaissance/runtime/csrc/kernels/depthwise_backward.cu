// Both gradients of a depthwise convolution, and the passes of the norms on its two sides, in one walk.
//
// An input pixel's gradient and its part of the weights' gradient need the same few pixels of dy: a
// window. A thread walks down a strip, RN_ACROSS input pixels wide, with one pack of channels, and keeps
// the window in registers, with the filters and the sums of their gradient, which it adds up over all
// its strips. What dy and x are made of is fetched a step ahead and turned into floats once a thread;
// only the columns of dy that two strips see are made twice.
// RN_Y_NORM: dy lies behind a norm and RN_Y_ACTIVATION. RN_X_NORM: x lies before a norm and
// RN_X_ACTIVATION. RN_WHOLE: rows are whole strips.
#include "filters.cuh"

using namespace rn;

constexpr int kAcross = RN_ACROSS;
static_assert(sizeof(Element) == 2 && kWidth % 2 == 0, "pairs of halves");

constexpr int floor_div(int a, int b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

// Step p reads row p of dy; the RN_STRIDE rows of the input from p RN_STRIDE - RN_PAD on then have
// met all of theirs. Strips are as wide as a multiple of the stride, so which tap joins which pixels is
// known when the kernel is compiled.
static_assert(kAcross % RN_STRIDE == 0, "strip and stride");
constexpr int kLive = (RN_R + RN_STRIDE - 1) / RN_STRIDE;  // rows of dy that a row of input meets
constexpr int kFirst = -floor_div(RN_S - 1 - RN_PAD, RN_STRIDE);
constexpr int kSeen = floor_div(kAcross - 1 + RN_PAD, RN_STRIDE) - kFirst + 1;

// Whether an activation lets a gradient pass, by the distance of its input, not yet rounded, from
// `middle`: comparing with the largest value that rounds to a kink says as much as rounding would.
constexpr float kZero = 0x1p-25f, kSix = 0x1.7fep2f;

constexpr float middle(int activation) {
  return activation == kRelu6 ? (kZero + kSix) / 2 : 0.0f;
}

__device__ __forceinline__ bool passes(int activation, float z) {
  if (activation == kRelu) return !(z <= kZero);
  if (activation == kRelu6) return !(fabsf(z) >= (kSix - kZero) / 2);
  return true;
}

// Whether an activation stops a gradient, by its output.
__device__ __forceinline__ bool is_flat(int activation, float y) {
  if (activation == kRelu) return y <= 0.0f;
  if (activation == kRelu6) return y <= 0.0f || y >= 6.0f;
  return false;
}

// A pack as it is fetched: in words, which the compiler does not take apart into halves.
typedef Vector<uint, kWidth / 2> Words;

__device__ __forceinline__ Words nothing() {
  Words words;
#pragma unroll
  for (int k = 0; k < kWidth / 2; ++k) words.value[k] = 0;
  return words;
}

__device__ __forceinline__ void widen_all(Floats& to, const Words& words) {
#pragma unroll
  for (int k = 0; k < kWidth; k += 2) unpack_halves(to[k], to[k + 1], words.value[k / 2]);
}

__device__ __forceinline__ void round_all(Floats& x) {
#pragma unroll
  for (int k = 0; k < kWidth; k += 2) unpack_halves(x[k], x[k + 1], pack_halves(x[k], x[k + 1]));
}

// The norms' constants lie in shared memory, and each step reads them again: registers are short.
enum { kMean, kScale, kBeta, kSlope, kOffset, kOfInput, kConstants = kOfInput + 3 };
typedef float Table[kConstants][kTile * kWidth];

__device__ __forceinline__ void take(Floats& to, const Table& table, int which, int slot) {
#pragma unroll
  for (int k = 0; k < kWidth; ++k) to[k] = table[which][slot * kWidth + k];
}

__device__ __forceinline__ void keep(Table& table, int which, int slot, const Floats& from) {
#pragma unroll
  for (int k = 0; k < kWidth; ++k) table[which][slot * kWidth + k] = from[k];
}

// What is left of a norm and its two sums: dy = scale masked + slope (y - mean) + offset.
struct OutputNorm {
  Floats mean, scale, beta, slope, offset;

  __device__ __forceinline__ OutputNorm(const Table& table, int slot) {
    take(mean, table, kMean, slot), take(scale, table, kScale, slot);
    take(beta, table, kBeta, slot), take(slope, table, kSlope, slot);
    take(offset, table, kOffset, slot);
  }

  static __device__ __forceinline__ void prepare(Table& table, int slot,
                                                 const DepthwiseConvBackward& op, int column) {
    const ConvShape& s = op.shape;
    float count = static_cast<float>(s.n * s.p * s.q);
    PackNorm norm;
    Floats slope, offset, inverse_std;
    norm.read(op.y_norm, column);
    constants(slope, op.dgamma, column);
    constants(offset, op.dbeta, column);
    constants(inverse_std, op.y_norm.inverse_std, column);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      slope[k] = -norm.scale[k] * (inverse_std[k] * slope[k] / count);
      offset[k] = -norm.scale[k] * (offset[k] / count);
      norm.beta[k] -= middle(RN_Y_ACTIVATION);
    }
    keep(table, kMean, slot, norm.mean), keep(table, kScale, slot, norm.scale);
    keep(table, kBeta, slot, norm.beta), keep(table, kSlope, slot, slope);
    keep(table, kOffset, slot, offset);
  }

  __device__ __forceinline__ float operator()(float dy, float y, int k) const {
    float distance = y - mean[k];
    float dz = passes(RN_Y_ACTIVATION, distance * scale[k] + beta[k]) ? dy : 0.0f;
    return dz * scale[k] + (distance * slope[k] + offset[k]);
  }
};

struct Thread {
  const DepthwiseConvBackward& op;
  const Table& table;
  const Reduction& block;
  Filters filters;
  Floats gradient[kTaps];
  Floats sum, product;            // of dx, where it lies before a norm
  Floats window[kLive][kSeen];    // rows of dy; row p is number (p - first step) % kLive
  Words dy[kSeen], y[kSeen], x[RN_STRIDE][kAcross];  // what the next step reads
  // of the strip: its begin in row 0 of its image, its first column of dy and of the input, its steps
  Index outputs, inputs;
  int q0, w0, first, end;

  __device__ __forceinline__ Thread(const DepthwiseConvBackward& op, const Table& table,
                                    const Reduction& block)
      : op(op), table(table), block(block), filters(op.w, block.active ? block.column : 0) {
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) zero(gradient[tap]);
    zero(sum), zero(product);
#pragma unroll
    for (int j = 0; j < kSeen; ++j) dy[j] = y[j] = nothing();
#pragma unroll
    for (int i = 0; i < RN_STRIDE; ++i)
#pragma unroll
      for (int w = 0; w < kAcross; ++w) x[i][w] = nothing();
  }

  // With whole strips, the outputs under a strip's own pixels are inside.
  __device__ __forceinline__ bool is_output(int j) const {
    int under = j + kFirst;
    bool begun = under >= 0 || q0 + j >= 0;
    bool ended = under < kAcross / RN_STRIDE && RN_WHOLE ? false : q0 + j >= static_cast<int>(op.shape.q);
    return begun && !ended;
  }

  __device__ __forceinline__ bool is_input(int w) const {
    return RN_WHOLE || w0 + w < static_cast<int>(op.shape.w);
  }

  static __device__ __forceinline__ Words read(const void* map, Index at, int pixel) {
    return *reinterpret_cast<const Words*>(static_cast<const Element*>(map) + at + pixel * RN_C);
  }

  // Row p of dy, and of y where dy is made of it.
  __device__ __forceinline__ void fetch_outputs(int p) {
    const ConvShape& s = op.shape;
    if (p < 0 || p >= static_cast<int>(s.p)) return;
    Index row = outputs + static_cast<Index>(p) * (static_cast<int>(s.q) * RN_C);
#pragma unroll
    for (int j = 0; j < kSeen; ++j) {
      if (!is_output(j)) continue;
      dy[j] = read(op.dy, row, j);
      if (RN_Y_NORM) y[j] = read(op.y, row, j);
    }
  }

  // Row i of those of the input that step p completes.
  __device__ __forceinline__ void fetch_inputs(int p, int i) {
    const ConvShape& s = op.shape;
    int h = p * RN_STRIDE - RN_PAD + i;
    if (p < first || h < 0 || h >= static_cast<int>(s.h)) return;
    Index row = inputs + static_cast<Index>(h) * (static_cast<int>(s.w) * RN_C);
#pragma unroll
    for (int w = 0; w < kAcross; ++w)
      if (is_input(w)) x[i][w] = read(op.x, row, w);
  }

  __device__ __forceinline__ void fetch(int p) {
    fetch_outputs(p);
#pragma unroll
    for (int i = 0; i < RN_STRIDE; ++i) fetch_inputs(p, i);
  }

  __device__ __forceinline__ void begin(const Strip& strip) {
    const ConvShape& s = op.shape;
    w0 = strip.across * kAcross;
    q0 = w0 / RN_STRIDE + kFirst;
    first = strip.first, end = strip.end;
    outputs = (strip.n * s.p * s.q + q0) * RN_C + block.column * kWidth;
    inputs = (strip.n * s.h * s.w + w0) * RN_C + block.column * kWidth;
#pragma unroll
    for (int l = 0; l < kLive; ++l)
#pragma unroll
      for (int j = 0; j < kSeen; ++j) zero(window[l][j]);
    fetch(first - kLive + 1);
  }

  // Row p of dy becomes row `slot` of the window.
  __device__ __forceinline__ void open(int p, int slot) {
    if (p < 0 || p >= static_cast<int>(op.shape.p)) {
#pragma unroll
      for (int j = 0; j < kSeen; ++j) zero(window[slot][j]);
      return;
    }
#if RN_Y_NORM
    OutputNorm norm(table, block.slot);
#endif
#pragma unroll
    for (int j = 0; j < kSeen; ++j) {
      Floats value, behind;
      widen_all(value, dy[j]);
      if (RN_Y_NORM) widen_all(behind, y[j]);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
#if RN_Y_NORM
        value[k] = norm(value[k], behind[k], k);
#endif
        window[slot][j][k] = is_output(j) ? value[k] : 0.0f;
      }
    }
  }

  // Pixel w of row i of those that the present step completes, whose newest row of dy is number `slot`.
  __device__ __forceinline__ void meet(const PackNorm& norm, Words given, int i, int w, int slot, Element* to) {
    Floats value, distance, dx;
    widen_all(value, given);
    zero(dx);
    if (RN_X_NORM) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        distance[k] = value[k] - norm.mean[k];
        value[k] = distance[k] * norm.scale[k] + norm.beta[k];
      }
      round_all(value);
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        value[k] = activate(RN_X_ACTIVATION, value[k]);
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) value[k] = is_input(w) ? value[k] : 0.0f;
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
        dx[k] = is_flat(RN_X_ACTIVATION, value[k]) || !is_input(w) ? 0.0f : dx[k];
        sum[k] += dx[k];
        product[k] += dx[k] * distance[k];
      }
    if (is_input(w)) store(to, w, 0, dx);
  }

  // Step p, the `kStep`th of kLive that are written out, so that rows of the window need not move.
  template <int kSlot>
  __device__ __forceinline__ void step(int p) {
    if (p >= end) return;
    forget_loads();
    open(p, kSlot);
    bool more = p + 1 < end;
    if (more) fetch_outputs(p + 1);
#pragma unroll
    for (int i = 0; i < RN_STRIDE; ++i) {
      int h = p * RN_STRIDE - RN_PAD + i;
      Words now[kAcross];
#pragma unroll
      for (int w = 0; w < kAcross; ++w) now[w] = x[i][w];
      if (more) fetch_inputs(p + 1, i);
      if (p < first || h < 0 || h >= static_cast<int>(op.shape.h)) continue;
      PackNorm norm;
      if (RN_X_NORM) {
        take(norm.mean, table, kOfInput + kMean, block.slot);
        take(norm.scale, table, kOfInput + kScale, block.slot);
        take(norm.beta, table, kOfInput + kBeta, block.slot);
      }
      Element* to = static_cast<Element*>(op.dx) + inputs +
                    static_cast<Index>(h) * (static_cast<int>(op.shape.w) * RN_C);
#pragma unroll
      for (int w = 0; w < kAcross; ++w) meet(norm, now[w], i, w, kSlot, to);
    }
  }

  template <int kSlot = 0>
  __device__ __forceinline__ void steps(int p) {
    step<kSlot>(p);
    if constexpr (kSlot + 1 < kLive) steps<kSlot + 1>(p + 1);
  }
};

extern "C" __global__ void __launch_bounds__(256, RN_BLOCKS)
    depthwise_conv_backward_kernel(const DepthwiseConvBackward op) {
  Reduction block;
  __shared__ Table table;
  Thread thread(op, table, block);
  const ConvShape& s = op.shape;
  int strips = (static_cast<int>(s.w) + kAcross - 1) / kAcross;
  int steps = (static_cast<int>(s.h) + RN_PAD + RN_STRIDE - 1) / RN_STRIDE;
  Index count = Strip::count(s.n, steps, strips, RN_ROWS);
  if (block.active && block.lane == 0) {
    if (RN_Y_NORM) OutputNorm::prepare(table, block.slot, op, block.column);
    if (RN_X_NORM) {
      PackNorm norm;
      norm.read(op.x_norm, block.column);
      keep(table, kOfInput + kMean, block.slot, norm.mean);
      keep(table, kOfInput + kScale, block.slot, norm.scale);
      keep(table, kOfInput + kBeta, block.slot, norm.beta);
    }
  }
  __syncthreads();
  if (block.active) {
    Index stride = static_cast<Index>(gridDim.x) * kRowLanes;
#pragma unroll 1
    for (Index i = static_cast<Index>(blockIdx.x) * kRowLanes + block.lane; i < count; i += stride) {
      thread.begin(Strip(i, steps, strips, RN_ROWS));
#pragma unroll 1
      for (int p = thread.first - kLive + 1; p < thread.end; p += kLive) thread.steps(p);
    }
  }
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) block.write(op.partial, thread.gradient[tap], tap, kTaps);
  if (RN_X_NORM) {
    block.write(op.sums, thread.sum, 0, 2);
    block.write(op.sums, thread.product, 1, 2);
  }
}
