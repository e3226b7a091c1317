// Instructions the persistent MLP kernel is written in: barriers, bulk copies, matrix fragments.
#pragma once

namespace rn {
namespace mlp {

typedef unsigned char Byte;
typedef unsigned int Word;
typedef unsigned long long Long;

#define RN_DEVICE __device__ __forceinline__

RN_DEVICE Word shared_address(const void* p) { return (Word)__cvta_generic_to_shared(p); }

// ---- mbarriers in shared memory
RN_DEVICE void barrier_init(Word b, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(count) : "memory");
}
RN_DEVICE void barrier_arrive(Word b) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(b) : "memory");
}
RN_DEVICE void barrier_expect(Word b, Word bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes)
               : "memory");
}
RN_DEVICE void barrier_wait(Word b, Word parity) {
  asm volatile(
      "{\n.reg .pred done;\nWAIT_%=:\n"
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n@!done bra WAIT_%=;\n}"
      ::"r"(b), "r"(parity) : "memory");
}

// ---- bulk copies
RN_DEVICE void bulk_load(Word to, const void* from, Word bytes, Word barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
// The same bytes to the same place of every block of the cluster.
RN_DEVICE void bulk_multicast(Word to, const void* from, Word bytes, Word barrier, Word blocks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;"
      ::"r"(to), "l"(from), "r"(bytes), "r"(barrier), "h"((unsigned short)blocks) : "memory");
}
// Between ordinary accesses and those of the copy engine to the same memory. (The unqualified fence
// would wait for every earlier store to be seen by the whole device.)
RN_DEVICE void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
RN_DEVICE void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- between blocks
RN_DEVICE Word cluster_rank() { Word r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
RN_DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
RN_DEVICE void signal(Long* counter, Long amount) {
  asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(counter), "l"(amount) : "memory");
}
RN_DEVICE Long poll(const Long* counter) {
  Long v;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(counter) : "memory");
  return v;
}
RN_DEVICE Long wait_for(const Long* counter, Word arrivals) {
  Long v = poll(counter);
  while ((Word)v < arrivals) v = poll(counter);
  return v;
}

// ---- the 256 threads that compute
RN_DEVICE void team_sync() { asm volatile("barrier.cta.sync 1, 256;" ::: "memory"); }
RN_DEVICE bool team_any(bool mine) {
  Word any;
  asm volatile(
      "{\n.reg .pred in, out;\nsetp.ne.u32 in, %1, 0;\nbarrier.cta.red.or.pred out, 1, 256, in;\n"
      "selp.u32 %0, 1, 0, out;\n}" : "=r"(any) : "r"((Word)mine) : "memory");
  return any;
}

// ---- fp16 pairs
RN_DEVICE Word pack(float low, float high) {
  Word r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
RN_DEVICE float unpack_low(Word p) {
  float f;
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.f32.f16 %0, l;\n}" : "=f"(f) : "r"(p));
  return f;
}
RN_DEVICE float unpack_high(Word p) {
  float f;
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.f32.f16 %0, h;\n}" : "=f"(f) : "r"(p));
  return f;
}
// flag + 0 * p: not finite once any p was not.
RN_DEVICE Word taint(Word flag, Word p) {
  asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(flag) : "r"(p), "r"(0u));
  return flag;
}

// ---- matrix fragments
RN_DEVICE void load_blocks(Word (&r)[4], Word address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
RN_DEVICE void load_blocks_transposed(Word (&r)[4], Word address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
RN_DEVICE void load_two_transposed(Word& a, Word& b, Word address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(a), "=r"(b) : "r"(address) : "memory");
}
RN_DEVICE Word transposed(Word p) {
  Word r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(p));
  return r;
}
RN_DEVICE void multiply_add(float (&d)[4], const Word (&a)[4], Word b0, Word b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- plain memory
RN_DEVICE float load_shared(Word a) {
  float f;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(f) : "r"(a) : "memory");
  return f;
}
RN_DEVICE Word load_shared_word(Word a) {
  Word w;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(w) : "r"(a) : "memory");
  return w;
}
RN_DEVICE int4 load_shared_words(Word a) {
  int4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(a) : "memory");
  return v;
}
RN_DEVICE void store_shared(Word a, float f) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(a), "f"(f) : "memory");
}
RN_DEVICE void store_shared_word(Word a, Word w) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(a), "r"(w) : "memory");
}
RN_DEVICE void load_shared4(float (&f)[4], Word a) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(f[0]), "=f"(f[1]), "=f"(f[2]), "=f"(f[3]) : "r"(a) : "memory");
}
RN_DEVICE void store_shared4(Word a, const float (&f)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(a), "f"(f[0]), "f"(f[1]), "f"(f[2]), "f"(f[3])
               : "memory");
}
// Past the first-level cache: written by other blocks within this launch.
RN_DEVICE float load_fresh(const float* p) {
  float f;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(f) : "l"(p) : "memory");
  return f;
}

}  // namespace mlp
}  // namespace rn
