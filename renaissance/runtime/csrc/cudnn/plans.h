// The plans that were built in this process, and how one is executed.
#pragma once

#include "cudnn/engines.h"

namespace rn::cudnn {

// The calling thread's handle on the current device, for building; made on first use.
void* building_handle(int device);

// Enqueues a plan on a stream; pointers in the order of the graph's tensors. The device's context is
// current. Throws a Failure.
void execute(const Plan& plan, int device, void* stream, const std::vector<void*>& pointers,
             void* workspace);

void keep(int64_t key, int device, Plan plan);

}  // namespace rn::cudnn
