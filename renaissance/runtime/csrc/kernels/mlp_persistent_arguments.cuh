// What the persistent MLP kernel is given. Plain data, so that a launch can take it by value.
#pragma once

namespace rn {
namespace mlp {

constexpr int kMaximumWidths = 9;  // of the input and after each of at most eight layers

// Tensors are byte offsets from `state` (masters, moments, fp16 weights, scalars: one planned bank);
// -1 where a tensor is absent.
struct Arguments {
  unsigned char* state;
  unsigned char* work;  // kLayout.total bytes; its first 1,024 bytes are zero before a launch
  const void* images;   // rows of model_width(0) values: fp32, fp16, or uint8 through `table`
  const unsigned short* table;  // 256 fp16 values of a byte (uint8 images)
  const int* labels;
  const int* indices;  // steps * kBatch rows of the data set, or null: rows in order
  float* history;      // steps * 8: sums of loss, top-1, top-5, rows; rate; skipped; 0, 0; or null
  long long* trace;    // clock readings of the last step, or null
  long long weight[kMaximumWidths], weight_m[kMaximumWidths], weight_v[kMaximumWidths];
  long long weight_half[kMaximumWidths], bias[kMaximumWidths], bias_m[kMaximumWidths], bias_v[kMaximumWidths];
  long long lr, loss_scale, correction1, correction2, lr_table;                       // fp32
  long long applied_steps, skipped_steps, clean_steps, overflow_run, nan_flag;        // int32
  long long result[4], accumulated[4];  // fp32: sums of loss, top-1, top-5, rows
  int steps, table_length, growth_interval;
  float smoothing, momentum, beta1, beta2, rest1, rest2_root, eps, weight_decay, max_abs;
  // rest1 is 1 - beta1, rest2_root the square root of 1 - beta2.
  float scale_maximum, scale_minimum;
  double beta1_exact, beta2_exact;
};

}  // namespace mlp
}  // namespace rn
