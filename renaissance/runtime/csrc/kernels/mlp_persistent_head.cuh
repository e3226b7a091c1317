// Last layer, loss and the gradient that enters the last hidden layer. Every block of a cluster does
// this for all rows of the cluster: it is cheaper than handing the result round once more.
#pragma once

#include "mlp_persistent_arguments.cuh"
#include "mlp_persistent_chain.cuh"

namespace rn {
namespace mlp {

struct RowLoss {  // of the two classes and the row of this lane; eight lanes share a row
  float logit[2], most, sum;
};

RN_DEVICE float eight_sum(float v) {
#pragma unroll
  for (int d = 1; d < 8; d *= 2) v += __shfl_xor_sync(~0u, v, d);
  return v;
}

// Loss, top-1 and top-5 of this cluster's rows, summed in a fixed order. One block of a cluster.
RN_DEVICE void report(const Context& c, const Arguments& a, const RowLoss& s, int label, bool real) {
  constexpr int kClasses = model_width(kLayers);
  const int sub = c.lane & 7;
  float better = 0.0f, target = 0.0f, all = 0.0f;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    if (sub + 8 * j < kClasses) all += s.logit[j];
    if (sub + 8 * j == label) target = s.logit[j];
  }
  target = eight_sum(target);
  all = eight_sum(all);
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int k = sub + 8 * j;
    if (k >= kClasses) continue;
    if (s.logit[j] > target || (s.logit[j] == target && k < label)) better += 1.0f;
    if (s.logit[j] != s.logit[j]) better += 1e9f;
  }
  better = eight_sum(better);
  const float top5 = 5.0f < kClasses ? 5.0f : (float)kClasses;
  float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  if (real) {
    v[0] = s.most + __logf(s.sum) - (1.0f - a.smoothing) * target - a.smoothing / kClasses * all;
    v[1] = better < 1.0f ? 1.0f : 0.0f;
    v[2] = better < top5 ? 1.0f : 0.0f;
    v[3] = 1.0f;
  }
#pragma unroll
  for (int d = 8; d <= 16; d *= 2)
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] += __shfl_xor_sync(~0u, v[e], d);
  if (c.lane == 0) store_shared4(c.shared + kHeadRows + c.warp * 16, v);
  team_sync();
  if (c.thread < 4) {
    float sum = 0.0f;
    for (int w = 0; w < 8; ++w) sum += load_shared(c.shared + kHeadRows + w * 16 + c.thread * 4);
    float* to = (float*)(c.work + tables.layout.metrics) + (c.parity * kClusters + c.cluster) * 4;
    to[c.thread] = sum;
  }
}

// Rows of logits from the partial sums; leaves the scaled fp16 gradient in shared memory.
RN_DEVICE RowLoss softmax(const Context& c, const Arguments& a, Word scratch, int row, int label, bool real,
                          float scale) {
  constexpr int kClasses = model_width(kLayers);
  const int sub = c.lane & 7, in = row & 7;
  const Word at = scratch + (row >> 3) * 512 + (sub * 4 + (in >> 1)) * 16 + (in & 1) * 4;
  RowLoss s;
  float bias[2];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    s.logit[j] = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; ++k) s.logit[j] += load_shared(at + k * kRowGroups * 512 + j * 8);
    bias[j] = load_shared(c.shared + kBias + (bias_place(kLayers) + sub + 8 * j) * 12);
    s.logit[j] += bias[j];
  }
  const bool valid[2] = {sub < kClasses, sub + 8 < kClasses};
  float most = -3.0e38f;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    if (valid[j]) most = fmaxf(most, s.logit[j]);
  }
#pragma unroll
  for (int d = 1; d < 8; d *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
  float e[2], sum = 0.0f;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    e[j] = valid[j] ? __expf(s.logit[j] - most) : 0.0f;
    sum += e[j];
  }
  sum = eight_sum(sum);
  s.most = most, s.sum = sum;
  const float inverse = 1.0f / sum;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int k = sub + 8 * j;
    const float target = a.smoothing / kClasses + (k == label ? 1.0f - a.smoothing : 0.0f);
    const float g = valid[j] && real ? (e[j] * inverse - target) * (scale / kBatch) : 0.0f;
    const Word rounded = pack(g, 0.0f);
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(c.shared + kLogitGradient + (row >> 3) * 256 + j * 128 +
                                                  (row & 7) * 16 + sub * 2), "h"((unsigned short)rounded) : "memory");
  }
  return s;
}

// The gradient of the logits to device memory, and its sums over rows. One block of a cluster.
RN_DEVICE void publish_logit_gradient(const Context& c) {
  Byte* tensor = c.work + tables.layout.dy[kLayers];
  if (c.thread < kRows * 8) {  // words: row group, block of 8 classes, row, word of the row
    const int row = c.thread >> 3, word = c.thread & 7;
    const Word at = (row >> 3) * 256 + (word >> 2) * 128 + (row & 7) * 16 + (word & 3) * 4;
    *(Word*)(tensor + tensor_place(kSliceGroups, c.cluster * kRows + row, word * 2)) =
        load_shared_word(c.shared + kLogitGradient + at);
  }
  if (c.thread < 16) {
    float sum = 0.0f;
    for (int row = 0; row < kRows; ++row) {
      const Word at = c.shared + kLogitGradient + (row >> 3) * 256 + (c.thread >> 3) * 128 + (row & 7) * 16;
      const Word pair = load_shared_word(at + (c.thread & 6) * 2);
      sum += c.thread & 1 ? unpack_high(pair) : unpack_low(pair);
    }
    ((float*)(c.work + tables.layout.dbias[kLayers]))[c.cluster * kRowGroups * 16 + c.thread] = sum;
  }
}

// Gradient of the last hidden layer: all of it into shared memory, this block's share to device memory.
RN_DEVICE void hidden_gradient(const Context& c) {
  constexpr int l = kLayers - 1, W = width(l), T = tiles(l);
  const int block = c.lane >> 3, odd = block & 1, high = block >> 1, row = (c.lane & 7) * 16;
  Word b[kRowGroups / 2][4];
#pragma unroll
  for (int r = 0; r < kRowGroups / 2; ++r)
    load_blocks(b[r], c.shared + kLogitGradient + (2 * r + high) * 256 + odd * 128 + row);
  const Word weights = c.shared + tables.schedule.at[kSchedule.head].place + high * W * 16 + odd * 128 + row;
  Byte* tensor = c.work + tables.layout.dy[l];
  float* sums = (float*)(c.work + tables.layout.dbias[l]);
#pragma unroll 1
  for (int i = 0; i < W / 128; ++i) {
    const int m = c.warp * (W / 128) + i;
    Word w[4];
    load_blocks_transposed(w, weights + m * 256);
#pragma unroll
    for (int r = 0; r < kRowGroups; ++r) {
      float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      multiply_add(d, w, b[r / 2][r % 2 * 2], b[r / 2][r % 2 * 2 + 1]);
      Word g[2] = {transposed(pack(d[0], d[1])), transposed(pack(d[2], d[3]))};
      const int place = tensor_place(kRowGroups, r * 8, m * 16) + (c.lane >> 2) * 16 + (c.lane & 3) * 4;
      float total[4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Word y = load_shared_word(c.shared + y_place(l) + place + h * 128);
        g[h] = pack(unpack_low(g[h]) * activation_slope(unpack_low(y)),
                    unpack_high(g[h]) * activation_slope(unpack_high(y)));
        if (l >= 2) store_shared_word(c.shared + dy_place(l) + place + h * 128, g[h]);
        total[2 * h] = unpack_low(g[h]);
        total[2 * h + 1] = unpack_high(g[h]);
      }
      if (m / T == c.rank) {
        store_tile(c, tensor, r, m * 16, g[0], g[1]);
#pragma unroll
        for (int d2 = 4; d2 <= 16; d2 *= 2)
#pragma unroll
          for (int e = 0; e < 4; ++e) total[e] += __shfl_xor_sync(~0u, total[e], d2);
        if (c.lane < 4) {
          float* to = sums + (c.cluster * kRowGroups + r) * W + m * 16 + 2 * c.lane;
          to[0] = total[0], to[1] = total[1], to[8] = total[2], to[9] = total[3];
        }
      }
    }
  }
}

RN_DEVICE RowLoss head(const Context& c, const Arguments& a, int row, int label, bool real) {
  constexpr int l = kLayers, W = width(l - 1), kSteps = W / 16;
  const Word scratch = c.shared + scratch_for(y_place(l - 1), act_bytes(l - 1), kHeadScratch);
  barrier_wait(arrived(c, l - 1), c.parity);
  stamp(c, 53);
  float sum[1][kRowGroups][4];
  constexpr int first = kSchedule.head;
  {  // the same product as everywhere, but the weights stay for the way back
    const int block = c.lane >> 3, odd = block & 1, high = block >> 1, in = (c.lane & 7) * 16;
    const Word place = c.shared + tables.schedule.at[first].place + odd * W * 16 + high * 128 + in;
    const Word operand = c.shared + y_place(l - 1) + high * 1024 + odd * 128 + in;
#pragma unroll
    for (int r = 0; r < kRowGroups; ++r)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[0][r][e] = 0.0f;
    barrier_wait(full(c, first), c.parity);
#pragma unroll
    for (int i = 0; i < kSteps / 8; ++i) {
      const int step = c.warp + 8 * i;
      Word w[4], b[kRowGroups / 2][4];
      load_blocks(w, place + step * 256);
#pragma unroll
      for (int r = 0; r < kRowGroups / 2; ++r)
        load_blocks(b[r], operand + ((step >> 2) * kRowGroups + 2 * r) * 1024 + (step & 3) * 256);
#pragma unroll
      for (int r = 0; r < kRowGroups; ++r) multiply_add(sum[0][r], w, b[r / 2][r % 2 * 2], b[r / 2][r % 2 * 2 + 1]);
    }
  }
  spread_partials<1>(c, scratch, c.warp, 0, sum[0]);
  barrier_wait(c.shared + kRatesBarrier, c.parity);
  const float scale = load_shared(c.shared + kRates + c.parity * 32 + 28);
  team_sync();
  stamp(c, 54);
  const RowLoss s = softmax(c, a, scratch, row, label, real, scale);
  team_sync();
  stamp(c, 55);
  hidden_gradient(c);
  stamp(c, 56);
  __syncwarp();
  if (c.lane == 0) barrier_arrive(empty(c, first));
  if (l <= 3) fence_async_global();
  fence_async_shared();
  team_sync();
  return s;
}

}  // namespace mlp
}  // namespace rn
