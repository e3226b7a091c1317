// Every handler of the library, and the header that they are written with.
#pragma once

#include "xla/ffi/api/c_api.h"
#include "xla/ffi/api/ffi.h"

extern "C" {
XLA_FFI_Error* PhiloxUniformHost(XLA_FFI_CallFrame*);
}
