// What every operation needs: pointers, sizes and constants. One record serves the host twin and the
// CUDA kernel, which takes it by value; so it is plain data that NVRTC can read.
//
// Layouts: x (n, c), w (k, c), y (n, k), row-major. `type` is the type of activations and compute
// weights; biases, statistics, losses and masters are float32. A null pointer leaves an output out.
#pragma once

namespace rn {

typedef long long Index;

enum Type : int { kFloat32 = 0, kFloat16 = 1 };

enum Activation : int {
  kNone = 0,
  kRelu = 1,
  kRelu6 = 2,
  kLeakyRelu = 3,
  kSilu = 4,
  kHardswish = 5,
  kElu = 6,
  kSigmoid = 7,
  kTanh = 8,
};

enum Rule : int { kSgd = 0, kMomentum = 1, kNesterov = 2, kAdam = 3, kAdamW = 4, kLars = 5 };

// y = activation(x w^T + bias); z, if wanted, is the value before the activation. Logits may be wider
// than the rest: y and z are of y_type.
struct FcForward {
  const void* x;
  const void* w;
  const float* bias;
  void* y;
  void* z;
  Index n, c, k;
  int type, y_type, activation;
};

// dx = (dy w) * activation'(gate), the derivative of the activation that produced x; dw = dy^T x and
// dbias = sum over rows of dy. `gate` is that activation's output, or its input where the output does
// not tell the derivative (silu, hardswish). A gradient that is not finite raises `flag`.
struct FcBackward {
  const void* dy;
  const void* x;
  const void* w;
  const void* gate;
  void* dx;
  void* dw;
  float* dbias;
  int* flag;
  Index n, c, k;
  int type, activation;
};

// y = activation(x), element by element.
struct ActivationForward {
  const void* x;
  void* y;
  Index count;
  int type, activation;
};

// dx = dy * activation'(gate).
struct ActivationBackward {
  const void* dy;
  const void* gate;
  void* dx;
  Index count;
  int type, activation;
};

// Loss, hits and, if wanted, the gradient of loss_scale times the mean loss, in gradient_type. loss, top1, top5 and
// total are sums over the n rows; rows holds 3 n values of workspace.
struct SoftmaxCrossEntropy {
  const void* logits;
  const int* labels;
  const float* loss_scale;
  void* dlogits;
  int* predicted;
  float* loss;
  float* top1;
  float* top5;
  float* total;
  float* rows;
  Index n, k;
  float smoothing;
  int type, gradient_type;
};

// y = x / (1 - p) where the uniform number of (seed, layer, step, row, element) is >= p, else 0; the
// mask keeps a byte per element. The step is the sum of two counters.
struct DropoutForward {
  const void* x;
  const int* seed;
  const int* applied_steps;
  const int* skipped_steps;
  void* y;
  unsigned char* mask;
  Index rows, elements;
  Index layer;
  float p;
  int type;
};

struct DropoutBackward {
  const void* dy;
  const unsigned char* mask;
  void* dx;
  Index count;
  float p;
  int type;
};

struct Cast {
  const void* from;
  void* to;
  Index count;
  int from_type, to_type;
};

struct Clear {
  void* to;
  Index bytes;
};

// Copies, unless the flag is given and raised.
struct Copy {
  const void* from;
  void* to;
  const int* flag;
  Index bytes;
};

// Takes batch number `batch` of stacked batches into the input slot, in the compute type, channels
// padded with zeros. images (batches, pixels, channels), labels (batches, rows); batch may be null.
struct LoadBatch {
  const void* images;
  const int* labels;
  const int* batch;
  void* data;
  int* label;
  Index pixels, channels, padded_channels, rows;
  int from_type, type;
};

// Divides gradients by the loss scale, raises the flag if one is not finite, then clamps to
// [-max_abs, max_abs] (max_abs 0: no clamp).
struct CheckAndUnscale {
  float* g;
  const float* loss_scale;
  int* flag;
  Index count;
  float max_abs;
};

// Raises the flag if a gradient is not finite: `count` floats of g, raw_count halves of raw.
struct CheckFinite {
  const float* g;
  const void* raw;
  int* flag;
  Index count, raw_count;
};

// Scales gradients together so that their joint norm is at most max_norm; within it no bit changes.
// partial holds `rows` doubles of workspace.
struct ClipByNorm {
  float* g;
  double* partial;
  Index count;
  float max_norm;
  int rows;
};

// e = decay e + (1 - decay) w, unless the flag is raised.
struct EmaUpdate {
  float* e;
  const float* w;
  const int* flag;
  Index count;
  float decay;
};

// target += source, unless the flag is given and raised.
struct Accumulate {
  const float* source;
  float* target;
  const int* flag;
  Index count;
};

// One step of every element of a run of regions, unless the flag is raised. Elements from decay_from
// on are matrix weights, to which weight decay applies.
//
// Null where not wanted: m, v, the corrections; loss_scale (g is unscaled already); raw, gradients of
// matrix weights in the compute type, read in place of g; a, the fp16 copy of matrix weights, made
// along; e, the average of all weights, moved along. raw and a start at element decay_from.
struct Optimizer {
  float* w;
  const float* g;
  float* m;
  float* v;
  const float* lr;
  const float* correction1;
  const float* correction2;
  const int* flag;
  const float* loss_scale;
  const void* raw;
  void* a;
  float* e;
  Index count, decay_from;
  float momentum, beta1, beta2, rest1, rest2;  // rest = 1 - beta, rounded once
  float eps, weight_decay, max_abs, ema_decay;
  int rule;
};

// The tensors of a region: tensor i holds elements [begin[i], begin[i] + count[i]) in units of 128
// and single elements. Slots of weights are multiples of 128 elements.
constexpr int kMaxTensors = 256;
struct TensorTable {
  int begin[kMaxTensors];
  int count[kMaxTensors];
  int length;
};

// The norms of weight and gradient of every tensor of a region, two floats every 64.
struct LarsNorms {
  const float* w;
  const float* g;
  float* n;
  TensorTable tensors;
};

// The LARS step of every tensor of a region, unless the flag is raised.
struct LarsUpdate {
  float* w;
  const float* g;
  float* m;
  const float* n;
  const float* lr;
  const int* flag;
  float momentum, weight_decay, trust_coefficient, eps;
  int nesterov;
  TensorTable tensors;
};

// Before a step: its learning rate, its bias corrections 1 - beta^t, and a lowered flag.
struct SetStepScalars {
  const float* lr_table;
  const int* applied_steps;
  float* lr;
  float* correction1;
  float* correction2;
  int* flag;
  Index table_length;
  float log_beta1, log_beta2;
};

// After a step: counters move on, and the loss scale follows the rule of dynamic loss scaling.
struct AdvanceCounters {
  const int* flag;
  int* applied_steps;
  int* skipped_steps;
  int* clean_steps;
  int* overflow_run;
  float* loss_scale;
  float maximum, minimum;
  int growth_interval;
};

// Writes what a step measured into row `batch` of a table of eight columns: sums of loss, top-1 and
// top-5 hits, rows, learning rate, whether the step was skipped, 0, 0.
struct ReportMetrics {
  const float* loss;
  const float* top1;
  const float* top5;
  const float* total;
  const float* lr;
  const int* flag;
  const int* batch;
  float* table;
};

// What begins a step, and what ends it, in one launch each.
struct BeginStep {
  LoadBatch load;
  SetStepScalars scalars;
};

struct EndStep {
  Accumulate accumulate;
  ReportMetrics metrics;
  AdvanceCounters counters;
};

}  // namespace rn
