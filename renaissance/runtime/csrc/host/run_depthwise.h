// The host twins of the operations that a depthwise convolution shares its passes with.
#pragma once

#include "depthwise_operations.h"

namespace rn {

void run(const DepthwiseNormForward& op);

}  // namespace rn
