// The handler of dense convolutions: a library's plan by its key, and kernels of ours behind it.
//
// The first of the `launches` is the plan, with an empty grid; the others take the statistics of its
// output, or are the backward of the norm before it. Where kernels of ours run the convolution, the first launch has a grid and is one of them.
#pragma once

#include "cudnn/execute.h"
#include "ffi/decode_maps.h"
#include "ffi/launches.h"

namespace rn {

// What kernels behind the first launch read.
template <class Operation>
void* record_behind(Operation& op) {
  return &op;
}
inline void* record_behind(ConvForwardStatistics& op) { return &op.statistics; }
inline void* record_behind(ConvBackwardDataNorm& op) { return &op.norm; }

template <class Operation>
ffi::Error library_call(void* stream, ffi::RemainingArgs args, ffi::RemainingRets rets,
                        ffi::Dictionary attrs) {
  Call call(args, rets, attrs);
  Operation operation = decode<Operation>(call);
  Launches launches(call);
  if (call.failed()) return call.error();
  if (!launches.valid())
    return ffi::Error::InvalidArgument("the call was lowered without its library's plan");
  Launch first = launches[0];
  std::string problem = first.grid_x == 0 ? enqueue(operation, first.key, stream)
                                          : launch_kernel(first, &operation, stream);
  for (size_t i = 1; i < launches.size() && problem.empty(); ++i)
    problem = launch_kernel(launches[i], record_behind(operation), stream);
  return problem.empty() ? ffi::Error::Success() : ffi::Error::Internal(problem);
}

}  // namespace rn
