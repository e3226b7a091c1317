#include "cudnn/execute.h"

#include <map>
#include <mutex>
#include <shared_mutex>

#include "cudnn/device.h"
#include "cudnn/plans.h"

namespace rn::cudnn {
namespace {

// A handle carries its stream, so that only one thread may execute with it at a time.
struct Executor {
  std::mutex mutex;
  void* handle = nullptr;
};

std::mutex executors_mutex;
std::map<int, Executor> executors;  // a map never moves its values
std::map<int, std::vector<void*>> idle_handles;

std::shared_mutex plans_mutex;
std::map<std::pair<int64_t, int>, Plan> plans;

Executor& executor_of(int device) {
  std::lock_guard lock(executors_mutex);
  Executor& executor = executors[device];
  if (!executor.handle) check(library().create(&executor.handle), "a handle");
  return executor;
}

const Plan& plan_of(int64_t key, int device) {
  std::shared_lock lock(plans_mutex);
  auto found = plans.find({key, device});
  if (found == plans.end())
    throw Failure("convolution plan " + std::to_string(key) + " was not built for device " +
                  std::to_string(device) + " in this process");
  return found->second;
}

// A plan takes as many of the pointers as its graph has tensors.
std::string run_plan(int64_t key, void* stream, const std::vector<void*>& pointers,
                     void* workspace, int64_t workspace_bytes) try {
  Current current(stream);
  const Plan& plan = plan_of(key, current.device());
  std::vector<void*> taken(pointers.begin(), pointers.begin() + plan.graph->bytes.size());
  int64_t available = workspace ? workspace_bytes : 0;
  if (plan.workspace_bytes > available)
    throw Failure("the convolution's plan needs " + std::to_string(plan.workspace_bytes) +
                  " bytes of workspace, and the call has " + std::to_string(available));
  execute(plan, current.device(), stream, taken, workspace);
  return "";
} catch (const Failure& failure) {
  return failure.what();
}

void* writable(const void* place) { return const_cast<void*>(place); }

}  // namespace

BuildingHandle::BuildingHandle(int device) : device_(device) {
  {
    std::lock_guard lock(executors_mutex);
    std::vector<void*>& idle = idle_handles[device];
    if (!idle.empty()) {
      raw_ = idle.back();
      idle.pop_back();
    }
  }
  if (!raw_) check(library().create(&raw_), "a handle");
}

BuildingHandle::~BuildingHandle() {
  std::lock_guard lock(executors_mutex);
  idle_handles[device_].push_back(raw_);
}

void execute(const Plan& plan, int device, void* stream, const std::vector<void*>& pointers,
             void* workspace) {
  std::vector<int64_t> ids;
  for (size_t i = 0; i < pointers.size(); ++i) ids.push_back(static_cast<int64_t>(i) + 1);
  Descriptor pack(kVariantPack);
  pack.set(kVariantPackUniqueIds, kInt64Type, ids);
  pack.set(kVariantPackPointers, kPointerType, pointers);
  pack.set(kVariantPackWorkspace, kPointerType, workspace);
  pack.finalize("the operands");
  Executor& executor = executor_of(device);
  std::lock_guard lock(executor.mutex);
  check(library().set_stream(executor.handle, stream), "a stream");
  check(library().execute(executor.handle, plan.plan.raw(), pack.raw()), "to run a convolution");
}

// A plan under a key is never replaced: a captured graph may hold what it launched.
void keep(int64_t key, int device, Plan plan) {
  executor_of(device);  // so that no execution has to make a handle
  std::unique_lock lock(plans_mutex);
  plans.emplace(std::make_pair(key, device), std::move(plan));
}

}  // namespace rn::cudnn

namespace rn {

using cudnn::run_plan;
using cudnn::writable;

std::string enqueue(const ConvForward& op, int64_t key, void* stream) {
  return run_plan(key, stream, {writable(op.x), writable(op.w), op.y}, op.workspace,
                  op.workspace_bytes);
}

std::string enqueue(const ConvForwardStatistics& op, int64_t key, void* stream) {
  const ConvForward& conv = op.conv;
  float* sums = op.statistics.partial;
  return run_plan(key, stream, {writable(conv.x), writable(conv.w), conv.y, sums, sums + conv.shape.k},
                  conv.workspace, conv.workspace_bytes);
}

std::string enqueue(const ConvBackwardData& op, int64_t key, void* stream) {
  return run_plan(key, stream, {writable(op.dy), writable(op.w), op.dx}, op.workspace,
                  op.workspace_bytes);
}

std::string enqueue(const ConvBackwardDataNorm& op, int64_t key, void* stream) {
  return enqueue(op.conv, key, stream);
}

std::string enqueue(const ConvBackwardWeight& op, int64_t key, void* stream) {
  return run_plan(key, stream, {writable(op.x), writable(op.dy), op.dw}, op.workspace,
                  op.workspace_bytes);
}

}  // namespace rn
