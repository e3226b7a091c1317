// What it costs on a Hopper GPU to hand data from one block to others inside one persistent kernel.
// These figures decide the shape of the persistent MLP kernel (notes_mlp_persistent.md).
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a exchange_latency.cu -o exchange_latency
#include <cstdint>
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(call)                                                                        \
  do {                                                                                     \
    cudaError_t status_ = (call);                                                          \
    if (status_ != cudaSuccess) {                                                          \
      printf("%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status_));    \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)

__device__ uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ void barrier_init(uint64_t* b, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}
__device__ void barrier_expect(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
__device__ void barrier_wait(uint64_t* b, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nL_%=:\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%0], %1;\n@!p bra L_%=;\n}"
      ::"r"(shared_address(b)), "r"(parity) : "memory");
}
__device__ void bulk_load(void* dst, const void* src, uint32_t bytes, uint64_t* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(shared_address(dst)), "l"(src), "r"(bytes), "r"(shared_address(b)) : "memory");
}
__device__ void bulk_multicast(void* dst, const void* src, uint32_t bytes, uint64_t* b, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
      ::"r"(shared_address(dst)), "l"(src), "r"(bytes), "r"(shared_address(b)), "h"(mask) : "memory");
}
__device__ uint32_t cluster_rank() { uint32_t r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ uint32_t cluster_size() { uint32_t r; asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(r)); return r; }
__device__ uint32_t remote(uint32_t a, uint32_t rank) {
  uint32_t r; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(rank)); return r;
}
__device__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ void fence_async() { asm volatile("fence.proxy.async;" ::: "memory"); }
__device__ void signal(unsigned* c) { asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(c) : "memory"); }
__device__ unsigned poll(unsigned* c) {
  unsigned v; asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(c) : "memory"); return v;
}

extern __shared__ __align__(1024) uint8_t arena[];

__global__ void __launch_bounds__(256, 1) grid_barrier(unsigned* counter, uint4* data, int iters, int write) {
  for (int i = 0; i < iters; ++i) {
    if (write) for (int j = 0; j < write; ++j)
      data[(blockIdx.x * write + j) * 256 + threadIdx.x] = make_uint4(i, j, 0, 0);
    __syncthreads();
    if (threadIdx.x == 0) {
      signal(counter);
      while (poll(counter) < gridDim.x * (i + 1)) {}
    }
    __syncthreads();
  }
}

// Each block reads `bytes` through bulk copies of `piece`, from one of `distinct` places.
__global__ void __launch_bounds__(256, 1) bulk_read(const uint8_t* src, int bytes, int piece, int distinct, int iters, int lanes) {
  __shared__ uint64_t bar;
  if (threadIdx.x == 0) barrier_init(&bar, 1);
  __syncthreads();
  const uint8_t* from = src + (size_t)(blockIdx.x % distinct) * bytes;
  for (int i = 0; i < iters; ++i) {
    if (threadIdx.x == 0) barrier_expect(&bar, bytes);
    if (threadIdx.x < 32) {
      __syncwarp();
      if (threadIdx.x < lanes)
        for (int o = threadIdx.x * piece; o < bytes; o += lanes * piece) bulk_load(arena + o, from + o, piece, &bar);
    }
    barrier_wait(&bar, i & 1);
    __syncthreads();
  }
}

// mode 0: cluster barrier only. 1: own tile to global, multicast to all. 2: tile to global, cluster barrier,
// each block loads all tiles. 3: plain stores into every peer, cluster barrier. 4: st.async. 5: bulk copies
// from own shared memory to every peer. 6: no cluster: counter of the group in global memory, then bulk load.
// 7: like 2 but the tiles are read with multicast by their owner after the barrier (4 KB each).
__global__ void __launch_bounds__(256, 1) exchange(uint8_t* scratch, unsigned* counters, int tile, int iters, int mode, int group) {
  __shared__ uint64_t bar[2];
  const int t = threadIdx.x;
  const bool clustered = mode != 6;
  const uint32_t size = clustered ? cluster_size() : group;
  const uint32_t rank = clustered ? cluster_rank() : blockIdx.x % group;
  uint8_t* mine = scratch + (size_t)(blockIdx.x / size) * size * 8192 * 2;
  if (t == 0) { barrier_init(&bar[0], 1); barrier_init(&bar[1], 1); asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
  if (mode != 6) cluster_sync(); else __syncthreads();
  for (int i = 0; i < iters; ++i) {
    const int parity = i & 1, phase = (i >> 1) & 1;
    uint8_t* buffer = arena + parity * size * 4096;
    uint8_t* out = mine + (size_t)parity * size * 8192;
    uint64_t* b = &bar[parity];
    if (mode == 0) { cluster_sync(); continue; }
    if (t == 0 && mode != 3) barrier_expect(b, size * tile);
    uint4 v = make_uint4(i, t, rank, 0);
    if (mode == 1 || mode == 2 || mode == 6 || mode == 7) {
      if (t * 16 < tile) *(uint4*)(out + rank * tile + t * 16) = v;
      fence_async();
    }
    if (mode == 1) {
      __syncthreads();
      if (t == 0) bulk_multicast(buffer + rank * tile, out + rank * tile, tile, b, (uint16_t)((1u << size) - 1));
    } else if (mode == 2 || mode == 7) {
      __threadfence();
      cluster_sync();
      fence_async();
      if (t == 0 && mode == 2) bulk_load(buffer, out, size * tile, b);
      if (t == 0 && mode == 7) bulk_multicast(buffer + rank * tile, out + rank * tile, tile, b, (uint16_t)((1u << size) - 1));
    } else if (mode == 3) {
      if (t * 16 < tile)
        for (uint32_t r = 0; r < size; ++r) {
          uint32_t a = remote(shared_address(buffer + rank * tile + t * 16), (r + rank) % size);
          asm volatile("st.shared::cluster.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(a), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
        }
      cluster_sync();
    } else if (mode == 4) {
      if (t * 16 < tile)
        for (uint32_t r = 0; r < size; ++r) {
          uint32_t p = (r + rank) % size;
          uint32_t a = remote(shared_address(buffer + rank * tile + t * 16), p), m = remote(shared_address(b), p);
          asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1,%2,%3,%4}, [%5];"
                       ::"r"(a), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(m) : "memory");
        }
    } else if (mode == 5) {
      uint8_t* stage = arena + 2 * size * 4096;
      if (t * 16 < tile) *(uint4*)(stage + t * 16) = v;
      fence_async();
      __syncthreads();
      if (t < size) {
        uint32_t p = (t + rank) % size;
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     ::"r"(remote(shared_address(buffer + rank * tile), p)), "r"(shared_address(stage)), "r"(tile),
                     "r"(remote(shared_address(b), p)) : "memory");
      }
    } else if (mode == 6) {
      __syncthreads();
      if (t == 0) {
        unsigned* c = counters + (blockIdx.x / group) * 32;
        signal(c);
        while (poll(c) < size * (i + 1)) {}
        fence_async();
        bulk_load(buffer, out, size * tile, b);
      }
    }
    if (mode != 3) barrier_wait(b, phase);
    uint32_t seen = *(volatile uint32_t*)(buffer + ((rank + 1) % size) * tile + (t * 16) % tile);
    if (seen != (uint32_t)i) { printf("mode %d iteration %d saw %u\n", mode, i, seen); asm volatile("trap;"); }
    __syncthreads();
  }
  if (mode != 6) cluster_sync();
}

template <class Launch> float microseconds(Launch launch, int iters) {
  cudaEvent_t a, b; CHECK(cudaEventCreate(&a)); CHECK(cudaEventCreate(&b));
  float best = 1e9;
  for (int r = 0; r < 4; ++r) {
    CHECK(cudaEventRecord(a)); launch(); CHECK(cudaGetLastError()); CHECK(cudaEventRecord(b)); CHECK(cudaEventSynchronize(b));
    float ms; CHECK(cudaEventElapsedTime(&ms, a, b)); if (ms < best) best = ms;
  }
  return best * 1000 / iters;
}

int main() {
  uint8_t* scratch; unsigned* counters;
  CHECK(cudaMalloc(&scratch, 64 << 20)); CHECK(cudaMemset(scratch, 1, 64 << 20));
  CHECK(cudaMalloc(&counters, 1 << 20));
  const int big = 210 * 1024;
  CHECK(cudaFuncSetAttribute(exchange, cudaFuncAttributeMaxDynamicSharedMemorySize, big));
  CHECK(cudaFuncSetAttribute(bulk_read, cudaFuncAttributeMaxDynamicSharedMemorySize, big));
  CHECK(cudaFuncSetAttribute(exchange, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  int most[17] = {};
  for (int size : {1, 2, 4, 6, 7, 8, 9, 10, 12, 14, 15, 16}) {
    cudaLaunchConfig_t config = {}; cudaLaunchAttribute attribute = {};
    config.gridDim = dim3(size * 8); config.blockDim = dim3(256); config.dynamicSmemBytes = big;
    attribute.id = cudaLaunchAttributeClusterDimension; attribute.val.clusterDim = {(unsigned)size, 1, 1};
    config.attrs = &attribute; config.numAttrs = 1;
    int n = -1; cudaError_t e = cudaOccupancyMaxActiveClusters(&n, exchange, &config);
    most[size] = n;
    printf("cluster size %2d: %d active clusters, %d blocks (%s)\n", size, n, n * size, cudaGetErrorString(e)); cudaGetLastError();
  }
  const int iters = 1000;
  for (int write : {0, 1, 4, 16})
    printf("grid barrier, 132 blocks, %2d x 16 B written by each thread before: %.3f us\n", write,
           microseconds([&] { cudaMemsetAsync(counters, 0, 4); grid_barrier<<<132, 256>>>(counters, (uint4*)scratch, iters, write); }, iters));
  for (int bytes : {16384, 65536, 131072, 196608})
    for (int piece : {512, 1024, 2048, 8192, 16384})
      for (int distinct : {16, 132}) {
        float us = microseconds([&] { bulk_read<<<132, 256, big>>>(scratch, bytes, piece, distinct, iters, 32); }, iters);
        printf("bulk read %6d B in pieces of %5d, %3d places: %.3f us, %.1f B/ns per SM, %.2f TB/s\n", bytes, piece, distinct, us,
               bytes / us / 1000, bytes / us * 132 / 1e6);
      }
  const char* names[] = {"cluster barrier alone", "global + multicast", "global + barrier + read all", "stores to peers + barrier",
                         "st.async to peers", "bulk to peers", "global + group counter + read all", "global + barrier + multicast"};
  for (int size : {8, 16})
    for (int mode = 0; mode < 8; ++mode)
      for (int tile : {512, 2048, 4096}) {
        if (mode == 0 && tile != 512) continue;
        if (mode != 6 && most[size] < 1) continue;
        int clusters = most[size] > 0 ? most[size] : 112 / size;
        cudaLaunchConfig_t config = {}; cudaLaunchAttribute attribute = {};
        config.gridDim = dim3(size * clusters); config.blockDim = dim3(256); config.dynamicSmemBytes = big;
        attribute.id = cudaLaunchAttributeClusterDimension; attribute.val.clusterDim = {(unsigned)size, 1, 1};
        config.attrs = &attribute; config.numAttrs = mode == 6 ? 0 : 1;
        float us = microseconds([&] { cudaMemsetAsync(counters, 0, 65536);
          CHECK(cudaLaunchKernelEx(&config, exchange, scratch, counters, tile, iters, mode, size)); }, iters);
        printf("exchange in groups of %2d x %d, tile %4d B: %-36s %.3f us\n", size, clusters, tile, names[mode], us);
      }
  return 0;
}
