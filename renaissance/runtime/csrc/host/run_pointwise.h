// The host twin of the joined 1x1 convolution.
#pragma once

#include "host/run_maps.h"
#include "pointwise_operations.h"

namespace rn {

void run(const PointwiseForward& op);

}  // namespace rn
