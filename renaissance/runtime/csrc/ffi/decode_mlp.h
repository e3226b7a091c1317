// How the record of many training steps is read from a call.
#pragma once

#include "ffi/decode.h"
#include "mlp_operations.h"

namespace rn {

// The next operand as bytes from the state's begin; -1 where it is left out.
inline long long place(Call& call, const mlp::Arguments& a) {
  unsigned char* at = call.pointer<unsigned char>();
  return at ? at - a.state : -1;
}

template <>
inline MlpTrainSteps decode(Call& call) {
  MlpTrainSteps op{};
  mlp::Arguments& a = op.kernel;
  a.images = call.pointer();
  a.labels = call.pointer<int>();
  a.indices = call.pointer<int>();
  a.table = call.pointer<unsigned short>();
  a.history = call.pointer<float>();
  a.work = call.pointer<unsigned char>();
  a.state = call.pointer<unsigned char>();
  for (long long* scalar : {&a.lr_table, &a.lr, &a.loss_scale, &a.correction1, &a.correction2,
                            &a.applied_steps, &a.skipped_steps, &a.clean_steps, &a.overflow_run,
                            &a.nan_flag})
    *scalar = place(call, a);
  for (long long& sum : a.result) sum = place(call, a);
  for (long long& sum : a.accumulated) sum = place(call, a);
  ffi::Span<const int64_t> widths = call.integers("widths");
  if (widths.size() < 2 || widths.size() > mlp::kMaximumWidths) {
    call.refuse("has too many layers");
    return op;
  }
  op.layers = static_cast<int>(widths.size()) - 1;
  op.width[0] = static_cast<int>(widths.begin()[0]);
  for (int l = 1; l <= op.layers; ++l) {
    op.width[l] = static_cast<int>(widths.begin()[l]);
    for (long long* tensor : {a.weight, a.weight_m, a.weight_v, a.weight_half, a.bias, a.bias_m,
                              a.bias_v})
      tensor[l] = place(call, a);
  }
  ffi::Span<const double> betas = call.reals("betas");
  if (betas.size() != 2) {
    call.refuse("needs two betas");
    return op;
  }
  a.beta1_exact = betas.begin()[0], a.beta2_exact = betas.begin()[1];
  a.steps = small(call, "steps"), a.table_length = small(call, "table_length");
  a.growth_interval = small(call, "growth_interval");
  a.scale_maximum = call.real("maximum"), a.scale_minimum = call.real("minimum");
  a.smoothing = call.real("smoothing"), a.momentum = call.real("momentum");
  a.beta1 = call.real("beta1"), a.beta2 = call.real("beta2");
  a.rest1 = call.real("rest1"), a.rest2_root = call.real("rest2_root");
  a.eps = call.real("eps"), a.weight_decay = call.real("weight_decay");
  a.max_abs = call.real("max_abs");
  op.batch = small(call, "batch"), op.activation = small(call, "activation");
  op.rule = small(call, "rule"), op.input_type = small(call, "input_type");
  return op;
}

}  // namespace rn
