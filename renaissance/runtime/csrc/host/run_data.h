// The host twin of what makes batches.
#pragma once

#include "data_operations.h"

namespace rn {

void run(const AugmentBatch& op);

}  // namespace rn
