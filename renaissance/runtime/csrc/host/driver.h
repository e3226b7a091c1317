// The CUDA driver, opened at run time; and the kernels that Python compiled, by key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rn {

struct Launch {
  int64_t key, grid_x, grid_y, grid_z, threads, shared_bytes;
};

// Enqueues a kernel whose only parameter is the record. Empty, or what went wrong.
std::string launch_kernel(const Launch& launch, void* record, void* stream);

// Enqueues zeroing of device memory. Empty, or what went wrong.
std::string clear_memory(void* memory, size_t bytes, void* stream);

}  // namespace rn
