#include "ffi/table.h"

#include <iterator>

#include "ffi/handlers.h"
#include "host/export.h"

static const rn::Target kTargets[] = {
    {"rn_philox_uniform", PhiloxUniformHost, nullptr},
};

RN_EXPORT int rn_target_count() { return static_cast<int>(std::size(kTargets)); }
RN_EXPORT const char* rn_target_name(int index) { return kTargets[index].name; }
RN_EXPORT void* rn_target_host(int index) { return reinterpret_cast<void*>(kTargets[index].host); }
RN_EXPORT void* rn_target_cuda(int index) { return reinterpret_cast<void*>(kTargets[index].cuda); }

// The FFI version that the library was compiled against: asked before anything is registered.
RN_EXPORT int rn_ffi_api_major() { return XLA_FFI_API_MAJOR; }
RN_EXPORT int rn_ffi_api_minor() { return XLA_FFI_API_MINOR; }
