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

// y = activation(x w^T + bias); z, if wanted, is the value before the activation.
struct FcForward {
  const void* x;
  const void* w;
  const float* bias;
  void* y;
  void* z;
  Index n, c, k;
  int type, activation;
};

// dx = (dy w) * activation'(gate), the derivative of the activation that produced x; dw = dy^T x and
// dbias = sum over rows of dy. `gate` is that activation's output where the output decides (relu,
// relu6, leaky_relu), else its input. A gradient that is not finite raises `flag`.
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

// Loss, hits and, if wanted, the gradient of loss_scale times the mean loss. loss, top1, top5 and
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
  int type;
};

// y = x / (1 - p) where the uniform number of (seed, layer, step, row, element) is >= p, else 0. The
// step is the sum of two counters. The backward pass is the same operation on dy.
struct Dropout {
  const void* x;
  void* y;
  const int* seed;
  const int* applied_steps;
  const int* skipped_steps;
  Index rows, elements;
  Index layer;
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

struct Copy {
  const void* from;
  void* to;
  Index bytes;
};

// Divides gradients by the loss scale, raises the flag if one is not finite, then clamps to
// [-max_abs, max_abs] (max_abs 0: no clamp).
struct UnscaleGradients {
  float* g;
  const float* loss_scale;
  int* flag;
  Index count;
  float max_abs;
};

// e = decay e + (1 - decay) w, unless the flag is raised.
struct ExponentialAverage {
  float* e;
  const float* w;
  const int* flag;
  Index count;
  float decay;
};

// Adds a batch's four sums to the epoch's, unless the flag is raised.
struct AccumulateMetrics {
  const float* loss;
  const float* top1;
  const float* top5;
  const float* total;
  float* loss_sum;
  float* top1_sum;
  float* top5_sum;
  float* total_sum;
  const int* flag;
};

// One step of every element of a run of regions, unless the flag is raised. Elements from decay_from
// on are matrix weights, to which weight decay applies.
struct Optimizer {
  float* w;
  const float* g;
  float* m;
  float* v;
  const float* lr;
  const float* correction1;
  const float* correction2;
  const int* flag;
  Index count, decay_from;
  float momentum, beta1, beta2, rest1, rest2;  // rest = 1 - beta, rounded once
  float eps, weight_decay;
  int rule;
};

// The LARS step of one tensor; ratio is its trust ratio, written by LarsNorms.
struct LarsNorms {
  const float* w;
  const float* g;
  float* ratio;
  Index count;
  float trust_coefficient, weight_decay, eps;
};

struct LarsUpdate {
  float* w;
  const float* g;
  float* m;
  const float* lr;
  const float* ratio;
  const int* flag;
  Index count;
  float momentum, weight_decay;
  int nesterov;
};

// Before a step: its learning rate, its bias corrections 1 - beta^t, and a lowered flag.
struct StepBegin {
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
struct StepEnd {
  const int* flag;
  int* applied_steps;
  int* skipped_steps;
  int* clean_steps;
  int* overflow_run;
  float* loss_scale;
  float maximum, minimum;
  int growth_interval;
};

}  // namespace rn
