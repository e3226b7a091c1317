#include "host/export.h"
#include "host/philox.h"

namespace rn {

void philox_uniform(float* out, size_t count, uint64_t key, uint32_t sample, uint32_t operation,
                    uint32_t step) {
  for (size_t first = 0; first < count; first += 4) {
    PhiloxBlock block =
        philox4x32({{static_cast<uint32_t>(first / 4), sample, operation, step}}, key);
    for (size_t lane = 0; lane < 4 && first + lane < count; ++lane)
      out[first + lane] = uniform_of(block.word[lane]);
  }
}

}  // namespace rn

// Blocks of four words for count counters of four words each.
RN_EXPORT void rn_philox4x32(const uint32_t* counters, size_t count, uint64_t key, uint32_t* words) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t* c = counters + 4 * i;
    rn::PhiloxBlock block = rn::philox4x32({{c[0], c[1], c[2], c[3]}}, key);
    for (int lane = 0; lane < 4; ++lane) words[4 * i + lane] = block.word[lane];
  }
}

RN_EXPORT void rn_philox_uniform(float* out, size_t count, uint64_t key, uint32_t sample,
                                 uint32_t operation, uint32_t step) {
  rn::philox_uniform(out, count, key, sample, operation, step);
}
