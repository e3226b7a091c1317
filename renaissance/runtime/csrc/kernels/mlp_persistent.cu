// Many training steps of an MLP (fc + activation, softmax cross-entropy) in one launch. sm_90a only.
//
// What a step of 784-1024-512-256-10, batch 200, has to do: 1.43 GFLOP (1.8 us at the matrix rate),
// 1.46 M optimizer updates, 17.5 MB of masters and moments that stay on chip, about 610 KB read from L2
// by each block, most of it ahead of its use; and six hand-overs between blocks that wait for each
// other. The hand-overs decide the shape (benchmarks/notes_mlp_persistent.md has what each way costs):
//
// - The rows of the batch are divided among clusters of kGroup blocks. Within a cluster each block
//   computes width / kGroup features of every layer, for all rows of the cluster, forward and back; its
//   tile travels to the others by one multicast copy and an mbarrier, without polling. The head (last
//   layer, loss, gradient of the last hidden layer) is computed by every block of the cluster alike.
// - The grid is crossed twice a step: when all gradients of activations are in device memory (weight
//   gradients sum over all rows), and when all new fp16 weights are, together with the verdict whether
//   every gradient was finite. Counters in device memory, a release to add, an acquire to poll.
// - A block owns a tile of the first weight and at most one of the others for the whole launch: masters
//   and moments in registers and shared memory. It writes new fp16 weights into a second set before the
//   verdict; after a refusal the old set is simply used again and nothing on chip has changed.
// - Four more warps bring weights and operands ahead of use, shape the next batch, sum bias gradients
//   and keep the scalars. 232 registers for those that compute, 40 for the helpers.
//
// All sums have a fixed order; no floating-point atomics. A launch of n steps leaves the same bits as n
// launches of one step (but for the order in which metrics are summed over steps).
//
// Residency: every block waits for every other, so all kBlocks must run at once: one block on each of
// kBlocks multiprocessors, in clusters of kGroup. The caller asks cuOccupancyMaxActiveClusters (7
// clusters of 16 on an H200) and sets the function attributes for 232,448 bytes of dynamic shared memory
// and for clusters larger than 8. Launch: kBlocks x 384 threads, Arguments by value. NVRTC compiles this
// file as it is, with --gpu-architecture=sm_90a --std=c++17.
//
// Macros: RN_WIDTHS 784,1024,512,256,10 | RN_BATCH rows of a step | RN_GROUP 16 | RN_CLUSTERS 7 |
// RN_INPUT_SLAB columns of a first-layer gradient tile, a multiple of 16 up to 128 with (padded width of
// layer 1 / 64) x (input / slab) tiles at most kBlocks | RN_ACTIVATION 0 none, 1 relu, 2 relu6, 3
// leaky_relu | RN_RULE 0 sgd, 1 momentum, 2 nesterov, 3 adam, 4 adamw | RN_INPUT 0 fp32, 1 fp16, 2 uint8 |
// RN_CLIP 1 to clamp gradients | RN_TRACE 1 for clock readings.
//
// Covers: three to eight layers, at most 16 classes, input width a multiple of 8, batches up to
// 32 kClusters rows, whatever of that fits (static assertions say what does not): hidden widths are
// padded to multiples of 16 kGroup and end at 1,024; label smoothing; skipped steps and dynamic loss
// scaling. Not: LARS, EMA, global-norm clipping, dropout or batch norm between layers.
#include "mlp_persistent_arguments.cuh"
#include "mlp_persistent_chain.cuh"
#include "mlp_persistent_head.cuh"
#include "mlp_persistent_helpers.cuh"
#include "mlp_persistent_update.cuh"
#include "mlp_persistent_wgrad.cuh"

namespace rn {
namespace mlp {

template <int kFrom, int kTo = 4, class Meanwhile>
RN_DEVICE void for_quarters(Meanwhile meanwhile) {
  if constexpr (kFrom < kTo) {
    meanwhile(kFrom);
    for_quarters<kFrom + 1, kTo>(meanwhile);
  }
}

template <int l, class Meanwhile>
RN_DEVICE void forward_from(const Context& c, const Arguments& a, int step, Word (&y)[kLayers][2][2], Meanwhile meanwhile) {
  if constexpr (l < kLayers) {
    forward<l>(c, y[l]);
    stamp(c, l);
    if (l < kLayers - 1 && l < 4) meanwhile(l - 1);  // the last quarter waits for the way back
    if (l == kLayers - 1) for_quarters<kLayers - 2, 3>(meanwhile);
    forward_from<l + 1>(c, a, step, y, meanwhile);
  }
}
template <int l, class Meanwhile>
RN_DEVICE void backward_from(const Context& c, const Arguments& a, int step, Word (&y)[kLayers][2][2], Meanwhile meanwhile) {
  if constexpr (l == (kPublishEarly ? kLayers - 1 : 2)) publish_head(c);
  if constexpr (l == 2) {
    fence_async_global();
    team_sync();  // all gradients but the first layer's are in device memory
    if (c.thread == 0) barrier_arrive(c.shared + kDeepBarrier);
    meanwhile(3);
  }
  if constexpr (l >= 2) {
    backward<l>(c, y[l - 1]);
    stamp(c, 20 - l);
    backward_from<l - 1>(c, a, step, y, meanwhile);
  }
}

RN_DEVICE void compute(Context c, const Arguments& a, Long* counters, int other_layer, int other_n, int other_k, bool has_first) {
  Tile<kFirstColumns, true> first;
  Tile<kOtherColumns, false> other;
  const int block = blockIdx.x;
  first.shared = 0;
  first.set_up(c, has_first ? 1 : 0, block % (width(1) / 64) * 64, block / (width(1) / 64) * kInputSlab, kInputSlab / 2,
               width(1), kInputSlab);
  other.shared = c.shared + kMoments + c.thread * 16;
  other.set_up(c, other_layer, other_n, other_k, 64, other_layer ? tables.width[other_layer] : 8,
               other_layer ? tables.slab[other_layer] : 16);
  other.place += tables.layout.weight[other_layer];
  first.load(a);
  other.load(a);
  const Rates none = {0.0f, 0.0f, 0.0f, 0.0f};
  first.propose<false>(a, none, c.work + kWeights0);
  other.propose<false>(a, none, c.work + kWeights0);
  for (int i = block * 256 + c.thread; i < kTotalRows * 8; i += kBlocks * 256)  // classes 16 to 63
    ((uint4*)(c.work + kDy<kLayers>))[i] = make_uint4(0, 0, 0, 0);
  fence_async_global();
  team_sync();
  if (c.thread == 0) signal(counters + kWeights, 1);

  int set = 0;
  Word y[kLayers][2][2];  // this thread's outputs of each layer
  for (int step = 0; step <= a.steps; ++step) {
    const Labels label = load_labels(c, a, step < a.steps ? step : step - 1);
    // Addresses are cheaper to work out again than to keep in registers from step to step.
    asm volatile("" : "+r"(c.lane), "+r"(c.warp), "+r"(c.shared), "+r"(c.rank), "+r"(c.cluster));
    c.parity = step & 1;
    barrier_wait(c.shared + kVoteBarrier, c.parity);
    stamp(c, 24);
    c.trace = RN_TRACE && a.trace && step == a.steps - 2 ? a.trace + blockIdx.x * kTrace : nullptr;
    stamp(c, 0);
    const bool accepted = load_shared_word(c.shared + kVote + c.parity * 4);
    const Rates last = load_rates(c.shared, c.parity ^ 1);
    if (accepted) set ^= 1;
    // The arithmetic of the last update, a quarter at a time, while tensors travel between blocks.
    auto meanwhile = [&](int quarter) {
      constexpr int f = kFirstColumns, o = kOtherColumns;
      if (!accepted) return;
      if (quarter == 0 && has_first) first.accept<0, f / 2>(a, last);
      if (quarter == 1 && has_first) first.accept<f / 2, f>(a, last);
      if (quarter == 2 && other_layer) other.accept<0, o / 2>(a, last);
      if (quarter == 3 && other_layer) other.accept<o / 2, o>(a, last);
    };
    if (step == a.steps) {
      for_quarters<0>(meanwhile);
      break;
    }
    barrier_wait(full(c, kSchedule.next), c.parity);
    forward_from<1>(c, a, step, y, meanwhile);
    const RowLoss loss = head(c, a, label);
    stamp(c, 16);
    backward_from<kLayers - 1>(c, a, step, y, meanwhile);
    if (c.thread == 0) barrier_arrive(c.shared + kDoneBarrier);

    Byte* proposed = c.work + (set ? kWeights0 : kWeights1);
    const Rates r = load_rates(c.shared, c.parity);
    Word flag = 0;
    {
      float sum[kOtherColumns][4];
      clear(sum);
#pragma unroll
      for (int i = 0; i < kOtherParts; ++i) {
        const Word at = c.shared + part_place(i);
        barrier_wait(full(c, kSchedule.other + i), c.parity);
        if (other_layer)
          accumulate<kOtherColumns, 1024>(part_groups(i) / 2, at, at + (1 + (c.warp >> 2)) * part_groups(i) * 1024, sum);
        __syncwarp();
        if (i == 1 && c.lane == 0) barrier_arrive(empty(c, kSchedule.other + 1));
      }
      stamp(c, 13);
      if (other_layer) {
        flag = other.round(sum, flag);
        other.propose<true>(a, r, proposed);
      }
      stamp(c, 14);
      if (c.rank == 0 && c.warp < kRowGroups) report(c, a, loss, label);
    }
    {
      float sum[kFirstColumns][4];
      clear(sum);
      barrier_wait(full(c, kSchedule.first_input), c.parity);
      barrier_wait(full(c, kSchedule.first), c.parity);
      stamp(c, 15);
      if (has_first)
        accumulate<kFirstColumns, kInputSlab * 16>(kWgradSteps, c.shared + kRing,
                                                   c.shared + kAreaB + (c.warp >> 2) * kInputSlab * 8, sum);
      stamp(c, 20);
      if (has_first) {
        flag = first.round(sum, flag);
        first.propose<true>(a, r, proposed);
      }
    }
    stamp(c, 21);
    fence_async_global();
    const bool bad = team_any((flag & 0x7fff7fffu) != 0);
    if (c.thread == 0) signal(counters + kWeights, 1 | (Long)bad << 32);
    stamp(c, 22);
  }
  first.store(a);
  other.store(a);
}

}  // namespace mlp
}  // namespace rn

extern "C" __global__ void __cluster_dims__(RN_GROUP, 1, 1) __launch_bounds__(384, 1)
    mlp_persistent_kernel(const __grid_constant__ rn::mlp::Arguments a) {
  using namespace rn::mlp;
  extern __shared__ __align__(1024) Byte memory[];
  Context c;
  c.work = a.work;
  c.shared = shared_address(memory);
  c.thread = threadIdx.x, c.warp = c.thread >> 5, c.lane = c.thread & 31;
  c.rank = cluster_rank(), c.cluster = blockIdx.x / kGroup, c.parity = 0, c.trace = nullptr;
  Long* counters = (Long*)(a.work + kCounters);

  const bool has_first = blockIdx.x < kFirstTiles;
  int layer = 0, n = 0, k = 0;
  Sources sources = {0, -1};
#pragma unroll
  for (int l = 2; l <= kLayers; ++l) {
    const int t = (int)blockIdx.x - first_tile(l), rows = l == kLayers ? 1 : width(l) / 64;
    if (t >= 0 && t < first_tile(l + 1) - first_tile(l)) {
      layer = l, n = t % rows * 64, k = t / rows * 128;
      sources.gradient = tables.layout.dy[l] + n * kTotalRows * 2;
      sources.input = tables.layout.y[l - 1] + k * kTotalRows * 2;
    }
  }
  if (c.thread == 0) {
    for (int i = 0; i < kSchedule.count; ++i) barrier_init(full(c, i), 1), barrier_init(empty(c, i), 8);
    for (int i = 0; i < 16; ++i) barrier_init(arrived(c, i), 1);
    barrier_init(c.shared + kVoteBarrier, 1);
    barrier_init(c.shared + kRatesBarrier, 1);
    barrier_init(c.shared + kBiasBarrier, 64);
    barrier_init(c.shared + kDeepBarrier, 1);
    barrier_init(c.shared + kDoneBarrier, 1);
    barrier_init(c.shared + kSpareBarrier, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (c.thread < kSchedule.weights) {
    const Copies& t = tables.schedule.at[c.thread];
    const int words[8] = {t.place, t.bytes, t.pieces, t.source, t.source_stride, t.rank_stride, t.after, 0};
    for (int i = 0; i < 8; ++i) store_shared_word(c.shared + kCopyTable + 32 * c.thread + 4 * i, words[i]);
  }
  if (c.thread < 32) store_shared_word(c.shared + kZero + c.thread * 4, 0);
  fence_async_shared();
  __syncthreads();
  cluster_sync();  // peers write into this block's shared memory and barriers

  if (c.warp < 8) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    compute(c, a, counters, layer, n, k, has_first);
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (c.warp == 8) feed_weights(c, a);
    else if (c.warp == 9) keep_scalars(c, a, counters, sources, has_first);
    else shape_batches_and_keep_biases(c, a, counters, c.thread - 320);
  }
  __syncwarp();
  cluster_sync();
  if (c.thread == 0 && atomicAdd(counters + kExit, 1ull) == kBlocks - 1)  // ready for the next launch
    for (int i = 0; i < 5; ++i) counters[16 * i] = 0;
}
