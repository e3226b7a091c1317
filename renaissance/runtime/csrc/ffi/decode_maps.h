// How the records of the operations on maps are read from a call.
#pragma once

#include "ffi/decode.h"
#include "map_operations.h"

namespace rn {

inline ConvShape conv_shape(Call& call) {
  return {call.integer("n"), call.integer("h"), call.integer("w"), call.integer("c"),
          call.integer("k"), call.integer("p"), call.integer("q"), small(call, "r"),
          small(call, "s"), small(call, "stride"), small(call, "pad"), small(call, "groups")};
}

inline PoolShape pool_shape(Call& call) {
  return {call.integer("n"), call.integer("h"), call.integer("w"), call.integer("c"),
          call.integer("p"), call.integer("q"), small(call, "kernel"), small(call, "stride"),
          small(call, "pad")};
}

inline Norm norm(Call& call) {
  return {call.pointer<float>(), call.pointer<float>(), call.pointer<float>(),
          call.pointer<float>()};
}

template <>
inline ConvForward decode(Call& call) {
  return {call.pointer(), call.pointer(), call.pointer(), call.pointer(), conv_shape(call),
          call.integer("workspace_bytes"), small(call, "type"),
          small(call, "y_type")};
}

template <>
inline ConvBackwardData decode(Call& call) {
  return {call.pointer(), call.pointer(), call.pointer(), call.pointer(), conv_shape(call),
          call.integer("workspace_bytes"), small(call, "type")};
}

template <>
inline ConvBackwardWeight decode(Call& call) {
  return {call.pointer(), call.pointer(), call.pointer(), call.pointer(), conv_shape(call),
          call.integer("workspace_bytes"), small(call, "type")};
}

template <>
inline DepthwiseConvForward decode(Call& call) {
  return {call.pointer(), call.pointer(), call.pointer(), conv_shape(call), small(call, "type")};
}

template <>
inline DepthwiseConvBackwardData decode(Call& call) {
  return {call.pointer(), call.pointer(), call.pointer(), conv_shape(call), small(call, "type")};
}

template <>
inline DepthwiseConvBackwardWeight decode(Call& call) {
  return {call.pointer(), call.pointer(), call.pointer(), call.pointer<float>(),
          conv_shape(call), call.integer("partial_rows"), small(call, "type")};
}

template <>
inline DepthwiseConvBackward decode(Call& call) {
  return {call.pointer(), call.pointer(), norm(call), call.pointer<float>(),
          call.pointer<float>(), call.pointer(), call.pointer(), norm(call), call.pointer(),
          call.pointer(), call.pointer<float>(), call.pointer<float>(), conv_shape(call),
          call.integer("partial_rows"), small(call, "type"), small(call, "y_activation"),
          small(call, "x_activation")};
}

template <>
inline BatchNormStatistics decode(Call& call) {
  return {call.pointer(), call.pointer<float>(), call.pointer<float>(), call.pointer<float>(),
          call.pointer<float>(), call.pointer<float>(), call.pointer<float>(),
          call.pointer<float>(), call.integer("rows"), call.integer("c"),
          call.integer("partial_rows"), call.real("momentum"), call.real("eps"),
          small(call, "type")};
}

template <>
inline ConvForwardStatistics decode(Call& call) {
  ConvForward conv = decode<ConvForward>(call);
  const ConvShape& s = conv.shape;
  return {conv,
          {conv.y, call.pointer<float>(), call.pointer<float>(), call.pointer<float>(),
           call.pointer<float>(), call.pointer<float>(), call.pointer<float>(),
           call.pointer<float>(), s.n * s.p * s.q, s.k, call.integer("partial_rows"),
           call.real("momentum"), call.real("eps"), conv.y_type}};
}

template <>
inline BatchNormApply decode(Call& call) {
  return {call.pointer(), norm(call), call.pointer(), norm(call), call.pointer(), call.pointer(),
          call.pointer(), call.integer("rows"), call.integer("c"), small(call, "type"),
          small(call, "activation")};
}

template <>
inline BatchNormBackward decode(Call& call) {
  return {call.pointer(), call.pointer(), call.pointer(), call.pointer(), norm(call),
          call.pointer(), norm(call), call.pointer(), call.pointer<float>(),
          call.pointer<float>(), call.pointer(), call.pointer<float>(), call.pointer<float>(),
          call.pointer<float>(), call.pointer(), call.pointer(), call.integer("rows"),
          call.integer("c"), call.integer("partial_rows"), pool_shape(call), small(call, "type"),
          small(call, "activation"), small(call, "argmax_bytes")};
}

template <>
inline ConvBackwardDataNorm decode(Call& call) {
  const void *dy = call.pointer(), *w = call.pointer();
  void* workspace = call.pointer();
  BatchNormBackward norm = decode<BatchNormBackward>(call);
  norm.pool = {};  // the attributes of that name are the convolution's
  return {{dy, w, const_cast<void*>(norm.dy), workspace, conv_shape(call),
           call.integer("workspace_bytes"), norm.type},
          norm};
}

template <>
inline BatchNormFold decode(Call& call) {
  return {call.pointer<float>(), call.pointer<float>(), call.pointer<float>(),
          call.pointer<float>(), call.pointer<float>(), call.pointer<float>(),
          call.integer("c"), call.real("eps")};
}

template <>
inline AffineForward decode(Call& call) {
  return {call.pointer(), call.pointer<float>(), call.pointer<float>(), call.pointer(),
          call.pointer(), call.integer("rows"), call.integer("c"), small(call, "type"),
          small(call, "activation")};
}

template <>
inline AddForward decode(Call& call) {
  return {call.pointer(), call.pointer(), call.pointer(), call.pointer(), call.integer("count"),
          small(call, "type"), small(call, "activation")};
}

template <>
inline MaxPoolForward decode(Call& call) {
  return {call.pointer(), norm(call), call.pointer(), call.pointer(), pool_shape(call),
          small(call, "type"), small(call, "activation"), small(call, "argmax_bytes")};
}

template <>
inline MaxPoolBackward decode(Call& call) {
  return {call.pointer(), call.pointer(), call.pointer(), pool_shape(call), small(call, "type"),
          small(call, "argmax_bytes")};
}

template <>
inline AveragePoolForward decode(Call& call) {
  return {call.pointer(), call.pointer(), pool_shape(call), small(call, "type")};
}

template <>
inline AveragePoolBackward decode(Call& call) {
  return {call.pointer(), call.pointer(), pool_shape(call), small(call, "type")};
}

template <>
inline GlobalAveragePoolForward decode(Call& call) {
  return {call.pointer(), call.pointer(), call.integer("n"), call.integer("pixels"),
          call.integer("c"), small(call, "type"),
          small(call, "y_type")};
}

template <>
inline GlobalAveragePoolBackward decode(Call& call) {
  return {call.pointer(), call.pointer(), call.integer("n"), call.integer("pixels"),
          call.integer("c"), small(call, "type")};
}

template <>
inline GapFcBackwardData decode(Call& call) {
  return {call.pointer(), call.pointer(), call.pointer(), call.integer("n"),
          call.integer("pixels"), call.integer("c"), call.integer("k"), small(call, "type")};
}

template <>
inline ChannelPadding decode(Call& call) {
  return {call.pointer(), call.pointer(), call.integer("pixels"), call.integer("x_channels"),
          call.integer("y_channels"), small(call, "type")};
}

}  // namespace rn
