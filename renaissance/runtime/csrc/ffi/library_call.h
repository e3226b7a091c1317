// The handler of calls that a library runs: a plan by its key, and kernels of ours before and behind it.
//
// The first of the `launches` is the plan: its key, then 1 where the second launch is the kernel that
// packs its filters or unpacks their gradient. Further kernels take the statistics of its output.
// Where kernels of ours run the convolution, the first launch has a grid and no plan is looked up.
#pragma once

#include "cudnn/execute.h"
#include "ffi/decode_maps.h"
#include "ffi/launches.h"

namespace rn {

template <class Operation>
Operation& convolution_in(Operation& op) {
  return op;
}
inline ConvForward& convolution_in(ConvForwardStatistics& op) { return op.conv; }

// What kernels behind the plan read.
template <class Operation>
void* record_behind(Operation&) {
  return nullptr;
}
inline void* record_behind(ConvForwardStatistics& op) { return &op.statistics; }

// The same operation with its filters, or their gradient, in the begin of the workspace.
template <class Operation>
Operation on_packed_filters(const Operation& op, void** filters) {
  Operation inner = op;
  auto& convolution = convolution_in(inner);
  *filters = convolution.workspace;
  convolution.workspace = static_cast<char*>(convolution.workspace) + kPackedFilterBytes;
  convolution.workspace_bytes -= kPackedFilterBytes;
  return inner;
}

template <class Operation>
std::string enqueue_packed(Operation& op, int64_t key, const Launch& pack, void* stream) {
  void* filters = nullptr;
  Operation inner = on_packed_filters(op, &filters);
  convolution_in(inner).w = filters;
  std::string problem = launch_kernel(pack, &convolution_in(op), stream);
  return problem.empty() ? enqueue(inner, key, stream) : problem;
}

inline std::string enqueue_packed(ConvBackwardWeight& op, int64_t key, const Launch& unpack,
                                  void* stream) {
  void* filters = nullptr;
  ConvBackwardWeight inner = on_packed_filters(op, &filters);
  inner.dw = filters;
  std::string problem = enqueue(inner, key, stream);
  return problem.empty() ? launch_kernel(unpack, &op, stream) : problem;
}

inline std::string enqueue_packed(ConvBackwardData&, int64_t, const Launch&, void*) {
  return "the gradient of a convolution's input never packs its filters";
}

// Kernels of ours alone; those behind the first one take statistics, if there is a record for them.
template <class Operation>
std::string launch_all(Operation& op, const Launches& launches, void* stream) {
  std::string problem = launch_kernel(launches[0], &op, stream);
  void* behind = record_behind(op) ? record_behind(op) : &op;
  for (size_t i = 1; i < launches.size() && problem.empty(); ++i)
    problem = launch_kernel(launches[i], behind, stream);
  return problem;
}

template <class Operation>
ffi::Error library_call(void* stream, ffi::RemainingArgs args, ffi::RemainingRets rets,
                        ffi::Dictionary attrs) {
  Call call(args, rets, attrs);
  Operation operation = decode<Operation>(call);
  Launches launches(call);
  if (call.failed()) return call.error();
  if (!launches.valid())
    return ffi::Error::InvalidArgument("the call was lowered without its library's plan");
  size_t count = launches.size();
  Launch plan = launches[0];
  if (plan.grid_y != 0) {
    std::string problem = launch_all(operation, launches, stream);
    return problem.empty() ? ffi::Error::Success() : ffi::Error::Internal(problem);
  }
  bool packs = plan.grid_x != 0;
  const auto& convolution = convolution_in(operation);
  if (packs && (count < 2 || !convolution.workspace ||
                convolution.workspace_bytes < kPackedFilterBytes))
    return ffi::Error::InvalidArgument("the call has no workspace to pack its filters into");
  std::string problem = packs ? enqueue_packed(operation, plan.key, launches[1], stream)
                              : enqueue(operation, plan.key, stream);
  for (size_t i = packs ? 2 : 1; i < count && problem.empty(); ++i)
    problem = launch_kernel(launches[i], record_behind(operation), stream);
  return problem.empty() ? ffi::Error::Success() : ffi::Error::Internal(problem);
}

}  // namespace rn
