// The plans that were built in this process, and how one is executed.
#pragma once

#include "cudnn/engines.h"

namespace rn::cudnn {

// A handle on the current device to build plans with, lent to one thread at a time and used again.
class BuildingHandle {
 public:
  explicit BuildingHandle(int device);
  ~BuildingHandle();
  BuildingHandle(const BuildingHandle&) = delete;

  void* raw() const { return raw_; }

 private:
  int device_;
  void* raw_ = nullptr;
};

// Enqueues a plan on a stream; pointers in the order of the graph's tensors. The device's context is
// current. Throws a Failure.
void execute(const Plan& plan, int device, void* stream, const std::vector<void*>& pointers,
             void* workspace);

void keep(int64_t key, int device, Plan plan);

}  // namespace rn::cudnn
