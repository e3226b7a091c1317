// How the record of what makes batches is read from a call.
#pragma once

#include "data/kinds.h"
#include "data_operations.h"
#include "ffi/decode.h"

namespace rn {

template <>
inline AugmentBatch decode(Call& call) {
  AugmentBatch op{call.pointer<unsigned char>(), call.pointer<int>(), call.pointer<int>(),
                  call.pointer<int>(), call.pointer<unsigned>(), call.pointer<unsigned>(),
                  call.pointer<int>(), call.pointer(), call.pointer(), call.pointer<int>(),
                  nullptr, 0, call.integer("samples"), call.integer("rows"),
                  small(call, "padded_channels"), small(call, "type")};
  ffi::Span<const int64_t> chain = call.integers("chain");
  static_assert(sizeof(Index) == sizeof(int64_t));
  op.chain = reinterpret_cast<const Index*>(chain.begin());
  op.chain_length = static_cast<Index>(chain.size());
  if (op.chain_length < data::kHead ||
      op.chain_length != data::kHead + op.chain[3] * data::kFields)
    call.refuse("has a chain of transforms that is cut off");
  return op;
}

}  // namespace rn
