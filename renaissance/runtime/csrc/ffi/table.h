// The one table of custom-call targets. Python registers what stands here, platform by platform.
#pragma once

#include "xla/ffi/api/c_api.h"

namespace rn {

struct Target {
  const char* name;
  XLA_FFI_Handler* host;
  XLA_FFI_Handler* cuda;
};

}  // namespace rn
