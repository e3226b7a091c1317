// Random parameters of a transform: integers only, so that every implementation agrees bit by bit.
#pragma once

#include <cstdint>

#include "host/philox.h"

namespace rn::data {

// Where a sample's random numbers come from: the key and the three fixed counter words.
struct Origin {
  uint64_t seed;
  uint32_t sample;
  uint32_t epoch;
};

inline PhiloxBlock draw(const Origin& origin, uint32_t operation, uint32_t block) {
  return philox4x32({{block, origin.sample, operation, origin.epoch}}, origin.seed);
}

// floor(u * n) for u = (word >> 8) / 2^24, exact for n < 2^19: the product is split in two halves.
inline int32_t bounded(uint32_t word, int32_t n) {
  uint32_t fraction = word >> 8, count = static_cast<uint32_t>(n);
  return static_cast<int32_t>(((fraction >> 12) * count + (((fraction & 0xFFFu) * count) >> 12)) >>
                              12);
}

// Whether u < p, for threshold = ceil(p * 2^24).
inline bool happens(uint32_t word, int32_t threshold) {
  return (word >> 8) < static_cast<uint32_t>(threshold);
}

// One of the 4096 entries of a table of parameters.
inline uint32_t entry_of(uint32_t word) { return word >> 20; }

}  // namespace rn::data
