// The helpers beside the 256 threads that compute: one warp brings weights, one keeps the
// scalars and brings the operands of weight gradients, two bring the next batch into shape and own the biases.
#pragma once

#include "mlp_persistent_arguments.cuh"
#include "mlp_persistent_chain.cuh"
#include "mlp_persistent_update.cuh"

namespace rn {
namespace mlp {

constexpr int kDeep = 0, kFirst = 16, kInput = 32, kWeights = 48, kExit = 64;  // counters, 128 B apart

struct Sources { int gradient, input; };  // of the slot 1 tile, byte offsets in `work`; -1: no tile

RN_DEVICE void copy(const Context& c, int i, Word to, int bytes, const Byte* from, int stride, int pieces) {
  if (c.lane == 0) barrier_expect(full(c, i), bytes * pieces);
  __syncwarp();
  if (c.lane < pieces) bulk_load(c.shared + to + c.lane * bytes, from + c.lane * stride, bytes, full(c, i));
}

// Weights for the products of a step, as room for them comes free.
RN_DEVICE void feed_weights(const Context& c, const Arguments& a) {
  int set = 0;
  for (int step = 0; step < a.steps; ++step) {
    int4 now = load_shared_words(c.shared + kCopyTable), more = load_shared_words(c.shared + kCopyTable + 16);
    barrier_wait(c.shared + kVoteBarrier, step & 1);
    if (load_shared_word(c.shared + kVote + (step & 1) * 4)) set ^= 1;
    fence_async_global();
    const Byte* weights = c.work + (set ? kWeights1 : kWeights0);
#pragma unroll 1
    for (int i = 0; i < kSchedule.weights; ++i) {
      const Byte* from = weights + now.w + c.rank * more.y;  // place, bytes, pieces, source; stride, by rank, after
      if (more.z >= 0) barrier_wait(empty(c, more.z), step & 1);
      if (more.z == -2) barrier_wait(c.shared + kSpareBarrier, step & 1);
      copy(c, i, now.x, now.y, from, more.x, now.z);
      now = load_shared_words(c.shared + kCopyTable + 32 * i + 32), more = load_shared_words(c.shared + kCopyTable + 32 * i + 48);
    }
  }
}

// What the weight gradients of a step read, and the next input.
RN_DEVICE void feed_gradients(const Context& c, const Arguments& a, const Long* counters, Sources other,
                              bool has_first, int step) {
  const int block = blockIdx.x, column_tiles = width(1) / 64;
  const Byte* now = c.work + (step & 1 ? kInput1 : kInput0);
  const Byte* coming = c.work + (step & 1 ? kInput0 : kInput1);
  constexpr int kSlabBytes = kSliceGroups * kInputSlab * 16;  // of the input in memory
  if (step >= 0) {
    barrier_wait(c.shared + kDeepBarrier, step & 1);
    wait_for(counters + kDeep, kBlocks * (step + 1));
    fence_async_global();
    const Byte* from = c.work + (c.lane == 0 ? other.gradient : other.input + (c.lane - 1) * kSliceGroups * 1024);
    const int pieces = other.input < 0 ? 0 : 3;
    copy(c, kSchedule.other, part_place(0), part_groups(0) * 1024, from, 0, pieces);
    copy(c, kSchedule.other + 1, part_place(1), part_groups(1) * 1024, from + part_start(1) * 1024, 0, pieces);
    barrier_wait(c.shared + kDoneBarrier, step & 1);
    copy(c, kSchedule.other + 2, part_place(2), part_groups(2) * 1024, from + part_start(2) * 1024, 0, pieces);
    copy(c, kSchedule.other + 3, part_place(3), part_groups(3) * 1024, from + part_start(3) * 1024, 0, pieces);
    copy(c, kSchedule.first_input, kAreaB, kInputSliceBytes, now + block / column_tiles * kSlabBytes, 0, has_first);
    wait_for(counters + kFirst, kBlocks * (step + 1));
    fence_async_global();
    copy(c, kSchedule.first, kRing, kGradientBytes, c.work + kDy<1> + block % column_tiles * kSliceGroups * 1024, 0, has_first);
  }
  if (step + 1 < a.steps) {
    wait_for(counters + kInput, kBlocks * (step + 2));
    fence_async_global();
    if (step >= 0) barrier_wait(empty(c, kSchedule.other + 1), step & 1);
    copy(c, kSchedule.next, kAreaA, kRowGroups * kInputSlab * 16, coming + c.cluster * kRowGroups * kInputSlab * 16, kSlabBytes,
         width(0) / kInputSlab);
  }
}

RN_DEVICE double power(double base, int exponent) {  // a pure function of the step, wherever a run began
  double r = 1.0;
  for (; exponent; exponent >>= 1, base *= base)
    if (exponent & 1) r *= base;
  return r;
}

// Verdict, loss scale, counters, rates of the next update; then the operands of the weight gradients.
RN_DEVICE void keep_scalars(const Context& c, const Arguments& a, const Long* counters, Sources other, bool has_first) {
  feed_gradients(c, a, counters, other, has_first, -1);
  int* integers[4] = {(int*)(a.state + a.applied_steps), (int*)(a.state + a.skipped_steps),
                      (int*)(a.state + a.clean_steps), (int*)(a.state + a.overflow_run)};
  int applied = *integers[0], skipped = *integers[1], clean = *integers[2], run = *integers[3];
  float scale = *(float*)(a.state + a.loss_scale), lr = 0.0f, correction1 = 1.0f, correction2 = 1.0f, total = 0.0f, last = 0.0f;
  const float* table = (const float*)(a.state + a.lr_table);
  Word refused = 0;
  bool good = true;
  for (int step = 0; step <= a.steps; ++step) {
    const Word bad = (Word)(wait_for(counters + kWeights, 2 * kBlocks * (step + 1)) >> 32);
    good = bad == refused;
    refused = bad;
    if (c.lane == 0) {
      store_shared_word(c.shared + kVote + (step & 1) * 4, good && step > 0);
      barrier_arrive(c.shared + kVoteBarrier);
    }
    if (step > 0) {
      if (good) {
        const bool grows = ++clean >= a.growth_interval;
        ++applied, run = 0;
        if (grows) scale = fminf(scale * 2.0f, a.scale_maximum), clean = 0;
      } else {
        ++skipped, ++run, clean = 0;
        scale = fmaxf(scale * 0.5f, a.scale_minimum);
      }
      if (blockIdx.x == 0 && c.lane < 4) {
        const float* parts = (const float*)(c.work + kMetrics) + (step - 1 & 1) * kClusters * kRowGroups * 4;
        last = 0.0f;
        for (int k = 0; k < kClusters * kRowGroups; ++k) last += load_fresh(parts + k * 4 + c.lane);
        if (good) total += last;
      }
      if (blockIdx.x == 0 && a.history && c.lane < 8) {
        const float others = c.lane == 4 ? lr : (c.lane == 5 && !good ? 1.0f : 0.0f);
        a.history[(step - 1) * 8 + c.lane] = c.lane < 4 ? last : others;
      }
    }
    if (step == a.steps) break;
    lr = table[applied < a.table_length ? applied : a.table_length - 1];
    if (RN_RULE >= 3) {
      correction1 = (float)(1.0 - power(a.beta1_exact, applied + 1));
      correction2 = (float)(1.0 - power(a.beta2_exact, applied + 1));
    }
    if (c.lane == 0) {
      const float unscale = RN_CLIP ? 1.0f : 1.0f / scale;
      const float low[4] = {a.rest1 * unscale, a.rest2_root * unscale, lr / correction1, rsqrtf(correction2)};
      const float high[4] = {1.0f - lr * a.weight_decay, 1.0f / scale, lr, scale / kBatch};
      store_shared4(c.shared + kRates + (step & 1) * 32, low);
      store_shared4(c.shared + kRates + (step & 1) * 32 + 16, high);
      barrier_arrive(c.shared + kRatesBarrier);
    }
    __syncwarp();
    feed_gradients(c, a, counters, other, has_first, step);
  }
  if (blockIdx.x == 0) {
    if (c.lane == 0) {
      *integers[0] = applied, *integers[1] = skipped, *integers[2] = clean, *integers[3] = run;
      *(int*)(a.state + a.nan_flag) = !good;
      *(float*)(a.state + a.loss_scale) = scale;
      *(float*)(a.state + a.lr) = lr;
      if (a.correction1 >= 0) *(float*)(a.state + a.correction1) = correction1;
      if (a.correction2 >= 0) *(float*)(a.state + a.correction2) = correction2;
    }
    if (c.lane < 4) {
      *(float*)(a.state + a.result[c.lane]) = last;
      *(float*)(a.state + a.accumulated[c.lane]) += total;
    }
  }
}

RN_DEVICE Word two_values(const Arguments& a, Word bytes, int at) {
  return a.table[bytes >> at & 255] | (Word)a.table[bytes >> (at + 8) & 255] << 16;
}

// This block's share of batch `step`, eight values a thread and turn; reads of all turns at once.
RN_DEVICE void shape_batch(const Context& c, const Arguments& a, int step, int thread) {
  constexpr int kBlocksOfRow = width(0) / 8, kPieces = kTotalRows * kBlocksOfRow;
  constexpr int kShare = (kPieces + kBlocks - 1) / kBlocks, kTurns = (kShare + 63) / 64;
  constexpr int kBytes = RN_INPUT == 0 ? 32 : (RN_INPUT == 1 ? 16 : 8);  // of eight values
  Byte* to = c.work + (step & 1 ? kInput1 : kInput0);
  int sample[kTurns];
  uint4 read[kTurns];
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int piece = blockIdx.x * kShare + thread + i * 64, row = piece / kBlocksOfRow;
    sample[i] = row < kBatch && thread + i * 64 < kShare ? step * kBatch + row : -1;
    if (a.indices && sample[i] >= 0) sample[i] = a.indices[sample[i]];
  }
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int k = (blockIdx.x * kShare + thread + i * 64) % kBlocksOfRow * 8;
    const Byte* from = (const Byte*)a.images + ((long long)sample[i] * model_width(0) + k) * (kBytes / 8);
    read[i] = make_uint4(0, 0, 0, 0);
    if (sample[i] < 0 || k >= model_width(0)) continue;
    if (kBytes == 8) {
      const uint2 half = *(const uint2*)from;
      read[i].x = half.x, read[i].y = half.y;
    } else if (kBytes == 16) {
      read[i] = *(const uint4*)from;
    } else {
      const float4 low = *(const float4*)from, high = *(const float4*)(from + 16);
      read[i] = make_uint4(pack(low.x, low.y), pack(low.z, low.w), pack(high.x, high.y), pack(high.z, high.w));
    }
  }
#pragma unroll 1
  for (int i = 0; i < kTurns; ++i) {
    uint4 v = read[0];
#pragma unroll
    for (int j = 1; j < kTurns; ++j)
      if (i == j) v = read[j], sample[0] = sample[j];
    const int piece = blockIdx.x * kShare + thread + i * 64, row = piece / kBlocksOfRow, k = piece % kBlocksOfRow * 8;
    if (thread + i * 64 >= kShare || piece >= kPieces) break;
    if (kBytes == 8 && sample[0] >= 0 && k < model_width(0))
      v = make_uint4(two_values(a, v.x, 0), two_values(a, v.x, 16), two_values(a, v.y, 0), two_values(a, v.y, 16));
    const int place = ((k / kInputSlab * kSliceGroups + row / 8) * (kInputSlab / 8) + k % kInputSlab / 8) * 128 + row % 8 * 16;
    *(uint4*)(to + place) = v;
  }
  fence_async_global();
}
static_assert(model_width(0) % 8 == 0, "the input's width must be a multiple of 8");
RN_DEVICE void pair_sync() { asm volatile("barrier.cta.sync 2, 64;" ::: "memory"); }

// The features of a block are the same in every cluster, and so are their biases: each block keeps
// its own copy, bit for bit the same, and nothing needs to be sent.
RN_DEVICE void shape_batches_and_keep_biases(const Context& c, const Arguments& a, Long* counters, int thread) {
  constexpr int kEach = (kBiasCount + 63) / 64, kParts = kClusters * kRowGroups;
  int layer[kEach], feature[kEach];
  float gradient[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int n = thread + 64 * i;
    layer[i] = 0, feature[i] = 0;
#pragma unroll
    for (int l = 1; l <= kLayers; ++l) {
      const int count = l == kLayers ? 16 : 16 * tiles(l);
      if (n >= bias_place(l) && n < bias_place(l) + count) {
        const int f = n - bias_place(l) + (l == kLayers ? 0 : c.rank * count);
        const bool real = f < model_width(l);
        layer[i] = real ? l : 0, feature[i] = f;
        const Word at = c.shared + kBias + n * 12;
        store_shared(at, real ? ((float*)(a.state + a.bias[l]))[f] : 0.0f);
        store_shared(at + 4, real && kHasM ? ((float*)(a.state + a.bias_m[l]))[f] : 0.0f);
        store_shared(at + 8, real && kHasV ? ((float*)(a.state + a.bias_v[l]))[f] : 0.0f);
      }
    }
  }
  shape_batch(c, a, 0, thread);
  pair_sync();
  if (thread == 0) signal(counters + kInput, 1), signal(counters + kWeights, 1);
  for (int step = 0; step <= a.steps; ++step) {
    barrier_wait(c.shared + kVoteBarrier, step & 1);
    if (load_shared_word(c.shared + kVote + (step & 1) * 4)) {
      const Rates r = load_rates(c.shared, step - 1 & 1);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (layer[i] == 0) continue;
        const Word at = c.shared + kBias + (thread + 64 * i) * 12;
        float w[1] = {load_shared(at)}, g[1] = {gradient[i]}, m[1] = {load_shared(at + 4)}, v[1] = {load_shared(at + 8)};
        update<false, 1>(a, r, w, g, m, v);
        store_shared(at, w[0]);
        store_shared(at + 4, m[0]);
        store_shared(at + 8, v[0]);
      }
    }
    if (step == a.steps) break;
    barrier_arrive(c.shared + kBiasBarrier);
    if (step + 1 < a.steps) {
      shape_batch(c, a, step + 1, thread);
      pair_sync();
      if (thread == 0) signal(counters + kInput, 1);
    }
    // The release costs a memory barrier: here it holds up nobody.
    barrier_wait(c.shared + kDeepBarrier, step & 1);
    if (thread == 0) signal(counters + kDeep, 1);
    barrier_wait(full(c, kSchedule.other), step & 1);  // the other blocks' sums are there as well
    Word bad = 0;
    auto sum_rows = [&](bool of_first) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (layer[i] == 0 || (layer[i] == 1) != of_first) continue;
        const int W = tables.width[layer[i]];
        const float* parts = (const float*)(c.work + tables.layout.dbias[layer[i]]) + feature[i];
        float sum = 0.0f;
#pragma unroll 14
        for (int p = 0; p < kParts; ++p) sum += load_fresh(parts + p * W);
        gradient[i] = sum;
        bad |= !(fabsf(sum) <= 3.4e38f);
      }
    };
    if (thread < 32) {
      barrier_wait(c.shared + kDoneBarrier, step & 1);
      if (thread == 0) signal(counters + kFirst, 1);
    }
    sum_rows(false);
    barrier_wait(full(c, kSchedule.first), step & 1);
    sum_rows(true);
    asm volatile("{\n.reg .pred in, out;\nsetp.ne.u32 in, %1, 0;\nbarrier.cta.red.or.pred out, 2, 64, in;\n"
                 "selp.u32 %0, 1, 0, out;\n}" : "=r"(bad) : "r"(bad) : "memory");
    if (thread == 0) signal(counters + kWeights, 1 | (Long)bad << 32);
  }
  if (c.cluster == 0)
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (layer[i] == 0 || (layer[i] == kLayers && c.rank != 0)) continue;
      const Word at = c.shared + kBias + (thread + 64 * i) * 12;
      ((float*)(a.state + a.bias[layer[i]]))[feature[i]] = load_shared(at);
      if (kHasM) ((float*)(a.state + a.bias_m[layer[i]]))[feature[i]] = load_shared(at + 4);
      if (kHasV) ((float*)(a.state + a.bias_v[layer[i]]))[feature[i]] = load_shared(at + 8);
    }
}

}  // namespace mlp
}  // namespace rn
