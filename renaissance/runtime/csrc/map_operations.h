// Operations on maps: convolutions, batch norms, pools, adds. Maps are NHWC, filters KRSC; as in
// operations.h one record serves the host twin and the CUDA kernel.
#pragma once

#include "operations.h"

namespace rn {

// x (n, h, w, c), filters (k, r, s, c / groups), y (n, p, q, k). Padding is symmetric zeros.
struct ConvShape {
  Index n, h, w, c, k, p, q;
  int r, s, stride, pad, groups;
};

// Logits may be wider than the rest: y is of y_type.
//
// y[n,p,q,k] = sum over r, s, c of x[n, p stride + r - pad, q stride + s - pad, c] w[k,r,s,c].
struct ConvForward {
  const void* x;
  const void* w;
  void* y;
  void* workspace;
  ConvShape shape;
  Index workspace_bytes;
  int type, y_type;
};

struct ConvBackwardData {
  const void* dy;
  const void* w;
  void* dx;
  void* workspace;
  ConvShape shape;
  Index workspace_bytes;
  int type;
};

struct ConvBackwardWeight {
  const void* x;
  const void* dy;
  void* dw;
  void* workspace;
  ConvShape shape;
  Index workspace_bytes;
  int type;
};

// Depthwise: k = c = groups, filters (c, r, s, 1). The weight's gradient is summed in partial_rows
// pieces of r s c floats in the workspace; with one piece it needs none.
struct DepthwiseConvForward {
  const void* x;
  const void* w;
  void* y;
  ConvShape shape;
  int type;
};

struct DepthwiseConvBackwardData {
  const void* dy;
  const void* w;
  void* dx;
  ConvShape shape;
  int type;
};

struct DepthwiseConvBackwardWeight {
  const void* x;
  const void* dy;
  void* dw;
  float* partial;
  ConvShape shape;
  Index partial_rows;
  int type;
};

// norm(x) = (x - mean) inverse_std gamma + beta, channel by channel.
struct Norm {
  const float* gamma;
  const float* beta;
  const float* mean;
  const float* inverse_std;
};

// Mean and 1 / sqrt(biased variance + eps) of x (rows, c), and the running statistics they lead to:
// next = (1 - momentum) prev + momentum batch, the variance unbiased. partial holds partial_rows
// rows of 2 c sums.
struct BatchNormStatistics {
  const void* x;
  const float* prev_mean;
  const float* prev_var;
  float* mean;
  float* inverse_std;
  float* next_mean;
  float* next_var;
  float* partial;
  Index rows, c, partial_rows;
  float momentum, eps;
  int type;
};

}  // namespace rn

#include "depthwise_backward.h"

namespace rn {

// z = norm(x) + shortcut, y = activation(z). The shortcut may be absent, or itself still to be
// normalised (shortcut_norm.mean is then not null); z is written where wanted.
//
// mask, where wanted, holds a byte for eight neighbouring channels, pixel by pixel: its bit c % 8 is
// set where the activation's slope is 1, which for ReLU is z > 0 after rounding. For slopes of 0 and 1
// alone, and c a multiple of 8.
struct BatchNormApply {
  const void* x;
  Norm norm;
  const void* shortcut;
  Norm shortcut_norm;
  void* y;
  void* z;
  void* mask;
  Index rows, c;
  int type, activation;
};

// ConvForward, then BatchNormStatistics of its y. Where a library sums while it convolves, partial
// holds one row: sums of y, then of its squares.
struct ConvForwardStatistics {
  ConvForward conv;
  BatchNormStatistics statistics;
};

struct PoolShape {
  Index n, h, w, c, p, q;
  int kernel, stride, pad;
};

// Backward of BatchNormApply. dz = dy activation'(gate); gate is the activation's output, or its
// input for silu and hardswish; where it is null, norm(x) is computed again. With argmax, dy is the
// gradient of a max-pool's output instead, and is first spread out to the winners; so it is with a
// pool.kernel and no argmax, where windows tile the map and their winners are searched again. With the
// mask that BatchNormApply left, that is read and the gate is not.
//
//   dbeta = sum of dz, dgamma = sum of dz xhat, xhat = (x - mean) inverse_std,
//   dx = gamma inverse_std (dz - (dbeta + xhat dgamma) / rows).
//
// dshortcut is dz, or the like for a shortcut that was normalised, whose dbeta is the same sum.
// partial holds partial_rows rows of 2 c sums, 4 c with a normalised shortcut. Where two layers read
// the output, addend is the other one's gradient and dy + addend stands for dy; not with argmax. With a
// pool.stride and no pool.kernel it is zero but on every stride-th row and column of the pool.h by pool.w
// map, and holds only those, pool.p by pool.q of them (convolutions of one tap).
struct BatchNormBackward {
  const void* dy;
  const void* gate;
  const void* argmax;
  const void* x;
  Norm norm;
  const void* shortcut;
  Norm shortcut_norm;
  void* dx;
  float* dgamma;
  float* dbeta;
  void* dshortcut;
  float* dshortcut_gamma;
  float* dshortcut_beta;
  float* partial;
  const void* addend;
  const void* mask;
  Index rows, c, partial_rows;
  PoolShape pool;
  int type, activation, argmax_bytes;
};

// ConvBackwardData into norm.dy, then the backward of the norm that the convolution reads. Kernels of
// ours leave dz in its place.
struct ConvBackwardDataNorm {
  ConvBackwardData conv;
  BatchNormBackward norm;
};

// scale = gamma / sqrt(var + eps), bias = beta - mean scale.
struct BatchNormFold {
  const float* gamma;
  const float* beta;
  const float* mean;
  const float* var;
  float* scale;
  float* bias;
  Index c;
  float eps;
};

// y = activation(x scale + bias + shortcut); y may be x.
struct AffineForward {
  const void* x;
  const float* scale;
  const float* bias;
  const void* shortcut;
  void* y;
  Index rows, c;
  int type, activation;
};

// z = a + b, y = activation(z); z is written where wanted.
struct AddForward {
  const void* a;
  const void* b;
  void* y;
  void* z;
  Index count;
  int type, activation;
};

// The maximum of every window of x, or of activation(norm(x)) where norm.mean is not null. argmax,
// where wanted, counts the winner's place in the window in row-major order; the first one wins.
struct MaxPoolForward {
  const void* x;
  Norm norm;
  void* y;
  void* argmax;
  PoolShape pool;
  int type, activation, argmax_bytes;
};

// dx = the sum of dy over the windows whose winner it is.
struct MaxPoolBackward {
  const void* dy;
  const void* argmax;
  void* dx;
  PoolShape pool;
  int type, argmax_bytes;
};

// The mean over the real pixels of every window.
struct AveragePoolForward {
  const void* x;
  void* y;
  PoolShape pool;
  int type;
};

struct AveragePoolBackward {
  const void* dy;
  void* dx;
  PoolShape pool;
  int type;
};

// y (n, c) = the mean of x (n, pixels, c) over its pixels.
struct GlobalAveragePoolForward {
  const void* x;
  void* y;
  Index n, pixels, c;
  int type, y_type;
};

struct GlobalAveragePoolBackward {
  const void* dy;
  void* dx;
  Index n, pixels, c;
  int type;
};

// dx (n, pixels, c) = dy (n, k) w (k, c) / pixels, the same for every pixel.
struct GapFcBackwardData {
  const void* dy;
  const void* w;
  void* dx;
  Index n, pixels, c, k;
  int type;
};

// y (pixels, y_channels) takes the channels of x (pixels, x_channels); further ones are zero.
struct ChannelPadding {
  const void* x;
  void* y;
  Index pixels, x_channels, y_channels;
  int type;
};

}  // namespace rn
