// Shapes, memory and copies of the persistent MLP kernel, all decided while it is compiled.
//
// Macros given by the caller (see mlp_persistent.cu): RN_WIDTHS, RN_BATCH, RN_GROUP, RN_CLUSTERS,
// RN_INPUT_SLAB, RN_ACTIVATION, RN_RULE, RN_INPUT.
//
// Working layout. Every matrix is cut into slabs of columns; a slab holds, row group after row group
// (8 rows), its 8x8 blocks of 128 bytes. So 8 rows x 16 bytes lie together: ldmatrix and the tensor
// cores read them without bank conflicts in either direction, and what one block of threads needs is
// a few long runs of bytes for the bulk copy engine (which starts one copy per ~29 ns, so runs of
// 2 KB and more are what reaches full bandwidth).
#pragma once

namespace rn {
namespace mlp {

#define RN_CONSTANT __host__ __device__ constexpr

RN_CONSTANT int model_width(int l) {
  const int widths[] = {RN_WIDTHS};
  return widths[l];
}
RN_CONSTANT int count_layers() {
  const int widths[] = {RN_WIDTHS};
  return sizeof(widths) / sizeof(int) - 1;
}
constexpr int kLayers = count_layers();
constexpr int kBatch = RN_BATCH;
constexpr int kGroup = RN_GROUP;        // blocks of a cluster; they share its rows of the batch
constexpr int kClusters = RN_CLUSTERS;  // each owns kRows rows of the batch
constexpr int kBlocks = kGroup * kClusters;
constexpr int kInputSlab = RN_INPUT_SLAB;
constexpr int kMaximumLayers = 8;

RN_CONSTANT int round_up(int x, int m) { return (x + m - 1) / m * m; }

constexpr int kRows = round_up((kBatch + kClusters - 1) / kClusters, 16);
constexpr int kRowGroups = kRows / 8;                        // of one cluster
constexpr int kTotalRows = kRows * kClusters;
constexpr int kWgradSteps = (kBatch + 15) / 16;              // k16 steps over the rows of the batch
constexpr int kWgradGroups = 2 * kWgradSteps;
constexpr int kSliceGroups = kTotalRows / 8;                 // row groups of a slab in memory

// Width of the tensor after layer l, padded: input to whole slabs, hidden so that each block of a
// cluster computes whole 16-feature tiles, classes to one tile.
RN_CONSTANT int width(int l) {
  return l == 0 ? round_up(model_width(0), kInputSlab)
                : (l == kLayers ? 16 : round_up(model_width(l), 16 * kGroup));
}
RN_CONSTANT int tiles(int l) { return width(l) / kGroup / 16; }  // 16-feature tiles of one block
RN_CONSTANT int slab(int l) { return l == 0 ? kInputSlab : 64; }  // of the tensor after layer l
RN_CONSTANT int weight_slab(int l) {                              // of the weight of layer l
  return l == 1 ? kInputSlab : (l == kLayers ? width(l - 1) : width(l - 1) / kGroup);
}

// ---- working memory, byte offsets -----------------------------------------------------------------
struct Layout {
  int counters, metrics, input[2], weight_set, weight[kMaximumLayers + 1];
  int weights[2], y[kMaximumLayers + 1], dy[kMaximumLayers + 1], dbias[kMaximumLayers + 1], total;
};
RN_CONSTANT Layout make_layout() {
  Layout a{};
  int at = 0;
  a.counters = at, at += 1024;
  a.metrics = at, at += 2 * kClusters * kRowGroups * 16 + 256;
  for (int l = 1; l <= kLayers; ++l)
    a.dbias[l] = at = round_up(at, 256), at += kClusters * kRowGroups * width(l) * 4;
  at = round_up(at, 1024);
  for (int i = 0; i < 2; ++i) a.input[i] = at, at += kTotalRows * width(0) * 2;
  int set = 0;
  for (int l = 1; l <= kLayers; ++l) a.weight[l] = set, set += width(l) * width(l - 1) * 2;
  a.weight_set = set;
  for (int i = 0; i < 2; ++i) a.weights[i] = at, at += round_up(set, 1024);
  for (int l = 1; l <= kLayers; ++l) {
    a.y[l] = at, at += kTotalRows * round_up(width(l), 64) * 2;
    a.dy[l] = at, at += kTotalRows * round_up(width(l), 64) * 2;
  }
  a.total = at;
  return a;
}
constexpr Layout kLayout = make_layout();
// As immediate values: a constant read from memory once a step is a miss each time.
template <int l> constexpr int kY = kLayout.y[l];
template <int l> constexpr int kDy = kLayout.dy[l];
template <int l> constexpr int kSums = kLayout.dbias[l];
constexpr int kInput0 = kLayout.input[0], kInput1 = kLayout.input[1];
constexpr int kWeights0 = kLayout.weights[0], kWeights1 = kLayout.weights[1];
constexpr int kMetrics = kLayout.metrics, kCounters = kLayout.counters;

RN_CONSTANT int weight_place(int l, int n, int k) {  // byte offset of element (n, k) of a weight
  return ((k / weight_slab(l) * (width(l) / 8) + n / 8) * (weight_slab(l) / 8) +
          k % weight_slab(l) / 8) * 128 + n % 8 * 16 + k % 8 * 2;
}

// ---- tiles of weight gradients, one per block and slot ---------------------------------------------
// Slot 0: first layer, 64 x kInputSlab. Slot 1: every other layer, 64 x 128.
constexpr int kFirstTiles = width(1) / 64 * (width(0) / kInputSlab);
RN_CONSTANT int first_tile(int l) {  // number of slot 1 tiles before layer l (l from 2)
  int n = 0;
  for (int i = 2; i < l; ++i) n += (i == kLayers ? 1 : width(i) / 64) * (width(i - 1) / 128);
  return n;
}
constexpr int kOtherTiles = first_tile(kLayers + 1);

// ---- shared memory ---------------------------------------------------------------------------------
RN_CONSTANT int largest(int a, int b) { return a > b ? a : b; }
RN_CONSTANT int act_bytes(int l) { return kRows * width(l) * 2; }
// Warps share a product by 16-feature tiles and by K; the partial sums over K meet in scratch.
RN_CONSTANT int k_split(int tiles) { return tiles == 4 ? 2 : 8; }  // 64 features: wgmma, a warpgroup each
RN_CONSTANT int scratch_bytes(int tiles) { return k_split(tiles) * tiles * kRowGroups * 512; }
constexpr int kHeadScratch = scratch_bytes(1);
// A holds the input and even layers, B odd ones; gradients take the area their own layer does not.
// The gradient below the head's arrives while a slow block may still read the last hidden layer.
RN_CONSTANT int gradient_offset(int l) {
  return l == kLayers - 2 ? largest(scratch_bytes(tiles(l)), act_bytes(kLayers - 1) + kHeadScratch) : 0;
}
RN_CONSTANT int area_bytes(int parity) {
  int n = parity ? kWgradGroups * kInputSlab * 16 : scratch_bytes(tiles(1));
  for (int l = 0; l < kLayers; ++l) {
    if (l % 2 == parity) n = largest(n, act_bytes(l));
    if (l == kLayers - 1 && l % 2 == parity) n = largest(n, act_bytes(l) + kHeadScratch);
    if (l >= 2 && l % 2 != parity) n = largest(n, gradient_offset(l) + act_bytes(l));
  }
  return round_up(n, 1024);
}
constexpr int kOtherColumns = 8;                // n8 tiles of a warp in slot 1
constexpr int kFirstColumns = kInputSlab / 16;  // and in slot 0
constexpr int kAreaA = 0;
constexpr int kAreaB = kAreaA + area_bytes(0);
constexpr int kMoments = kAreaB + area_bytes(1);  // of slot 1
constexpr int kMisc = kMoments + 2 * 4 * kOtherColumns * 256 * 4;
RN_CONSTANT int area(int parity) { return parity ? kAreaB : kAreaA; }
RN_CONSTANT int y_place(int l) { return area(l & 1); }
RN_CONSTANT int dy_place(int l) { return area(~l & 1) + gradient_offset(l); }
// Partial sums go where they overlay nothing if there is room, else over the operand (then all
// warps must have read it first).
RN_CONSTANT int scratch_for(int place, int bytes, int scratch) {
  const int start = place >= kAreaB ? kAreaB : kAreaA, end = place >= kAreaB ? kMoments : kAreaB;
  return place + bytes + scratch <= end ? place + bytes : (place - start >= scratch ? start : place);
}

// The head's gradient goes to device memory before the last product of the way back, while others
// still work on theirs; or at once, if a gradient further down or partial sums may take its place first.
RN_CONSTANT bool head_stays() {
  if (kLayers != 4) return kLayers == 3;
  const int at = dy_place(3), bytes = act_bytes(3), scratch = scratch_bytes(tiles(2));
  const int sums = scratch_for(at, bytes, scratch);
  return sums >= at + bytes || sums + scratch <= at;
}
constexpr bool kPublishEarly = !head_stays();

constexpr int kMaximumCopies = 56;
constexpr int kFull = kMisc, kEmpty = kFull + 8 * kMaximumCopies;  // one barrier a copy
constexpr int kArrived = kEmpty + 8 * kMaximumCopies;              // exchanged tensors: y 0.., dy 8..
constexpr int kVoteBarrier = kArrived + 16 * 8, kRatesBarrier = kVoteBarrier + 8;
constexpr int kBiasBarrier = kRatesBarrier + 8, kDeepBarrier = kBiasBarrier + 8;
constexpr int kDoneBarrier = kDeepBarrier + 8, kSpareBarrier = kDoneBarrier + 8;
constexpr int kVote = kSpareBarrier + 8, kRates = kVote + 16, kHeadRows = kRates + 64;
constexpr int kZero = round_up(kHeadRows + 8 * 16, 128), kLogitGradient = kZero + 128;
constexpr int kBias = kLogitGradient + kRows * 32;  // w, m, v of the features this block computes
RN_CONSTANT int bias_place(int l) {
  int n = 0;
  for (int i = 1; i < l; ++i) n += 16 * tiles(i);
  return n;
}
constexpr int kBiasCount = bias_place(kLayers) + 16;
constexpr int kCopyTable = round_up(kBias + 12 * kBiasCount, 16);  // 32 bytes a copy
constexpr int kRing = round_up(kCopyTable + 32 * kMaximumCopies, 128);
constexpr int kSharedBytes = 232448;
constexpr int kRingBytes = (kSharedBytes - kRing) / 128 * 128;

// ---- the copies of one step --------------------------------------------------------------------------
// Weights for the way forward and back pass through the ring in a fixed order. What the weight
// gradients read has fixed places, in memory whose earlier use is over by then.
struct Copies {  // one barrier: `pieces` runs of `bytes`
  int place, bytes, pieces, source, source_stride, rank_stride;
  int after;  // the copy of this step whose place this one takes; -1: none; -2: free after the first layer
};
struct Schedule {
  Copies at[kMaximumCopies];
  int weights;  // the ring's copies are [0, weights)
  int forward[kMaximumLayers + 1], dgrad[kMaximumLayers + 1], head, other, first_input, first, next, count;
};
RN_CONSTANT int forward_slab_bytes(int l) { return 2 * tiles(l) * weight_slab(l) * 16; }
RN_CONSTANT int slabs_per_copy(int l) {
  int q = largest(1, 8192 / forward_slab_bytes(l)), n = width(l - 1) / weight_slab(l);
  while (n % q) --q;
  return q;
}
RN_CONSTANT int forward_steps(int l) { return slabs_per_copy(l) * weight_slab(l) / 16; }  // k16 a copy
RN_CONSTANT int dgrad_steps(int l) {
  int q = largest(1, 8192 / (weight_slab(l) * 32)), n = width(l) / 16;
  while (n % q) --q;
  return q;
}
// Row groups of slot 1's operands (3 KB each: gradient and two slabs of input) in area A, once the
// gradients above are used up; then behind the first layer's input in B, and in the ring, once the
// last product of the way back is done. The first layer's gradient starts the ring.
constexpr int kInputSliceBytes = kWgradGroups * kInputSlab * 16, kGradientBytes = kWgradGroups * 1024;
RN_CONSTANT int even_part(int groups, int room) {
  const int n = room / 3072 / 2 * 2;
  return n < groups ? n : groups;
}
constexpr int kInA = even_part(kWgradGroups, (kAreaB - kAreaA) / 2) ;  // twice this: two copies
constexpr int kInA2 = even_part(kWgradGroups - kInA, (kAreaB - kAreaA) - kInA * 3072);
constexpr int kInB = even_part(kWgradGroups - kInA - kInA2, kMoments - kAreaB - kInputSliceBytes);
constexpr int kInRing = kWgradGroups - kInA - kInA2 - kInB;
constexpr int kOtherParts = 4;
RN_CONSTANT int part_groups(int i) { return i == 0 ? kInA : (i == 1 ? kInA2 : (i == 2 ? kInB : kInRing)); }
RN_CONSTANT int part_start(int i) {
  int n = 0;
  for (int j = 0; j < i; ++j) n += part_groups(j);
  return n;
}
RN_CONSTANT int part_place(int i) {
  return i < 2 ? kAreaA + part_start(i) * 3072 : (i == 2 ? kAreaB + kInputSliceBytes : kRing + kGradientBytes);
}
RN_CONSTANT Schedule make_schedule() {
  Schedule s{};
  int n = 0;
  for (int l = 1; l < kLayers; ++l) {
    s.forward[l] = n;
    const int q = slabs_per_copy(l), full = width(l) * weight_slab(l) * 2;
    for (int i = 0; i < width(l - 1) / weight_slab(l) / q; ++i)
      s.at[n++] = {0, forward_slab_bytes(l), q, kLayout.weight[l] + i * q * full, full,
                   forward_slab_bytes(l), -1};
  }
  s.head = n;
  s.at[n++] = {0, 16 * width(kLayers - 1) * 2, 1, kLayout.weight[kLayers], 0, 0, -1};
  for (int l = kLayers - 1; l >= 2; --l) {
    s.dgrad[l] = n;
    const int bytes = dgrad_steps(l) * weight_slab(l) * 32;
    for (int i = 0; i < width(l) / 16 / dgrad_steps(l); ++i)
      s.at[n++] = {0, bytes, 1, kLayout.weight[l] + i * bytes, 0, width(l) * weight_slab(l) * 2, -1};
  }
  s.weights = n;
  // Two copies for the second layer lie where the input was, behind the second layer's output: they
  // are there before the ring has room for them.
  if (kLayers > 2) {
    const int bytes = s.at[s.forward[2]].bytes * s.at[s.forward[2]].pieces, end = kLayers > 3 ? s.forward[3] : s.head;
    const int spare = (kAreaB - kAreaA - act_bytes(2)) / bytes, some = spare < 2 ? spare : 2;
    for (int i = 0; i < some && end - 2 - i > s.forward[2]; ++i) {
      s.at[end - 2 - i].place = kAreaA + act_bytes(2) + i * bytes;
      s.at[end - 2 - i].after = -2;
    }
  }
  // The ring: places in turn, and for each the latest copy that lay there before. Memory a step's
  // first copies take over from the step before is free: the vote came after its last use.
  int at = 0;
  for (int i = 0; i < n; ++i) {
    if (s.at[i].after == -2) continue;
    const int bytes = round_up(s.at[i].bytes * s.at[i].pieces, 128);
    if (at + bytes > kRingBytes) at = 0;
    s.at[i].place = kRing + at;
    at += bytes;
    const int a0 = s.at[i].place, a1 = a0 + bytes;
    for (int j = i - 1; j >= 0; --j) {
      const int b0 = s.at[j].place, b1 = b0 + s.at[j].bytes * s.at[j].pieces;
      if (a0 < b1 && b0 < a1) {
        s.at[i].after = j;
        break;
      }
    }
  }
  s.other = n;
  for (int i = 0; i < kOtherParts; ++i)
    s.at[n++] = {part_place(i), part_groups(i) * 1024, 3, part_start(i) * 1024, 0, 0, -1};
  s.first_input = n;
  s.at[n++] = {kAreaB, kInputSliceBytes, 1, 0, 0, 0, -1};
  s.first = n;
  s.at[n++] = {kRing, kGradientBytes, 1, 0, 0, 0, -1};
  s.next = n;
  s.at[n++] = {kAreaA, kRowGroups * kInputSlab * 16, width(0) / kInputSlab, 0,
               kSliceGroups * kInputSlab * 16, 0, s.other + 1};
  s.count = n;
  return s;
}
constexpr Schedule kSchedule = make_schedule();

static_assert(kLayers >= 3 && kLayers <= kMaximumLayers, "three to eight fc layers");
static_assert(model_width(kLayers) <= 16, "at most 16 classes");
static_assert(kInputSlab % 16 == 0 && kInputSlab <= 128, "input slab: a multiple of 16, at most 128");
static_assert(kFirstTiles <= kBlocks, "more first-layer gradient tiles than blocks");
static_assert(kOtherTiles <= kBlocks, "more gradient tiles than blocks");
static_assert(kRingBytes >= 40960, "activations and moments leave too little shared memory");
static_assert(kGradientBytes + kInRing * 3072 <= kRingBytes, "operands of weight gradients do not fit");
static_assert(kSchedule.count <= kMaximumCopies, "too many copies in a step");
static_assert(kRowGroups % 2 == 0 && kRowGroups <= 4, "16 or 32 rows of the batch per cluster");

// What device code looks up with a layer it learns at run time.
struct Tables { int model[kMaximumLayers + 1], width[kMaximumLayers + 1], slab[kMaximumLayers + 1]; Layout layout; Schedule schedule; };
RN_CONSTANT Tables make_tables() {
  Tables t{};
  for (int l = 0; l <= kLayers; ++l) {
    t.model[l] = model_width(l), t.width[l] = width(l);
    if (l) t.slab[l] = weight_slab(l);
  }
  t.layout = kLayout, t.schedule = kSchedule;
  return t;
}
constexpr Tables kTables = make_tables();
__constant__ Tables tables = kTables;

}  // namespace mlp
}  // namespace rn
