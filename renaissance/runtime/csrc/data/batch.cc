// What Python calls: plans, normalisers and pools as handles, and a batch of samples in one call.
#include <chrono>
#include <cstring>
#include <new>
#include <string>
#include <thread>

#include "data/normalize.h"
#include "data/plan.h"
#include "data/pool.h"
#include "host/export.h"

namespace {

using namespace rn::data;

constexpr int64_t kCacheBytes = 8 << 20;  // batches beyond this are written around the cache

void report(const std::string& text, char* message, int64_t room) {
  if (room <= 0) return;
  std::strncpy(message, text.c_str(), static_cast<size_t>(room) - 1);
  message[room - 1] = '\0';
}

// For tests: workers pause for a time that depends on sample and epoch, so that their order varies.
void pause(uint32_t most_microseconds, const Origin& origin) {
  if (most_microseconds == 0) return;
  const rn::PhiloxBlock block = draw(origin, 0x7E577E57u, 0);
  std::this_thread::sleep_for(std::chrono::microseconds(block.word[0] % most_microseconds));
}

}  // namespace

// Counts up whenever a signature below or the words of a plan change their meaning.
RN_EXPORT int32_t rn_data_version() { return 2; }

RN_EXPORT int32_t rn_data_best_isa() { return best_isa(); }

RN_EXPORT void* rn_data_plan_new(const int32_t* words, int64_t count, char* message, int64_t room) {
  try {
    Plan* plan = new Plan;
    const std::string problem = plan->parse(words, count);
    if (problem.empty()) return plan;
    delete plan;
    report(problem, message, room);
  } catch (const std::exception& error) {
    report(error.what(), message, room);
  }
  return nullptr;
}

RN_EXPORT void rn_data_plan_free(void* plan) { delete static_cast<Plan*>(plan); }

// table: [channels][256] of fp32, or fp16 if `half`; scales, biases: [channels], see normalize.h.
RN_EXPORT void* rn_data_normalizer_new(const void* table, const double* scales,
                                       const double* biases, int32_t channels,
                                       int32_t out_channels, int32_t half, int32_t isa) {
  try {
    return new Normalizer(table, scales, biases, channels, out_channels, half != 0,
                          static_cast<Isa>(isa));
  } catch (const std::exception&) {
    return nullptr;
  }
}

RN_EXPORT void rn_data_normalizer_free(void* normalizer) {
  delete static_cast<Normalizer*>(normalizer);
}

// The instruction set it really uses: the scalar one if the vector arithmetic would miss the table.
RN_EXPORT int32_t rn_data_normalizer_isa(const void* normalizer) {
  return static_cast<const Normalizer*>(normalizer)->isa;
}

RN_EXPORT void* rn_data_pool_new(int32_t workers, const int32_t* processors,
                                 int32_t processor_count) {
  try {
    return new Pool(workers, processors, processor_count);
  } catch (const std::exception&) {
    return nullptr;
  }
}

RN_EXPORT void rn_data_pool_free(void* pool) { delete static_cast<Pool*>(pool); }

// Normalises one [h, w, channels] picture, with flip and an erased rectangle (height 0: none);
// `stream` writes around the cache.
RN_EXPORT void rn_data_normalize(const void* normalizer, const uint8_t* image, int32_t h, int32_t w,
                                 int32_t flip, int32_t top, int32_t left, int32_t height,
                                 int32_t width, int32_t stream, void* out) {
  const Finish finish{flip != 0, height > 0, top, left, height, width};
  static_cast<const Normalizer*>(normalizer)->run(image, h, w, finish, stream != 0, out);
}

// Transforms and normalises the samples `ids` of `images` [n, h, w, c] into consecutive places of
// `out`. With no normaliser the result is uint8, flipped but not erased. Labels go along if given.
// Returns 0, or 1 and the offending position if an id is out of range (nothing is written then).
RN_EXPORT int32_t rn_data_batch(void* pool, const void* plan_handle, const void* normalizer_handle,
                                const uint8_t* images, const int32_t* labels, int64_t n,
                                const int64_t* ids, int64_t count, uint64_t seed, uint32_t epoch,
                                uint32_t delay_microseconds, void* out, int32_t* out_labels,
                                int64_t* offender) {
  const Plan& plan = *static_cast<const Plan*>(plan_handle);
  const Normalizer* normalizer = static_cast<const Normalizer*>(normalizer_handle);
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= n) {
      *offender = i;
      return 1;
    }
  }
  const int64_t in_bytes = int64_t{plan.h} * plan.w * plan.c;
  const int64_t pixels = int64_t{plan.out_h} * plan.out_w;
  const int64_t pixel_bytes =
      normalizer ? normalizer->out_channels * normalizer->element_bytes() : plan.c;
  const int64_t out_bytes = pixels * pixel_bytes;
  const bool stream = count * out_bytes > kCacheBytes;
  Pool& workers = *static_cast<Pool*>(pool);
  workers.run([&](int32_t worker) {
    thread_local std::vector<uint8_t> scratch;
    if (worker >= count) return;
    scratch.resize(static_cast<size_t>(3 * plan.most_pixels * plan.c));
    for (int64_t i = worker; i < count; i += workers.size()) {
      const Origin origin{seed, static_cast<uint32_t>(ids[i]), epoch};
      pause(delay_microseconds, origin);
      Finish finish;
      const uint8_t* image =
          transform(plan, origin, images + ids[i] * in_bytes, scratch.data(), &finish);
      uint8_t* place = static_cast<uint8_t*>(out) + i * out_bytes;
      if (normalizer) {
        normalizer->run(image, plan.out_h, plan.out_w, finish, stream, place);
      } else if (!finish.flip) {
        std::memcpy(place, image, static_cast<size_t>(out_bytes));
      } else {
        for (int64_t p = 0; p < pixels; ++p) {
          const int64_t y = p / plan.out_w, x = plan.out_w - 1 - p % plan.out_w;
          std::memcpy(place + p * plan.c, image + (y * plan.out_w + x) * plan.c, plan.c);
        }
      }
      if (labels) out_labels[i] = labels[ids[i]];
    }
  });
  return 0;
}
