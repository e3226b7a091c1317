// The three helpers beside the 256 threads that compute: one warp feeds shared memory, one keeps the
// scalars of the run, two bring the next batch into shape and own the biases.
#pragma once

#include "mlp_persistent_arguments.cuh"
#include "mlp_persistent_chain.cuh"
#include "mlp_persistent_update.cuh"

namespace rn {
namespace mlp {

constexpr int kDeep = 0, kFirst = 16, kInput = 32, kWeights = 48, kExit = 64;  // counters, 128 B apart

struct Sources { int gradient, input; };  // of the slot 1 tile, byte offsets in `work`; -1: no tile

RN_DEVICE void feed(const Context& c, const Arguments& a, const Long* counters, Sources other, bool has_first) {
  int set = 0;
  Word refused = 0;
  const int block = blockIdx.x, column_tiles = width(1) / 64;
  const Byte* gradient = c.work + tables.layout.dy[1] + block % column_tiles * kSliceGroups * 1024;
  const int input_slab = block / column_tiles * kSliceGroups * kInputSlab * 16;
  for (int step = -1; step < a.steps; ++step) {
    if (step >= 0) {
      const Word bad = (Word)(wait_for(counters + kWeights, 2 * kBlocks * (step + 1)) >> 32);
      if (step > 0 && bad == refused) set ^= 1;
      refused = bad;
      fence_async_global();
    }
    const Byte* weights = c.work + (set ? tables.layout.weights[1] : tables.layout.weights[0]);
    const Byte* now = c.work + (step & 1 ? tables.layout.input[1] : tables.layout.input[0]);
    const Byte* coming = c.work + (step & 1 ? tables.layout.input[0] : tables.layout.input[1]);
    for (int i = step < 0 ? kSchedule.next : 0; i < kSchedule.count; ++i) {
      const int kind = tables.schedule.at[i].kind, bytes = tables.schedule.at[i].bytes, after = tables.schedule.at[i].after;
      int pieces = tables.schedule.at[i].pieces, from_stride = tables.schedule.at[i].source_stride;
      const int to = tables.schedule.at[i].place, source = tables.schedule.at[i].source;
      if (after >= 0) {
        const int previous = tables.schedule.at[i].previous;
        if (!previous || step > 0) barrier_wait(empty(c, after), (step - previous) & 1);
      }
      const Byte* from = weights + source + c.rank * tables.schedule.at[i].rank_stride;
      if (kind == kOtherWgrad) {
        wait_for(counters + kDeep, kBlocks * (step + 1));
        fence_async_global();
        from = c.work + (c.lane == 0 ? other.gradient : other.input + (c.lane - 1) * kSliceGroups * 1024) + source;
        from_stride = 0;
        if (other.input < 0) pieces = 0;
      } else if (kind == kFirstInput) {
        barrier_wait(c.shared + kDoneBarrier, step & 1);
        from = now + input_slab;
        if (!has_first) pieces = 0;
      } else if (kind == kFirstGradient) {
        wait_for(counters + kFirst, kBlocks * (step + 1));
        fence_async_global();
        from = gradient;
        if (!has_first) pieces = 0;
      } else if (kind == kNextInput) {
        if (step + 1 >= a.steps) break;
        wait_for(counters + kInput, kBlocks * (step + 2));
        fence_async_global();
        from = coming + c.cluster * kRowGroups * kInputSlab * 16;
      }
      if (c.lane == 0) barrier_expect(full(c, i), bytes * pieces);
      __syncwarp();
      for (int p = c.lane; p < pieces; p += 32)
        bulk_load(c.shared + to + p * bytes, from + p * from_stride, bytes, full(c, i));
    }
  }
}

RN_DEVICE double power(double base, int exponent) {  // a pure function of the step, wherever a run began
  double r = 1.0;
  for (; exponent; exponent >>= 1, base *= base)
    if (exponent & 1) r *= base;
  return r;
}

// Verdict, loss scale, counters, rates of the next update; one lane, metrics by four.
RN_DEVICE void keep_scalars(const Context& c, const Arguments& a, const Long* counters) {
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
        const float* parts = (const float*)(c.work + tables.layout.metrics) + (step - 1 & 1) * kClusters * 4;
        last = 0.0f;
        for (int k = 0; k < kClusters; ++k) last += load_fresh(parts + k * 4 + c.lane);
        if (good) total += last;
        if (a.history) a.history[(step - 1) * 4 + c.lane] = last;
      }
    }
    if (step == a.steps) break;
    lr = table[applied < a.table_length ? applied : a.table_length - 1];
    if (RN_RULE >= 3) {
      correction1 = (float)(1.0 - power(a.beta1_exact, applied + 1));
      correction2 = (float)(1.0 - power(a.beta2_exact, applied + 1));
    }
    if (c.lane == 0) {
      const float rates[4] = {lr, 1.0f / correction1, rsqrtf(correction2), 1.0f / scale};
      store_shared4(c.shared + kRates + (step & 1) * 32, rates);
      store_shared(c.shared + kRates + (step & 1) * 32 + 16, scale);
      barrier_arrive(c.shared + kRatesBarrier);
    }
    __syncwarp();
  }
  if (blockIdx.x == 0) {
    if (c.lane == 0) {
      *integers[0] = applied, *integers[1] = skipped, *integers[2] = clean, *integers[3] = run;
      *(int*)(a.state + a.nan_flag) = !good;
      *(float*)(a.state + a.loss_scale) = scale;
      *(float*)(a.state + a.lr) = lr;
      *(float*)(a.state + a.correction1) = correction1;
      *(float*)(a.state + a.correction2) = correction2;
    }
    if (c.lane < 4) {
      ((float*)(a.state + a.result))[c.lane] = last;
      ((float*)(a.state + a.accumulated))[c.lane] += total;
    }
  }
}

// This block's share of batch `step`, eight values a thread and turn.
RN_DEVICE void shape_batch(const Context& c, const Arguments& a, int step, int thread) {
  constexpr int kBlocksOfRow = width(0) / 8, kPieces = kTotalRows * kBlocksOfRow;
  constexpr int kShare = (kPieces + kBlocks - 1) / kBlocks;
  Byte* to = c.work + (step & 1 ? tables.layout.input[1] : tables.layout.input[0]);
  for (int i = thread; i < kShare; i += 64) {
    const int piece = blockIdx.x * kShare + i;
    if (piece >= kPieces) break;
    const int row = piece / kBlocksOfRow, k = piece % kBlocksOfRow * 8;
    Word v[4] = {0, 0, 0, 0};
    if (row < kBatch) {
      const long long sample = a.indices ? a.indices[(long long)step * kBatch + row] : (long long)step * kBatch + row;
      unsigned short h[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        h[e] = 0;
        if (k + e < model_width(0)) {
          const long long at = sample * model_width(0) + k + e;
          h[e] = RN_INPUT_UINT8 ? a.table[((const Byte*)a.images)[at]] : ((const unsigned short*)a.images)[at];
        }
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) v[e] = h[2 * e] | (Word)h[2 * e + 1] << 16;
    }
    const int place = ((k / kInputSlab * kSliceGroups + row / 8) * (kInputSlab / 8) + k % kInputSlab / 8) * 128 + row % 8 * 16;
    *(uint4*)(to + place) = make_uint4(v[0], v[1], v[2], v[3]);
  }
  fence_async_global();
}
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
        float m = load_shared(at + 4), v = load_shared(at + 8);
        store_shared(at, updated<false>(a, r, load_shared(at), gradient[i], m, v));
        store_shared(at + 4, m);
        store_shared(at + 8, v);
      }
    }
    if (step == a.steps) break;
    barrier_arrive(c.shared + kBiasBarrier);
    if (step + 1 < a.steps) {
      shape_batch(c, a, step + 1, thread);
      pair_sync();
      if (thread == 0) signal(counters + kInput, 1);
    }
    barrier_wait(full(c, kSchedule.first), step & 1);  // all sums over rows are there as well
    Word bad = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (layer[i] == 0) continue;
      const int W = layer[i] == kLayers ? 16 : tables.width[layer[i]];
      const float* parts = (const float*)(c.work + tables.layout.dbias[layer[i]]) + feature[i];
      float sum = 0.0f;
#pragma unroll 14
      for (int p = 0; p < kParts; ++p) sum += load_fresh(parts + p * W);
      gradient[i] = sum;
      bad |= !(fabsf(sum) <= 3.4e38f);
    }
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
