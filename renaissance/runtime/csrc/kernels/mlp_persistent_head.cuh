// Last layer, loss and the gradient that enters the last hidden layer. Every block of a cluster does
// this for all rows of the cluster: it is cheaper than handing the result round once more.
#pragma once

#include "mlp_persistent_arguments.cuh"
#include "mlp_persistent_chain.cuh"

namespace rn {
namespace mlp {

// A warp has eight rows; the warps of the same rows share K on the way forward and the features on the
// way back. A lane holds two rows, 2 (lane % 4) + {0, 1}, of classes lane / 4 and lane / 4 + 8.
constexpr int kParts = 8 / kRowGroups, kClasses = model_width(kLayers);

struct RowLoss { float logit[4], most[2], sum[2]; };
struct Labels { int of[2]; };  // -1: no row

RN_DEVICE Labels load_labels(const Context& c, const Arguments& a, int step) {
  Labels r;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int sample = c.cluster * kRows + c.warp % kRowGroups * 8 + 2 * (c.lane & 3) + j;
    const long long at = (long long)step * kBatch + sample;
    r.of[j] = sample < kBatch ? a.labels[a.indices ? a.indices[at] : at] : -1;
  }
  return r;
}

RN_DEVICE float over_classes(float v) {
#pragma unroll
  for (int d = 4; d <= 16; d *= 2) v += __shfl_xor_sync(~0u, v, d);
  return v;
}

// Loss, top-1 and top-5 of this warp's rows. One block of a cluster, one warp for each eight rows.
RN_DEVICE void report(const Context& c, const Arguments& a, const RowLoss& s, const Labels& label) {
  const int k0 = c.lane >> 2;
  const float top5 = 5.0f < kClasses ? 5.0f : (float)kClasses;
  float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    float target = 0.0f, all = 0.0f, better = 0.0f;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (k0 + 8 * h < kClasses) all += s.logit[2 * h + j];
      if (k0 + 8 * h == label.of[j]) target = s.logit[2 * h + j];
    }
    target = over_classes(target);
    all = over_classes(all);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float x = s.logit[2 * h + j];
      const int k = k0 + 8 * h;
      if (k >= kClasses) continue;
      if (x > target || (x == target && k < label.of[j])) better += 1.0f;
      if (x != x) better += 1e9f;  // a row that is not a number is a miss
    }
    better = over_classes(better);
    if (label.of[j] < 0) continue;
    v[0] += s.most[j] + __logf(s.sum[j]) - (1.0f - a.smoothing) * target - a.smoothing * (1.0f / kClasses) * all;
    v[1] += better < 1.0f ? 1.0f : 0.0f;
    v[2] += better < top5 ? 1.0f : 0.0f;
    v[3] += 1.0f;
  }
#pragma unroll
  for (int d = 1; d <= 2; d *= 2)
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] += __shfl_xor_sync(~0u, v[e], d);
  if (c.lane < 4) {
    float* to = (float*)(c.work + kMetrics) + ((c.parity * kClusters + c.cluster) * kRowGroups + c.warp) * 4;
    to[c.lane] = c.lane == 0 ? v[0] : (c.lane == 1 ? v[1] : (c.lane == 2 ? v[2] : v[3]));
  }
}

// This warp's share of K of the logits of its rows: classes by rows.
RN_DEVICE void multiply_head(const Context& c, float (&d)[2][4]) {
  constexpr int l = kLayers, W = width(l - 1), kPairs = W / 32 / kParts;
  const int block = c.lane >> 3, row = (c.lane & 7) * 16, group = c.warp % kRowGroups, first = c.warp / kRowGroups * kPairs;
  const Word weights = place_of(c, kSchedule.head) + (block & 1) * W * 16 + (block >> 1) * 128 + row;
  const Word operand = c.shared + y_place(l - 1) + group * 1024 + block * 128 + row;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int pair = first + i;
    Word w[2][4], b[4];
    load_blocks(b, operand + (pair >> 1) * kRowGroups * 1024 + (pair & 1) * 512);
    load_blocks(w[0], weights + pair * 512);
    load_blocks(w[1], weights + pair * 512 + 256);
    multiply_add(d[0], w[0], b[0], b[1]);
    multiply_add(d[1], w[1], b[2], b[3]);
  }
}

// The scaled gradient of this warp's logits, as the right operand of the next product: 16 classes by
// eight rows.
RN_DEVICE RowLoss softmax(const Context& c, const Arguments& a, const Labels& label, float unit, float (&v)[4],
                          Word (&gradient)[2]) {
  RowLoss s;
  float e[4];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const bool second = (c.lane >> 2) + 8 < kClasses, first = (c.lane >> 2) < kClasses;
    s.logit[j] = v[j], s.logit[2 + j] = v[2 + j];
    float most = fmaxf(first ? v[j] : -3.0e38f, second ? v[2 + j] : -3.0e38f);
#pragma unroll
    for (int d = 4; d <= 16; d *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    e[j] = first ? __expf(v[j] - most) : 0.0f;
    e[2 + j] = second ? __expf(v[2 + j] - most) : 0.0f;
    s.most[j] = most;
    s.sum[j] = over_classes(e[j] + e[2 + j]);
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(s.sum[j]));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int k = (c.lane >> 2) + 8 * h;
      const float target = a.smoothing * (1.0f / kClasses) + (k == label.of[j] ? 1.0f - a.smoothing : 0.0f);
      e[2 * h + j] = k < kClasses && label.of[j] >= 0 ? (e[2 * h + j] * inverse - target) * unit : 0.0f;
    }
  }
  gradient[0] = transposed(pack(e[0], e[1]));
  gradient[1] = transposed(pack(e[2], e[3]));
  return s;
}

// Gradient of the last hidden layer, for this warp's rows and share of the features, into shared memory.
RN_DEVICE void hidden_gradient(const Context& c, const Word (&gradient)[2]) {
  constexpr int l = kLayers - 1, W = width(l), kTiles = W / 16 / kParts;
  const int block = c.lane >> 3, group = c.warp % kRowGroups, first = c.warp / kRowGroups * kTiles;
  const Word weights = place_of(c, kSchedule.head) + (block >> 1) * W * 16 + (block & 1) * 128 + (c.lane & 7) * 16;
  constexpr int kTogether = kTiles % 4 == 0 ? 4 : 2;  // under way at once
#pragma unroll 1
  for (int m = first; m < first + kTiles; m += kTogether) {
    const int place = tensor_place(kRowGroups, group * 8, m * 16) + c.lane * 4;  // these lie in one slab
    Word w[kTogether][4], g[kTogether][2], y[kTogether][2];
    float d[kTogether][4];
    clear(d);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) load_blocks_transposed(w[i], weights + (m + i) * 256);
#pragma unroll
    for (int i = 0; i < 2 * kTogether; ++i) y[i / 2][i % 2] = load_shared_word(c.shared + y_place(l) + place + i * 128);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) multiply_add(d[i], w[i], gradient[0], gradient[1]);
#pragma unroll
    for (int i = 0; i < 2 * kTogether; ++i) g[i / 2][i % 2] = transposed(pack(d[i / 2][i % 2 * 2], d[i / 2][i % 2 * 2 + 1]));
#pragma unroll
    for (int i = 0; i < 2 * kTogether; ++i) {
      const Word x = g[i / 2][i % 2], gate = y[i / 2][i % 2];
      store_shared_word(c.shared + dy_place(l) + place + i * 128,
                        pack(unpack_low(x) * activation_slope(unpack_low(gate)), unpack_high(x) * activation_slope(unpack_high(gate))));
    }
  }
}

RN_DEVICE RowLoss head(const Context& c, const Arguments& a, const Labels& label) {
  constexpr int l = kLayers;
  const Word scratch = c.shared + scratch_for(y_place(l - 1), act_bytes(l - 1), kHeadScratch) + c.lane * 16;
  barrier_wait(arrived(c, l - 1), c.parity);
  stamp(c, 53);
  barrier_wait(full(c, kSchedule.head), c.parity);
  float d[2][4];
  clear(d);
  multiply_head(c, d);
#pragma unroll
  for (int e = 0; e < 4; ++e) d[0][e] += d[1][e];
  store_shared4(scratch + c.warp * 512, d[0]);
  barrier_wait(c.shared + kRatesBarrier, c.parity);
  const float unit = load_shared(c.shared + kRates + c.parity * 32 + 28);
  const Word bias = c.shared + kBias + (bias_place(l) + (c.lane >> 2)) * 12;
  const float low = load_shared(bias), high = load_shared(bias + 96);
  float v[4] = {low, low, high, high};
  team_sync();
  stamp(c, 54);
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    float part[4];
    load_shared4(part, scratch + (p * kRowGroups + c.warp % kRowGroups) * 512);
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] += part[e];
  }
  Word gradient[2];
  const RowLoss s = softmax(c, a, label, unit, v, gradient);
  stamp(c, 55);
  hidden_gradient(c, gradient);
  if (c.warp < kRowGroups && c.rank == 0) {
    const Word at = c.shared + kLogitGradient + c.warp * 256 + c.lane * 4;
    store_shared_word(at, gradient[0]);
    store_shared_word(at + 128, gradient[1]);
  }
  stamp(c, 56);
  done_with(c, kSchedule.head);
  if (l == 3) fence_async_shared();
  team_sync();
  return s;
}

// What the head left in shared memory, to device memory for the weight gradients: this block's share of
// the hidden gradient, and in one block of a cluster the gradient of the logits; with sums over rows.
RN_DEVICE void publish_head(const Context& c) {
  constexpr int l = kLayers - 1, T = tiles(l);
  float* sums = (float*)(c.work + kSums<l>);
  for (int i = c.warp; i < T * kRowGroups; i += 8) {
    const int m = c.rank * T + i / kRowGroups, r = i % kRowGroups;
    const Word at = c.shared + dy_place(l) + tensor_place(kRowGroups, r * 8, m * 16) + c.lane * 4;
    const Word low = load_shared_word(at), high = load_shared_word(at + 128);
    store_tile(c, c.work + kDy<l>, r, m * 16, low, high);
    float v[4] = {unpack_low(low), unpack_high(low), unpack_low(high), unpack_high(high)};
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] = over_classes(v[e]);  // over the eight rows
    if (c.lane < 4) {
      float* to = sums + (c.cluster * kRowGroups + r) * width(l) + m * 16 + 2 * c.lane;
      to[0] = v[0], to[1] = v[1], to[8] = v[2], to[9] = v[3];
    }
  }
  if (c.rank != 0) return;
  Byte* tensor = c.work + kDy<kLayers>;
  float* logit_sums = (float*)(c.work + kSums<kLayers>);
  for (int r = 7 - c.warp; r >= 0 && r < kRowGroups; r += 8) {
    const Word at = c.shared + kLogitGradient + r * 256 + c.lane * 4;
    const Word low = load_shared_word(at), high = load_shared_word(at + 128);
    store_tile(c, tensor, r, 0, low, high);
    float v[4] = {unpack_low(low), unpack_high(low), unpack_low(high), unpack_high(high)};
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] = over_classes(v[e]);
    if (c.lane < 4) {
      float* to = logit_sums + (c.cluster * kRowGroups + r) * 16 + 2 * c.lane;
      to[0] = v[0], to[1] = v[1], to[8] = v[2], to[9] = v[3];
    }
  }
}

}  // namespace mlp
}  // namespace rn
