// Opens libcuda at run time, so that one library serves every CUDA version and machines without one.
// The few declarations below are the driver's stable C interface; its header needs a CUDA toolkit.
#include "host/driver.h"

#include <dlfcn.h>

#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "host/export.h"

namespace rn {
namespace {

// Numbers of attributes in the interface.
constexpr int kMaxDynamicSharedBytes = 8, kLargeClusters = 14, kClusterDimension = 4;

struct LaunchAttribute {
  int id, padding;
  unsigned value[16];
};

struct LaunchConfiguration {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned count;
};

struct Driver {
  int (*init)(unsigned);
  int (*device_get)(int*, int);
  int (*context_retain)(void**, int);
  int (*context_push)(void*);
  int (*context_pop)(void**);
  int (*library_load)(void**, const void*, void*, void*, unsigned, void*, void*, unsigned);
  int (*library_kernel)(void**, void*, const char*);
  int (*kernel_function)(void**, void*);
  int (*kernel_set_attribute)(int, int, void*, int);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**);
  int (*clear)(unsigned long long, unsigned char, size_t, void*);
  int (*clusters)(int*, void*, const LaunchConfiguration*);
  int (*host_register)(void*, size_t, unsigned);
  int (*host_unregister)(void*);
  int (*error_string)(int, const char**);
  std::string problem;
};

template <class Function>
void find(void* library, const char* name, Function& function, std::string& problem) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function && problem.empty())
    problem = std::string("the CUDA driver is too old: it has no ") + name;
}

Driver open_driver() {
  Driver driver{};
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    driver.problem = "no CUDA driver: libcuda.so.1 cannot be opened";
    return driver;
  }
  find(library, "cuInit", driver.init, driver.problem);
  find(library, "cuDeviceGet", driver.device_get, driver.problem);
  find(library, "cuDevicePrimaryCtxRetain", driver.context_retain, driver.problem);
  find(library, "cuCtxPushCurrent_v2", driver.context_push, driver.problem);
  find(library, "cuCtxPopCurrent_v2", driver.context_pop, driver.problem);
  find(library, "cuLibraryLoadData", driver.library_load, driver.problem);
  find(library, "cuLibraryGetKernel", driver.library_kernel, driver.problem);
  find(library, "cuKernelGetFunction", driver.kernel_function, driver.problem);
  find(library, "cuKernelSetAttribute", driver.kernel_set_attribute, driver.problem);
  find(library, "cuLaunchKernel", driver.launch, driver.problem);
  std::string optional;  // asked for only where clusters are launched
  find(library, "cuOccupancyMaxActiveClusters", driver.clusters, optional);
  find(library, "cuMemHostRegister_v2", driver.host_register, driver.problem);
  find(library, "cuMemHostUnregister", driver.host_unregister, driver.problem);
  find(library, "cuMemsetD8Async", driver.clear, driver.problem);
  find(library, "cuGetErrorString", driver.error_string, driver.problem);
  return driver;
}

const Driver& driver() {
  static const Driver opened = open_driver();
  return opened;
}

std::string failure(const char* call, int code) {
  const char* text = nullptr;
  driver().error_string(code, &text);
  return std::string(call) + " failed: " + (text ? text : std::to_string(code));
}

// What a launch takes of the device; with cluster > 1, all clusters must run at once.
struct Residency {
  int threads, shared_bytes, cluster, clusters;
};

std::shared_mutex kernels_mutex;
std::unordered_map<int64_t, void*> kernels;

void* kernel_of(int64_t key) {
  std::shared_lock lock(kernels_mutex);
  auto found = kernels.find(key);
  return found == kernels.end() ? nullptr : found->second;
}

// Whether all clusters of a kernel whose blocks wait for each other run at once.
std::string check_clusters(void* kernel, const Residency& r, int device) {
  const Driver& cuda = driver();
  if (!cuda.clusters) return "the CUDA driver is too old for clusters";
  int code = cuda.kernel_set_attribute(kLargeClusters, 1, kernel, device), fit = 0;
  if (code) return failure("cuKernelSetAttribute", code);
  unsigned size = static_cast<unsigned>(r.cluster), count = static_cast<unsigned>(r.clusters);
  LaunchAttribute dimension = {kClusterDimension, 0, {size, 1, 1}};
  LaunchConfiguration wanted = {{size * count, 1, 1}, {static_cast<unsigned>(r.threads), 1, 1},
                                static_cast<unsigned>(r.shared_bytes), nullptr, &dimension, 1};
  if ((code = cuda.clusters(&fit, kernel, &wanted)))
    return failure("cuOccupancyMaxActiveClusters", code);
  if (fit >= r.clusters) return "";
  return "the device runs " + std::to_string(fit) + " clusters of " + std::to_string(r.cluster) +
         " blocks at once, expected " + std::to_string(r.clusters);
}

// Runs `work` within a device's context.
template <class Work>
std::string within_context(int ordinal, Work work) {
  const Driver& cuda = driver();
  int device = 0, code = cuda.device_get(&device, ordinal);
  if (code) return failure("cuDeviceGet", code);
  void *context = nullptr, *popped = nullptr;
  if ((code = cuda.context_retain(&context, device)))
    return failure("cuDevicePrimaryCtxRetain", code);
  if ((code = cuda.context_push(context))) return failure("cuCtxPushCurrent", code);
  std::string problem = work(device);
  cuda.context_pop(&popped);
  return problem;
}

// Loads the kernel into the device's context now, so that no launch has to.
std::string prepare(void* kernel, const Residency& r, int ordinal) {
  return within_context(ordinal, [&](int device) -> std::string {
    const Driver& cuda = driver();
    void* function = nullptr;
    if (int code = cuda.kernel_function(&function, kernel))
      return failure("cuKernelGetFunction", code);
    if (int code = cuda.kernel_set_attribute(kMaxDynamicSharedBytes, r.shared_bytes, kernel, device))
      return failure("cuKernelSetAttribute", code);
    return r.cluster > 1 ? check_clusters(kernel, r, device) : "";
  });
}

std::string open_for_use() {
  if (!driver().problem.empty()) return driver().problem;
  const int code = driver().init(0);
  return code ? failure("cuInit", code) : "";
}

std::string load(int64_t key, const void* image, const char* name, const Residency& r, int ordinal) {
  if (std::string problem = open_for_use(); !problem.empty()) return problem;
  const Driver& cuda = driver();
  void* kernel = kernel_of(key);
  if (!kernel) {
    void* library = nullptr;
    if (int code = cuda.library_load(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0))
      return failure("cuLibraryLoadData", code);
    if (int code = cuda.library_kernel(&kernel, library, name))
      return failure("cuLibraryGetKernel", code);
    std::unique_lock lock(kernels_mutex);
    kernel = kernels.emplace(key, kernel).first->second;
  }
  return prepare(kernel, r, ordinal);
}

// Page-locks host memory, for every device: copies from it need no staging.
std::string pin(void* memory, size_t bytes) {
  constexpr unsigned kPortable = 1;
  if (std::string problem = open_for_use(); !problem.empty()) return problem;
  return within_context(0, [&](int) -> std::string {
    const int code = driver().host_register(memory, bytes, kPortable);
    return code ? failure("cuMemHostRegister", code) : "";
  });
}

std::string unpin(void* memory) {
  return within_context(0, [&](int) -> std::string {
    const int code = driver().host_unregister(memory);
    return code ? failure("cuMemHostUnregister", code) : "";
  });
}

// The length of the message, cut to `capacity`.
int report(const std::string& problem, char* message, int capacity) {
  if (problem.empty() || capacity <= 0) return 0;
  std::strncpy(message, problem.c_str(), static_cast<size_t>(capacity) - 1);
  message[capacity - 1] = '\0';
  return static_cast<int>(problem.size());
}

}  // namespace

std::string launch_kernel(const Launch& l, void* record, void* stream) {
  void* kernel = kernel_of(l.key);
  if (!kernel) return "kernel " + std::to_string(l.key) + " was not loaded in this process";
  void* parameters[] = {record};
  int code = driver().launch(kernel, static_cast<unsigned>(l.grid_x),
                             static_cast<unsigned>(l.grid_y), static_cast<unsigned>(l.grid_z),
                             static_cast<unsigned>(l.threads), 1, 1,
                             static_cast<unsigned>(l.shared_bytes), stream, parameters, nullptr);
  return code ? failure("cuLaunchKernel", code) : "";
}

std::string clear_memory(void* memory, size_t bytes, void* stream) {
  int code = driver().clear(reinterpret_cast<unsigned long long>(memory), 0, bytes, stream);
  return code ? failure("cuMemsetD8Async", code) : "";
}

}  // namespace rn

// Makes a compiled kernel known under a key and loads it onto a device. With cluster > 1 its blocks,
// in `clusters` clusters, must all run at once. Returns the length of the message that says what went
// wrong, cut to `capacity`; 0 if nothing did.
RN_EXPORT int rn_kernel_load(int64_t key, const void* image, const char* name, int threads,
                             int shared_bytes, int cluster, int clusters, int device,
                             char* message, int capacity) {
  return rn::report(
      rn::load(key, image, name, {threads, shared_bytes, cluster, clusters}, device), message,
      capacity);
}

// Page-locks host memory that begins on a page, or releases it; messages as above.
RN_EXPORT int rn_host_pin(void* memory, int64_t bytes, char* message, int capacity) {
  return rn::report(rn::pin(memory, static_cast<size_t>(bytes)), message, capacity);
}

RN_EXPORT int rn_host_unpin(void* memory, char* message, int capacity) {
  return rn::report(rn::unpin(memory), message, capacity);
}
