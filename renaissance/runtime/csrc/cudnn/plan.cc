// What Python calls: measure the engines that can run a convolution, and build the chosen plan.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <mutex>
#include <optional>

#include "cudnn/device.h"
#include "cudnn/plans.h"
#include "host/export.h"
#include "host/message.h"

namespace rn::cudnn {
namespace {

struct Measured {
  Choice choice;
  int64_t workspace_bytes;
  double microseconds;
};

// Seconds after which no further candidate of a convolution is tried.
constexpr double kPatience = 3.0;

// One measurement at a time, or they would slow each other; plans are built side by side.
std::mutex device_is_measuring;

// Scratch memory for the operands, and for the workspace last.
std::vector<int64_t> scratch_bytes(const Graph& graph, int64_t workspace) {
  std::vector<int64_t> bytes = graph.bytes;
  bytes.push_back(workspace);
  return bytes;
}

Enqueue on_scratch(const Plan& plan, int device, const Scratch& scratch) {
  std::vector<void*> places = scratch.places();
  void* workspace = places.back();
  places.pop_back();
  return [&plan, device, places, workspace](void* stream) {
    execute(plan, device, stream, places, workspace);
  };
}

std::vector<Plan> candidates(const Convolution& conv, void* handle, size_t most,
                             std::vector<Choice>& choices) {
  auto graph = std::make_shared<const Graph>(make_graph(conv, handle));
  std::vector<Plan> plans;
  std::string problem = "it knows none";
  for (Choice& choice : choices_for(*graph, conv.type)) {
    if (plans.size() == most) break;
    try {
      Plan plan = make_plan(graph, choice, conv.type, handle);
      if (plan.workspace_bytes > conv.workspace_bytes) {
        problem = "the workspace is too small";
        continue;
      }
      plans.push_back(std::move(plan));
      choices.push_back(std::move(choice));
    } catch (const Failure& failure) {  // heuristics also name engines that cannot
      problem = failure.what();
    }
  }
  if (plans.empty()) throw Failure("cuDNN has no deterministic engine for it: " + problem);
  return plans;
}

// All candidates that run, the fastest first; where memory is too short to try them, cuDNN's own
// first choice with a time of 0.
std::vector<Measured> measure(const Convolution& conv, int device, int most, int repeats) {
  Current current(device);
  BuildingHandle handle(device);
  std::vector<Choice> choices;
  std::vector<Plan> plans =
      candidates(conv, handle.raw(), static_cast<size_t>(most), choices);
  int64_t workspace = 0;
  for (const Plan& plan : plans) workspace = std::max(workspace, plan.workspace_bytes);
  std::lock_guard lock(device_is_measuring);
  std::optional<Scratch> scratch;
  try {
    scratch.emplace(scratch_bytes(*plans[0].graph, workspace));
  } catch (const NoMemory&) {
    return {{choices[0], plans[0].workspace_bytes, 0.0}};
  }
  std::vector<Measured> measured;
  std::string problem;
  double least = std::numeric_limits<double>::infinity();
  const auto begin = std::chrono::steady_clock::now();
  const auto is_late = [&] {
    return std::chrono::steady_clock::now() - begin > std::chrono::duration<double>(kPatience);
  };
  for (size_t i = 0; i < plans.size() && (measured.empty() || !is_late()); ++i) try {
      double time = microseconds(on_scratch(plans[i], device, *scratch), repeats, least);
      measured.push_back({choices[i], plans[i].workspace_bytes, time});
    } catch (const Failure& failure) {
      problem = failure.what();
    }
  if (measured.empty()) throw Failure("none of cuDNN's engines runs it: " + problem);
  std::stable_sort(measured.begin(), measured.end(), [](const Measured& a, const Measured& b) {
    return a.microseconds < b.microseconds;
  });
  return measured;
}

// A line each: engine, workspace bytes, microseconds, then knobs as type=value.
std::string written(const std::vector<Measured>& measured) {
  std::string text;
  for (const Measured& one : measured) {
    char time[32];
    std::snprintf(time, sizeof time, "%.2f", one.microseconds);
    text += std::to_string(one.choice.engine) + " " + std::to_string(one.workspace_bytes) + " " +
            time;
    for (auto [type, value] : one.choice.knobs)
      text += " " + std::to_string(type) + "=" + std::to_string(value);
    text += "\n";
  }
  return text;
}

// Builds the plan and runs it once, so that what is loaded late is loaded before any capture. Where
// memory is too short to run it, the first capture loads it.
void build(int64_t key, int device, const Convolution& conv, const Choice& choice) {
  Current current(device);
  BuildingHandle handle(device);
  auto graph = std::make_shared<const Graph>(make_graph(conv, handle.raw()));
  Plan plan = make_plan(graph, choice, conv.type, handle.raw());
  if (plan.workspace_bytes > conv.workspace_bytes)
    throw Failure("the plan needs " + std::to_string(plan.workspace_bytes) +
                  " bytes of workspace, more than the " + std::to_string(conv.workspace_bytes) +
                  " that the convolution may use");
  try {
    std::lock_guard lock(device_is_measuring);
    Scratch scratch(scratch_bytes(*graph, plan.workspace_bytes));
    run_once(on_scratch(plan, device, scratch));
  } catch (const NoMemory&) {
  }
  keep(key, device, std::move(plan));
}

}  // namespace
}  // namespace rn::cudnn

// Measures up to `most` engines. Returns 0 and the measurements, fastest first, or 1 and a message.
RN_EXPORT int rn_conv_plan_measure(int device, const int64_t* convolution, int most, int repeats,
                                   char* text, int capacity) try {
  using namespace rn::cudnn;
  if (!library().problem.empty()) throw Failure(library().problem);
  rn::tell(written(measure(Convolution::read(convolution), device, most, repeats)), text, capacity);
  return 0;
} catch (const rn::cudnn::Failure& failure) {
  rn::tell(failure.what(), text, capacity);
  return 1;
}

// Builds the plan of a choice, `knobs` pairs of type and value, and keeps it under a key. Returns 0,
// or 1 and a message.
RN_EXPORT int rn_conv_plan_build(int64_t key, int device, const int64_t* convolution,
                                 int64_t engine, const int64_t* knobs, int knob_count, char* text,
                                 int capacity) try {
  using namespace rn::cudnn;
  if (!library().problem.empty()) throw Failure(library().problem);
  Choice choice{engine, {}};
  for (int i = 0; i < knob_count; ++i) choice.knobs.emplace_back(knobs[2 * i], knobs[2 * i + 1]);
  build(key, device, Convolution::read(convolution), choice);
  return 0;
} catch (const rn::cudnn::Failure& failure) {
  rn::tell(failure.what(), text, capacity);
  return 1;
}

// Makes the descriptors of a convolution, which takes no device. Returns 0, or 1 and a message.
RN_EXPORT int rn_conv_plan_describe(const int64_t* convolution, char* text, int capacity) try {
  using namespace rn::cudnn;
  if (!library().problem.empty()) throw Failure(library().problem);
  make_graph(Convolution::read(convolution), nullptr);
  return 0;
} catch (const rn::cudnn::Failure& failure) {
  rn::tell(failure.what(), text, capacity);
  return 1;
}
