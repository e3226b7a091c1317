// How each operation's record is read from a call: operands in order, then attributes by name.
#pragma once

#include "ffi/call.h"

namespace rn {

inline int small(Call& call, const char* name) { return static_cast<int>(call.integer(name)); }

// Braces evaluate from left to right, so that operands are taken in the order they are written.

template <>
inline FcForward decode(Call& call) {
  return {call.pointer(), call.pointer(), call.pointer<float>(), call.pointer(), call.pointer(),
          call.integer("n"), call.integer("c"), call.integer("k"), small(call, "type"),
          small(call, "y_type"), small(call, "activation")};
}

template <>
inline FcBackward decode(Call& call) {
  return {call.pointer(), call.pointer(), call.pointer(), call.pointer(), call.pointer(),
          call.pointer(), call.pointer<float>(), call.pointer<int>(), call.integer("n"),
          call.integer("c"), call.integer("k"), small(call, "type"), small(call, "activation")};
}

template <>
inline ActivationForward decode(Call& call) {
  return {call.pointer(), call.pointer(), call.integer("count"), small(call, "type"),
          small(call, "activation")};
}

template <>
inline ActivationBackward decode(Call& call) {
  return {call.pointer(), call.pointer(), call.pointer(), call.integer("count"),
          small(call, "type"), small(call, "activation")};
}

template <>
inline SoftmaxCrossEntropy decode(Call& call) {
  return {call.pointer(), call.pointer<int>(), call.pointer<float>(), call.pointer(),
          call.pointer<int>(), call.pointer<float>(), call.pointer<float>(),
          call.pointer<float>(), call.pointer<float>(), call.pointer<float>(),
          call.integer("n"), call.integer("k"), call.real("smoothing"), small(call, "type"),
          small(call, "gradient_type")};
}

template <>
inline DropoutForward decode(Call& call) {
  return {call.pointer(), call.pointer<int>(), call.pointer<int>(), call.pointer<int>(),
          call.pointer(), call.pointer<unsigned char>(), call.integer("rows"),
          call.integer("elements"), call.integer("layer"), call.real("p"), small(call, "type")};
}

template <>
inline DropoutBackward decode(Call& call) {
  return {call.pointer(), call.pointer<unsigned char>(), call.pointer(), call.integer("count"),
          call.real("p"), small(call, "type")};
}

template <>
inline Cast decode(Call& call) {
  return {call.pointer(), call.pointer(), call.integer("count"), small(call, "from_type"),
          small(call, "to_type")};
}

template <>
inline Clear decode(Call& call) {
  return {call.pointer(), call.integer("bytes")};
}

template <>
inline Copy decode(Call& call) {
  return {call.pointer(), call.pointer(), call.pointer<int>(), call.integer("bytes")};
}

template <>
inline LoadBatch decode(Call& call) {
  return {call.pointer(), call.pointer<int>(), call.pointer<int>(), call.pointer(),
          call.pointer<int>(), call.integer("pixels"), call.integer("channels"),
          call.integer("padded_channels"), call.integer("rows"), small(call, "from_type"),
          small(call, "type")};
}

template <>
inline CheckAndUnscale decode(Call& call) {
  return {call.pointer<float>(), call.pointer<float>(), call.pointer<int>(),
          call.integer("count"), call.real("max_abs")};
}

template <>
inline CheckFinite decode(Call& call) {
  return {call.pointer<float>(), call.pointer(), call.pointer<int>(), call.integer("count"),
          call.integer("raw_count")};
}

template <>
inline ClipByNorm decode(Call& call) {
  return {call.pointer<float>(), call.pointer<double>(), call.integer("count"),
          call.real("max_norm"), small(call, "rows")};
}

template <>
inline EmaUpdate decode(Call& call) {
  return {call.pointer<float>(), call.pointer<float>(), call.pointer<int>(),
          call.integer("count"), call.real("decay")};
}

template <>
inline Accumulate decode(Call& call) {
  return {call.pointer<float>(), call.pointer<float>(), call.pointer<int>(),
          call.integer("count")};
}

template <>
inline Optimizer decode(Call& call) {
  return {call.pointer<float>(), call.pointer<float>(), call.pointer<float>(),
          call.pointer<float>(), call.pointer<float>(), call.pointer<float>(),
          call.pointer<float>(), call.pointer<int>(), call.pointer<float>(), call.pointer(),
          call.pointer(), call.pointer<float>(), call.integer("count"),
          call.integer("decay_from"), call.real("momentum"), call.real("beta1"),
          call.real("beta2"), call.real("rest1"), call.real("rest2"), call.real("eps"),
          call.real("weight_decay"), call.real("max_abs"), call.real("ema_decay"),
          small(call, "rule")};
}

// Where a region's tensors begin, in units of 128 elements, and how many elements they hold.
inline TensorTable tensor_table(Call& call) {
  TensorTable table{};
  auto begins = call.integers("begins"), counts = call.integers("counts");
  if (begins.size() != counts.size() || begins.size() > kMaxTensors) {
    call.refuse("lists more tensors than fit, or begins and counts of different length");
    return table;
  }
  table.length = static_cast<int>(begins.size());
  for (int i = 0; i < table.length; ++i) {
    table.begin[i] = static_cast<int>(begins.begin()[i]);
    table.count[i] = static_cast<int>(counts.begin()[i]);
  }
  return table;
}

template <>
inline LarsNorms decode(Call& call) {
  return {call.pointer<float>(), call.pointer<float>(), call.pointer<float>(),
          tensor_table(call)};
}

template <>
inline LarsUpdate decode(Call& call) {
  return {call.pointer<float>(), call.pointer<float>(), call.pointer<float>(),
          call.pointer<float>(), call.pointer<float>(), call.pointer<int>(),
          call.real("momentum"), call.real("weight_decay"), call.real("trust_coefficient"),
          call.real("eps"), small(call, "nesterov"), tensor_table(call)};
}

template <>
inline SetStepScalars decode(Call& call) {
  return {call.pointer<float>(), call.pointer<int>(), call.pointer<float>(),
          call.pointer<float>(), call.pointer<float>(), call.pointer<int>(),
          call.integer("table_length"), call.real("log_beta1"), call.real("log_beta2")};
}

template <>
inline AdvanceCounters decode(Call& call) {
  return {call.pointer<int>(), call.pointer<int>(), call.pointer<int>(), call.pointer<int>(),
          call.pointer<int>(), call.pointer<float>(), call.real("maximum"), call.real("minimum"),
          small(call, "growth_interval")};
}

template <>
inline ReportMetrics decode(Call& call) {
  return {call.pointer<float>(), call.pointer<float>(), call.pointer<float>(),
          call.pointer<float>(), call.pointer<float>(), call.pointer<int>(),
          call.pointer<int>(), call.pointer<float>()};
}

template <>
inline BeginStep decode(Call& call) {
  return {decode<LoadBatch>(call), decode<SetStepScalars>(call)};
}

template <>
inline EndStep decode(Call& call) {
  return {decode<Accumulate>(call), decode<ReportMetrics>(call), decode<AdvanceCounters>(call)};
}

}  // namespace rn
