#include "ffi/handlers.h"
#include "host/philox.h"

namespace ffi = xla::ffi;

static ffi::Error philox_uniform(ffi::ResultBuffer<ffi::F32> out, int64_t seed, int64_t sample,
                                 int64_t operation, int64_t step) {
  rn::philox_uniform(out->typed_data(), out->element_count(), static_cast<uint64_t>(seed),
                     static_cast<uint32_t>(sample), static_cast<uint32_t>(operation),
                     static_cast<uint32_t>(step));
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(PhiloxUniformHost, philox_uniform,
                       ffi::Ffi::Bind()
                           .Ret<ffi::Buffer<ffi::F32>>()
                           .Attr<int64_t>("seed")
                           .Attr<int64_t>("sample")
                           .Attr<int64_t>("operation")
                           .Attr<int64_t>("step"),
                       {ffi::Traits::kCmdBufferCompatible});
