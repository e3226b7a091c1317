// Philox4x32-10: random numbers as a pure function of a key and a counter (Salmon et al., 2011).
#pragma once

#include <cstddef>
#include <cstdint>


namespace rn {

struct PhiloxBlock {
  uint32_t word[4];
};

inline PhiloxBlock philox4x32(PhiloxBlock counter, uint64_t key) {
  uint32_t low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t first = static_cast<uint64_t>(0xD2511F53u) * counter.word[0];
    uint64_t second = static_cast<uint64_t>(0xCD9E8D57u) * counter.word[2];
    counter = {{static_cast<uint32_t>(second >> 32) ^ counter.word[1] ^ low,
                static_cast<uint32_t>(second),
                static_cast<uint32_t>(first >> 32) ^ counter.word[3] ^ high,
                static_cast<uint32_t>(first)}};
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  return counter;
}

inline float uniform_of(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// Uniform numbers in [0, 1): element i is word i % 4 of the block at counter (i / 4, sample,
// operation, step).
void philox_uniform(float* out, size_t count, uint64_t key, uint32_t sample, uint32_t operation,
                    uint32_t step);

}  // namespace rn
