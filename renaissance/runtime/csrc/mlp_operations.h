// Many training steps of an MLP as one operation. One kernel runs them where the device can hold the
// network on chip (kernels/mlp_persistent.cu); what it is given is the record's first member.
#pragma once

#include "kernels/mlp_persistent_arguments.cuh"
#include "operations.h"

namespace rn {

// What the kernel has as constants follows its arguments. Layer l maps width[l - 1] to width[l];
// input_type is a Type, or kUint8 for bytes that stand for the 256 values of `kernel.table`.
struct MlpTrainSteps {
  static constexpr int kUint8 = 2;
  mlp::Arguments kernel;
  int width[mlp::kMaximumWidths];
  int layers, batch, activation, rule, input_type;
};

}  // namespace rn
