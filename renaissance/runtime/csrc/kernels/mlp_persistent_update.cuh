// Weight gradients and the optimizer. A block owns one tile of the first weight and at most one of
// the others for the whole launch: masters and moments stay in its registers and shared memory.
//
// An update happens twice. `propose` computes the new fp16 weights, while other blocks may still find
// a gradient that is not finite, and writes them beside the old ones; one barrier then tells all
// blocks the verdict and that the weights are there. `accept` repeats the arithmetic and keeps the
// result, while the next step's first weights are on their way. After a refusal nothing was changed.
#pragma once

#include "mlp_persistent_arguments.cuh"
#include "mlp_persistent_chain.cuh"

namespace rn {
namespace mlp {

// Of one step: what multiplies g for the first moment (or for g itself), for the root of the second,
// the step over the first moment's correction, the root of the second's, and 1 - lr * decay.
struct Rates { float first, second, step, root, keep, inverse_scale, lr, loss_unit; };

RN_DEVICE Rates load_rates(Word shared, int parity) {
  float f[4], h[4];
  load_shared4(f, shared + kRates + parity * 32);
  load_shared4(h, shared + kRates + parity * 32 + 16);
  return {f[0], f[1], f[2], f[3], h[0], h[1], h[2], h[3]};
}

// New weights; moments are replaced. Step by step over the whole batch: the square root and the
// reciprocal take long, and one warp must have several under way. Every rounding is spelled out, so
// that both passes agree.
template <bool kDecays, int kCount>
RN_DEVICE void update(const Arguments& a, const Rates& r, float (&w)[kCount], float (&g)[kCount], float (&m)[kCount],
                      float (&v)[kCount]) {
#define RN_EACH _Pragma("unroll") for (int i = 0; i < kCount; ++i)
  if (RN_CLIP) RN_EACH g[i] = fminf(fmaxf(__fmul_rn(g[i], r.inverse_scale), -a.max_abs), a.max_abs);
  if (RN_RULE == 3 || RN_RULE == 4) {
    float inverse[kCount];
    RN_EACH {
      float first = __fmul_rn(g[i], r.first), second = __fmul_rn(g[i], r.second);
      if (RN_RULE == 3 && kDecays) {
        const float decay = __fmul_rn(a.weight_decay, w[i]);
        first = __fmaf_rn(a.rest1, decay, first);
        second = __fmaf_rn(a.rest2_root, decay, second);
      }
      m[i] = __fmaf_rn(a.beta1, m[i], first);
      v[i] = __fmaf_rn(second, second, __fmul_rn(a.beta2, v[i]));
    }
    RN_EACH asm volatile("sqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse[i]) : "f"(v[i]));
    RN_EACH inverse[i] = __fmaf_rn(inverse[i], r.root, a.eps);
    RN_EACH asm volatile("rcp.approx.ftz.f32 %0, %0;" : "+f"(inverse[i]));
    RN_EACH {
      if (RN_RULE == 4 && kDecays) w[i] = __fmul_rn(w[i], r.keep);
      w[i] = __fmaf_rn(-r.step, __fmul_rn(m[i], inverse[i]), w[i]);
    }
    return;
  }
  RN_EACH {
    float gradient = RN_CLIP ? g[i] : __fmul_rn(g[i], r.inverse_scale);
    if (kDecays) gradient = __fmaf_rn(a.weight_decay, w[i], gradient);
    if (RN_RULE != 0) {
      m[i] = __fmaf_rn(a.momentum, m[i], gradient);
      gradient = RN_RULE == 2 ? __fmaf_rn(a.momentum, m[i], gradient) : m[i];
    }
    w[i] = __fmaf_rn(-r.lr, gradient, w[i]);
  }
}
static_assert(RN_RULE >= 0 && RN_RULE <= 4, "rule: sgd, momentum, nesterov, adam or adamw");

constexpr bool kHasM = RN_RULE != 0, kHasV = RN_RULE >= 3;

// Element e of a thread in n8 tile j: row +8 for e >= 2, column +1 for odd e.
template <int kColumns, bool kInRegisters>
struct Tile {
  float w[kColumns][4];
  float moment[kInRegisters ? 2 : 1][kInRegisters ? kColumns : 1][4];
  Word g[kColumns][2];
  int layer, row, column;  // of element 0; layer 0: none
  int place, row_step, jump, first_left;  // of the compute weights
  bool stored;
  Word shared;  // moments, if not in registers

  RN_DEVICE void load_moments(int j, float (&m)[4], float (&v)[4]) {
    if (kInRegisters) {
#pragma unroll
      for (int e = 0; e < 4; ++e) m[e] = moment[0][kInRegisters ? j : 0][e], v[e] = moment[kInRegisters ? 1 : 0][kInRegisters ? j : 0][e];
    } else {
      load_shared4(m, shared + j * 4096);
      load_shared4(v, shared + (kColumns + j) * 4096);
    }
  }
  RN_DEVICE void store_moments(int j, const float (&m)[4], const float (&v)[4]) {
    if (kInRegisters) {
#pragma unroll
      for (int e = 0; e < 4; ++e) moment[0][kInRegisters ? j : 0][e] = m[e], moment[kInRegisters ? 1 : 0][kInRegisters ? j : 0][e] = v[e];
    } else {
      store_shared4(shared + j * 4096, m);
      store_shared4(shared + (kColumns + j) * 4096, v);
    }
  }
  RN_DEVICE static float half(const Word (&g)[2], int e) { return e & 1 ? unpack_high(g[e / 2]) : unpack_low(g[e / 2]); }

  // Rounds a sum to the raw fp16 gradient; `flag` remembers a value that is not finite.
  RN_DEVICE Word round(const float (&sum)[kColumns][4], Word flag) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        g[j][h] = pack(sum[j][2 * h], sum[j][2 * h + 1]);
        flag = taint(flag, g[j][h]);
      }
    return flag;
  }

  // What n8 tiles j and j + 1 (if there is one) would become.
  template <int kTiles>
  RN_DEVICE void updated(const Arguments& a, const Rates& r, int j, float (&fresh)[4 * kTiles], float (&m)[4 * kTiles],
                         float (&v)[4 * kTiles]) {
    float gradient[4 * kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      float mt[4], vt[4];
      load_moments(j + t, mt, vt);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        fresh[4 * t + e] = w[j + t][e], gradient[4 * t + e] = half(g[j + t], e);
        m[4 * t + e] = mt[e], v[4 * t + e] = vt[e];
      }
    }
    update<true, 4 * kTiles>(a, r, fresh, gradient, m, v);
  }

  // Masters as fp16, or with kUpdate what they would become, into a set of compute weights. A warp's
  // eight rows of an n8 tile are one 128-byte block.
  template <bool kUpdate>
  RN_DEVICE void propose(const Arguments& a, const Rates& r, Byte* set) {
    if (!stored) return;
    Byte* to = set + place;
    int left = first_left;
    auto write = [&](const float* fresh) {
      *(Word*)to = pack(fresh[0], fresh[1]);
      *(Word*)(to + row_step) = pack(fresh[2], fresh[3]);
      to += 128;
      if (--left == 0) to += jump, left = row_step >> 7;
    };
#pragma unroll
    for (int j = 0; j < kColumns; j += 2) {
      if (!kUpdate) {
        write(w[j]);
        if (j + 1 < kColumns) write(w[j + 1]);
      } else if (j + 1 < kColumns) {
        float fresh[8], m[8], v[8];
        updated<2>(a, r, j, fresh, m, v);
        write(fresh);
        write(fresh + 4);
      } else {
        float fresh[4], m[4], v[4];
        updated<1>(a, r, j, fresh, m, v);
        write(fresh);
      }
    }
  }

  template <int kTiles>
  RN_DEVICE void accept_tiles(const Arguments& a, const Rates& r, int j) {
    float fresh[4 * kTiles], m[4 * kTiles], v[4 * kTiles];
    updated<kTiles>(a, r, j, fresh, m, v);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      float mt[4], vt[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) w[j + t][e] = fresh[4 * t + e], mt[e] = m[4 * t + e], vt[e] = v[4 * t + e];
      store_moments(j + t, mt, vt);
    }
  }
  template <int kFrom, int kTo>
  RN_DEVICE void accept(const Arguments& a, const Rates& r) {
#pragma unroll
    for (int j = kFrom; j + 1 < kTo; j += 2) accept_tiles<2>(a, r, j);
    if ((kTo - kFrom) % 2) accept_tiles<1>(a, r, kTo - 1);
  }

  // Where this thread's elements lie: tile origin (n0, k0) of layer l, 0 for none.
  RN_DEVICE void set_up(const Context& c, int l, int n0, int k0, int columns, int rows, int slab_width) {
    layer = l, row = n0 + (c.warp & 3) * 16 + (c.lane >> 2);
    column = k0 + (c.warp >> 2) * columns + 2 * (c.lane & 3);
    stored = l != 0 && row < rows;
    row_step = slab_width * 16, jump = (rows / 8 - 1) * row_step;
    const int k = column & ~7, in = k % slab_width;
    first_left = (slab_width - in) / 8;
    place = ((k / slab_width * (rows / 8) + row / 8) * (slab_width / 8) + in / 8) * 128 + c.lane * 4;
  }

  // Masters and moments, and back: row-major (out, in) fp32, rows and columns as the model has them.
  RN_DEVICE void load(const Arguments& a) {
    for_each(a, false);
  }
  RN_DEVICE void store(const Arguments& a) {
    for_each(a, true);
  }
  RN_DEVICE void for_each(const Arguments& a, bool back) {
    const int rows = layer ? tables.model[layer] : 0, columns = layer ? tables.model[layer - 1] : 0;
    float* masters = (float*)(a.state + a.weight[layer]);
    float* first = (float*)(a.state + a.weight_m[layer]);
    float* second = (float*)(a.state + a.weight_v[layer]);
    unsigned short* rounded = (unsigned short*)(a.state + a.weight_half[layer]);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      float m[4] = {0, 0, 0, 0}, v[4] = {0, 0, 0, 0};
      if (back) load_moments(j, m, v);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int n = row + e / 2 * 8, k = column + 8 * j + (e & 1);
        const bool real = n < rows && k < columns;
        const long long at = (long long)n * columns + k;
        if (back) {
          if (!real) continue;
          masters[at] = w[j][e];
          if (kHasM) first[at] = m[e];
          if (kHasV) second[at] = v[e];
          rounded[at] = (unsigned short)pack(w[j][e], 0.0f);
        } else {
          w[j][e] = real ? masters[at] : 0.0f;
          if (kHasM) m[e] = real ? first[at] : 0.0f;
          if (kHasV) v[e] = real ? second[at] : 0.0f;
        }
      }
      if (!back) store_moments(j, m, v);
    }
  }
};

}  // namespace mlp
}  // namespace rn
