// A chain of transforms as integers, written by renaissance/data/chain.py, checked here once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/kinds.h"

namespace rn::data {

constexpr int32_t kMostSide = 1024;  // fixed-point positions of larger pictures would overflow
constexpr int32_t kMostChannels = 4;

struct Operation {
  Kind kind;
  uint32_t id;  // the operation word of its random numbers
  bool last;    // flips and erasures at the end of the chain are left to the normalisation
  std::vector<int32_t> args;
  std::vector<int32_t> table;
  int32_t in_h, in_w, out_h, out_w;
};

struct Plan {
  int32_t h, w, c;          // of the pictures going in
  int32_t out_h, out_w;     // of the pictures coming out
  int64_t most_pixels;      // of any picture on the way, borders included
  std::vector<Operation> operations;

  // Reads words; an error leaves the plan unusable and says what is wrong.
  std::string parse(const int32_t* words, int64_t count);
};

}  // namespace rn::data
