// Backward of a depthwise convolution and of what stands around it; included by map_operations.h.
#pragma once

namespace rn {

// Both gradients of a depthwise convolution of w (c, r, s, 1) in one pass over its maps.
//
// Where y_norm.mean is not null, a norm and y_activation follow the convolution, and dy is the gradient
// behind them. The norm's sums are known: the convolution's own dy is, as in BatchNormBackward,
//   gamma inverse_std (dy y_activation'(y_norm(y)) - (dbeta + yhat dgamma) / rows), rows = n p q.
// Where x_norm.mean is not null, the convolution has read x_activation(x_norm(x)) rounded to its type,
// and dx is the gradient of x_norm(x), with partial rows of its sum and of its products with x - mean in
// sums, as the first pass of BatchNormBackward leaves them. The weight's gradient is summed in
// partial_rows pieces of r s c floats in partial; with one piece it needs none.
struct DepthwiseConvBackward {
  const void* dy;
  const void* y;
  Norm y_norm;
  const float* dgamma;
  const float* dbeta;
  const void* w;
  const void* x;
  Norm x_norm;
  void* dx;
  void* dw;
  float* partial;
  float* sums;
  ConvShape shape;
  Index partial_rows;
  int type, y_activation, x_activation;
};

}  // namespace rn
