// The CUDA driver, opened at run time; and the kernels that Python compiled, by key.
#pragma once

#include <cstdint>
#include <string>

namespace rn {

struct Launch {
  int64_t key, grid_x, grid_y, grid_z, threads, shared_bytes;
};

// Enqueues a kernel whose only parameter is the record. Empty, or what went wrong.
std::string launch_kernel(const Launch& launch, void* record, void* stream);

}  // namespace rn
