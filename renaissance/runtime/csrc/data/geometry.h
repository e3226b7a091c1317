// Geometry of small uint8 pictures (HWC): every result is defined in integers.
#pragma once

#include <cstdint>

#include "data/draws.h"
#include "data/plan.h"

namespace rn::data {

// What the normalisation still has to do to a picture.
struct Finish {
  bool flip = false;
  bool erase = false;
  int32_t top = 0, left = 0, height = 0, width = 0;  // of the erased rectangle, after the flip
};

// Runs a chain on one picture.
//
// `scratch` holds 3 * plan.most_pixels * c bytes. Returns the result: in `scratch`, or `image`.
// Flips and erasures at the end are not carried out but described in `finish`.
const uint8_t* transform(const Plan& plan, const Origin& origin, const uint8_t* image,
                         uint8_t* scratch, Finish* finish);

}  // namespace rn::data
