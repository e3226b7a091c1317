// Forward pass, loss and gradients of activations: products whose rows belong to one cluster.
//
// Each block of a cluster computes width / kGroup features for the cluster's rows. The tile goes to
// device memory (the weight gradients read it there) and from there by one multicast copy into
// every block of the cluster: 1.0 to 1.2 us a hand-over, no polling.
#pragma once

#include "mlp_persistent_device.cuh"
#include "mlp_persistent_plan.cuh"
#include "mlp_persistent_wgmma.cuh"

namespace rn {
namespace mlp {

struct Context {
  Byte* work;      // working memory
  Word shared;     // start of shared memory
  int thread, warp, lane, rank, cluster, parity;  // parity: of the step
  long long* trace;                               // of this block, in the step that is traced; or null
};
constexpr int kTrace = 64;  // readings a block

RN_DEVICE void stamp(const Context& c, int what) {
  if (RN_TRACE && c.trace && c.thread == 0) {
    long long t;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
    c.trace[what] = t;
  }
}

RN_DEVICE Word full(const Context& c, int copy) { return c.shared + kFull + 8 * copy; }
RN_DEVICE Word empty(const Context& c, int copy) { return c.shared + kEmpty + 8 * copy; }
RN_DEVICE Word place_of(const Context& c, int copy) { return c.shared + load_shared_word(c.shared + kCopyTable + 32 * copy); }
RN_DEVICE Word arrived(const Context& c, int tensor) { return c.shared + kArrived + 8 * tensor; }

RN_DEVICE float activation(float x) {
  if (RN_ACTIVATION == 0) return x;
  if (RN_ACTIVATION == 1) return x <= 0.0f ? 0.0f : x;
  if (RN_ACTIVATION == 2) return x <= 0.0f ? 0.0f : (x >= 6.0f ? 6.0f : x);
  return x > 0.0f ? x : 0.01f * x;
}
RN_DEVICE float activation_slope(float y) {  // as a function of the output
  if (RN_ACTIVATION == 0) return 1.0f;
  if (RN_ACTIVATION == 1) return y <= 0.0f ? 0.0f : 1.0f;
  if (RN_ACTIVATION == 2) return y <= 0.0f || y >= 6.0f ? 0.0f : 1.0f;
  return y > 0.0f ? 1.0f : 0.01f;
}
static_assert(RN_ACTIVATION >= 0 && RN_ACTIVATION <= 3, "activation: none, relu, relu6 or leaky_relu");

// Byte offset of (row, feature) in a tensor of 64-wide slabs, `groups` row groups to a slab.
RN_DEVICE int tensor_place(int groups, int row, int feature) {
  return (((feature >> 6) * groups + (row >> 3)) * 8 + ((feature >> 3) & 7)) * 128 + (row & 7) * 16 +
         (feature & 7) * 2;
}

// A product's weights stream through the ring copy by copy; kSlab: columns of a slab of each operand.
template <int kTiles_, bool kBackward_, int kSteps_, int kStepsPerCopy_, int kSlabA_, int kSlabB_>
struct Product {
  static constexpr int kTiles = kTiles_, kSteps = kSteps_, kStepsPerCopy = kStepsPerCopy_, kSplit = k_split(kTiles_);
  static constexpr int kCopies = kSteps / kStepsPerCopy, kSlabA = kSlabA_, kSlabB = kSlabB_;
  static constexpr int kRowA = kSlabA / 8 * 128, kRowB = kSlabB / 8 * 128;  // bytes of eight rows
  static constexpr bool kBackward = kBackward_;

  // Where K step `inner` of a copy, and step `step` of the whole, begin.
  RN_DEVICE static int weight_at(int inner) {
    return kBackward ? inner * 2 * kRowA : inner * 16 / kSlabA * 2 * kTiles * kRowA + inner * 16 % kSlabA * 16;
  }
  RN_DEVICE static int tensor_at(int step) {
    return step * 16 / kSlabB * kRowGroups * kRowB + step * 16 % kSlabB * 16;
  }
};

RN_DEVICE void done_with(const Context& c, int copy) {
  __syncwarp();
  if (c.lane == 0) barrier_arrive(empty(c, copy));
}

// 64 features: the two warpgroups take the K steps in turn.
template <class P>
RN_DEVICE void multiply_wide(const Context& c, int first_copy, Word operand, float (&sum)[kRowGroups][4]) {
  static_assert(P::kSlabA % 32 == 0 || P::kStepsPerCopy * 16 == P::kSlabA, "a copy is one slab, or a step pair stays in one");
  static_assert(P::kSlabB % 32 == 0 || P::kStepsPerCopy * 16 == P::kSlabB, "a copy is one slab, or a step pair stays in one");
  constexpr int kNextA = P::kBackward ? 2 * P::kRowA : 256;  // from one step to the next, in bytes
  const int group = __shfl_sync(~0u, c.warp >> 2, 0);  // so that the compiler sees one path per warp
  const Long zero = matrix(c.shared + kZero, 0, 0);
  Word place = place_of(c, first_copy);
#pragma unroll 1
  for (int copy = 0; copy < P::kCopies; ++copy) {
    const int start = copy * P::kStepsPerCopy, odd = (start + group) & 1;
    Long x = P::kBackward ? matrix(place + odd * kNextA, 128, P::kRowA) : matrix(place + odd * kNextA, P::kRowA, 128);
    Long y = matrix(operand + P::tensor_at(start) + odd * 256, P::kRowB, 128);
    if (copy + 1 < P::kCopies) place = place_of(c, first_copy + copy + 1);
    barrier_wait(full(c, first_copy + copy), c.parity);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < (P::kStepsPerCopy + 1) / 2; ++i) {
      // No branch between products: where a group has one step less, its last one is with zeros.
      const bool none = P::kStepsPerCopy % 2 != 0 && i == P::kStepsPerCopy / 2 && odd;
      Wgmma<kRowGroups, P::kBackward, 0>::add(sum, none ? x : x + (P::weight_at(2 * i) >> 4),
                                              none ? zero : y + (P::tensor_at(2 * i) >> 4));
    }
    wgmma_commit();
    wgmma_wait<0>();  // room in the ring is worth more than overlap
    done_with(c, first_copy + copy);
  }
}

// Fewer features: every warp computes all of them, for every eighth K step. The fragments of a step
// are read while the products of the step before run.
template <class P>
RN_DEVICE void multiply_narrow(const Context& c, int first_copy, Word operand, float (&sum)[P::kTiles][kRowGroups][4]) {
  constexpr int kEach = (P::kStepsPerCopy + 7) / 8, kMine = P::kCopies * kEach;  // steps of a copy, of all
  const int block = c.lane >> 3, odd = block & 1, high = block >> 1, row = (c.lane & 7) * 16;
  const Word lane_a = (P::kBackward ? high * P::kRowA + odd * 128 : odd * P::kRowA + high * 128) + row;
  const Word lane_b = operand + high * P::kRowB + odd * 128 + row;
  Word a[2][P::kTiles][4], b[2][kRowGroups / 2][4];
  auto fetch = [&](int i, int slot) {
    const int copy = i / kEach, start = copy * P::kStepsPerCopy;
    const int inner = ((c.warp - start) & 7) + i % kEach * 8;
    if (i % kEach == 0) barrier_wait(full(c, first_copy + copy), c.parity);
    if (P::kStepsPerCopy % 8 != 0 && inner >= P::kStepsPerCopy) {
#pragma unroll
      for (int t = 0; t < P::kTiles; ++t) a[slot][t][0] = a[slot][t][1] = a[slot][t][2] = a[slot][t][3] = 0;
#pragma unroll
      for (int r = 0; r < kRowGroups / 2; ++r) b[slot][r][0] = b[slot][r][1] = b[slot][r][2] = b[slot][r][3] = 0;
      return;
    }
    const Word place = lane_a + place_of(c, first_copy + copy) + P::weight_at(inner);
#pragma unroll
    for (int r = 0; r < kRowGroups / 2; ++r) load_blocks(b[slot][r], lane_b + P::tensor_at(start + inner) + 2 * r * P::kRowB);
#pragma unroll
    for (int t = 0; t < P::kTiles; ++t)
      if (P::kBackward)
        load_blocks_transposed(a[slot][t], place + t * 256);
      else
        load_blocks(a[slot][t], place + t * 2 * P::kRowA);
  };
  fetch(0, 0);
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    if (i + 1 < kMine) fetch(i + 1, (i + 1) & 1);
#pragma unroll
    for (int t = 0; t < P::kTiles; ++t)
#pragma unroll
      for (int r = 0; r < kRowGroups; ++r)
        multiply_add(sum[t][r], a[i & 1][t], b[i & 1][r / 2][r % 2 * 2], b[i & 1][r / 2][r % 2 * 2 + 1]);
    if (i % kEach == kEach - 1) done_with(c, first_copy + i / kEach);
  }
}

template <int kCount>
RN_DEVICE void clear(float (&sum)[kCount][4]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) sum[i][0] = sum[i][1] = sum[i][2] = sum[i][3] = 0.0f;
}

// One 16-feature tile of a share of K.
template <int kTiles>
RN_DEVICE void spread_partials(const Context& c, Word scratch, int share, int tile, const float (&sum)[kRowGroups][4]) {
#pragma unroll
  for (int r = 0; r < kRowGroups; ++r)
    store_shared4(scratch + (((share * kTiles + tile) * kRowGroups + r) * 32 + c.lane) * 16, sum[r]);
}

template <int kTiles>
RN_DEVICE void gather_partials(const Context& c, Word scratch, int tile, float (&v)[4]) {
  v[0] = v[1] = v[2] = v[3] = 0.0f;
#pragma unroll
  for (int k = 0; k < k_split(kTiles); ++k) {
    float part[4];
    load_shared4(part, scratch + ((k * kTiles * kRowGroups + tile) * 32 + c.lane) * 16);
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] += part[e];
  }
}

template <int kTiles>
RN_CONSTANT int tiles_of_warp() { return (kTiles * kRowGroups + 7) / 8; }

// This block's tile of a tensor, already in device memory, to all blocks of the cluster.
template <int l>
RN_DEVICE void hand_over(const Context& c, const Byte* tensor, int place, int which, int mark) {
  constexpr bool whole = tiles(l) == 4, regular = 64 % (16 * tiles(l)) == 0;
  constexpr int pieces = whole ? 1 : (regular ? kRowGroups : kRowGroups * tiles(l));
  constexpr int bytes = whole ? kRowGroups * 1024 : (regular ? tiles(l) * 256 : 256);
  auto feature_of = [&](int p) { return c.rank * 16 * tiles(l) + (regular ? 0 : p / kRowGroups * 16); };
  auto to = [&](int p) { return c.shared + place + tensor_place(kRowGroups, p % kRowGroups * 8, feature_of(p)); };
  auto from = [&](int p) {
    return tensor + tensor_place(kSliceGroups, c.cluster * kRows + p % kRowGroups * 8, feature_of(p));
  };
  if (c.thread == 0) barrier_expect(arrived(c, which), act_bytes(l));
  const Word own_to = to(c.warp);
  const Byte* own_from = from(c.warp);
  asm volatile("" ::"r"(own_to), "l"(own_from) : "memory");  // worked out before the barrier
  stamp(c, mark + 0);
  fence_async_global();
  fence_async_shared();  // peers will write where partial sums lay
  stamp(c, mark + 1);
  team_sync();
  stamp(c, mark + 2);
  if (c.lane == 0) {  // a warp each: one thread would start them in turn
    if (c.warp < pieces) bulk_multicast(own_to, own_from, bytes, arrived(c, which), (1u << kGroup) - 1);
    for (int p = c.warp + 8; p < pieces; p += 8) bulk_multicast(to(p), from(p), bytes, arrived(c, which), (1u << kGroup) - 1);
  }
  if (l == 1 && c.thread == 224) barrier_arrive(c.shared + kSpareBarrier);
  __syncwarp();
}

// Rounded values of a tile, rows by features, to device memory.
RN_DEVICE void store_tile(const Context& c, Byte* tensor, int row_group, int feature, Word low, Word high) {
  Byte* to = tensor + tensor_place(kSliceGroups, c.cluster * kRows + row_group * 8, feature) +
             (c.lane >> 2) * 16 + (c.lane & 3) * 4;
  *(Word*)to = low;
  *(Word*)(to + 128) = high;
}

// Returns where the partial sums lie.
template <class P>
RN_DEVICE Word product(const Context& c, int first_copy, int operand, int bytes) {
  const int scratch = scratch_for(operand, bytes, scratch_bytes(P::kTiles));
  if constexpr (P::kTiles == 4) {
    float sum[kRowGroups][4];
    clear(sum);
    multiply_wide<P>(c, first_copy, c.shared + operand, sum);
    if (scratch == operand) team_sync();
    spread_partials<4>(c, c.shared + scratch, c.warp >> 2, c.warp & 3, sum);
  } else {
    float sum[P::kTiles][kRowGroups][4];
#pragma unroll
    for (int t = 0; t < P::kTiles; ++t) clear(sum[t]);
    multiply_narrow<P>(c, first_copy, c.shared + operand, sum);
    if (P::kTiles == 2) stamp(c, P::kBackward ? 41 : 31);
    if (scratch == operand) team_sync();
#pragma unroll
    for (int t = 0; t < P::kTiles; ++t) spread_partials<P::kTiles>(c, c.shared + scratch, c.warp, t, sum[t]);
  }
  team_sync();
  if (P::kTiles == 2) stamp(c, P::kBackward ? 42 : 32);
  return c.shared + scratch;
}

// y = activation(x w^T + b). Keeps this thread's outputs for the way back.
template <int l>
RN_DEVICE void forward(const Context& c, Word (&y)[2][2]) {
  constexpr int T = tiles(l);
  if (l > 1) barrier_wait(arrived(c, l - 1), c.parity);
  if (l == 2) stamp(c, 30);
  typedef Product<T, false, width(l - 1) / 16, forward_steps(l), weight_slab(l), slab(l - 1)> P;
  const Word scratch = product<P>(c, kSchedule.forward[l], y_place(l - 1), act_bytes(l - 1));
  if (l == 1) barrier_wait(c.shared + kBiasBarrier, c.parity);
#pragma unroll
  for (int i = 0; i < tiles_of_warp<T>(); ++i) {
    const int tile = c.warp + 8 * i, m = tile / kRowGroups, r = tile % kRowGroups;
    if (T * kRowGroups % 8 != 0 && tile >= T * kRowGroups) break;
    float v[4];
    gather_partials<T>(c, scratch, tile, v);
    const int local = m * 16 + (c.lane >> 2), feature = c.rank * 16 * T + local;
    const Word bias = c.shared + kBias + (bias_place(l) + local) * 12;
    const float low = load_shared(bias), high = load_shared(bias + 96);
    y[i][0] = pack(activation(v[0] + low), activation(v[1] + low));
    y[i][1] = pack(activation(v[2] + high), activation(v[3] + high));
    if (width(l) != model_width(l)) {  // padded features stay 0 whatever the activation
      if (feature >= model_width(l)) y[i][0] = 0;
      if (feature + 8 >= model_width(l)) y[i][1] = 0;
    }
    store_tile(c, c.work + kY<l>, r, c.rank * 16 * T + m * 16, transposed(y[i][0]), transposed(y[i][1]));
  }
  hand_over<l>(c, c.work + kY<l>, y_place(l), l, l == 2 ? 33 : 60);
}

// dx = (dy w) * slope(x), for the tensor after layer l - 1, and this tile's sums over its rows.
template <int l>
RN_DEVICE void backward(const Context& c, const Word (&y)[2][2]) {
  constexpr int T = tiles(l - 1);
  if (l < kLayers - 1) barrier_wait(arrived(c, 8 + l), c.parity);
  if (l == 2) stamp(c, 50);
  typedef Product<T, true, width(l) / 16, dgrad_steps(l), weight_slab(l), slab(l)> P;
  const Word scratch = product<P>(c, kSchedule.dgrad[l], dy_place(l), act_bytes(l));
  Byte* tensor = c.work + kDy<l - 1>;
  float* sums = (float*)(c.work + kSums<l - 1>);
  Word g[tiles_of_warp<T>()][2];
#pragma unroll
  for (int i = 0; i < tiles_of_warp<T>(); ++i) {
    const int tile = c.warp + 8 * i, m = tile / kRowGroups, r = tile % kRowGroups;
    if (T * kRowGroups % 8 != 0 && tile >= T * kRowGroups) break;
    float v[4];
    gather_partials<T>(c, scratch, tile, v);
    g[i][0] = pack(v[0] * activation_slope(unpack_low(y[i][0])), v[1] * activation_slope(unpack_high(y[i][0])));
    g[i][1] = pack(v[2] * activation_slope(unpack_low(y[i][1])), v[3] * activation_slope(unpack_high(y[i][1])));
    store_tile(c, tensor, r, c.rank * 16 * T + m * 16, transposed(g[i][0]), transposed(g[i][1]));
  }
  if (l > 2) hand_over<l - 1>(c, tensor, dy_place(l - 1), 8 + l - 1, 43);
#pragma unroll
  for (int i = 0; i < tiles_of_warp<T>(); ++i) {
    const int tile = c.warp + 8 * i, m = tile / kRowGroups, r = tile % kRowGroups;
    if (T * kRowGroups % 8 != 0 && tile >= T * kRowGroups) break;
    float low = unpack_low(g[i][0]) + unpack_high(g[i][0]), high = unpack_low(g[i][1]) + unpack_high(g[i][1]);
#pragma unroll
    for (int d = 1; d <= 2; d *= 2) {
      low += __shfl_xor_sync(~0u, low, d);
      high += __shfl_xor_sync(~0u, high, d);
    }
    if ((c.lane & 3) == 0) {
      float* to = sums + (c.cluster * kRowGroups + r) * width(l - 1) + c.rank * 16 * T + m * 16 + (c.lane >> 2);
      to[0] = low;
      to[8] = high;
    }
  }
  if (l == 2) {
    stamp(c, 51);
    fence_async_global();
    fence_async_shared();
    stamp(c, 52);
    team_sync();
  }
}

}  // namespace mlp
}  // namespace rn
