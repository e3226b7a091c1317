// The host twin of many training steps of an MLP.
#pragma once

#include "mlp_operations.h"

namespace rn {

void run(const MlpTrainSteps& op);

}  // namespace rn
