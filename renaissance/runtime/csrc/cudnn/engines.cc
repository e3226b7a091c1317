#include "cudnn/engines.h"

#include <algorithm>

namespace rn::cudnn {
namespace {

constexpr int64_t kMostConfigs = 64, kMostKnobs = 64, kMostNotes = 32;

std::vector<int> notes_of(const Descriptor& engine) {
  std::vector<int> notes(kMostNotes);
  int64_t count = engine.get(kEngineNumericalNote, kNumericalNoteType, kMostNotes, notes.data());
  notes.resize(std::min(count, kMostNotes));
  return notes;
}

// Sums in fp32 of the inputs as they are, always in the same order.
bool is_exact(const std::vector<int>& notes, int type) {
  return std::none_of(notes.begin(), notes.end(), [type](int note) {
    // Tensor cores read floats as tf32, whether the engine says that it narrows them or not.
    bool narrows = type == 0 && (note == kDownConvertInputs || note == kTensorCore);
    return narrows || note == kNondeterministic || note == kReducedPrecisionSums ||
           note == kFft || note == kWinograd;
  });
}

Choice choice_of(const Descriptor& config, const Descriptor& engine) {
  Choice choice{};
  engine.get(kEngineGlobalIndex, kInt64Type, 1, &choice.engine);
  std::vector<Descriptor> knobs;
  std::vector<void*> raw;
  for (int64_t i = 0; i < kMostKnobs; ++i) {
    knobs.emplace_back(kKnobChoice);
    raw.push_back(knobs.back().raw());
  }
  int64_t count = config.get(kEngineConfigKnobChoices, kDescriptorType, kMostKnobs, raw.data());
  for (int64_t i = 0; i < std::min(count, kMostKnobs); ++i) {
    int type = 0;
    int64_t value = 0;
    knobs[i].get(kKnobChoiceType, kKnobTypeType, 1, &type);
    knobs[i].get(kKnobChoiceValue, kInt64Type, 1, &value);
    choice.knobs.emplace_back(type, value);
  }
  std::sort(choice.knobs.begin(), choice.knobs.end());
  return choice;
}

void append(std::vector<Choice>& choices, const Graph& graph, int type, Value mode) {
  Descriptor heuristics(kHeuristics);
  heuristics.set(kHeuristicsOperationGraph, graph.whole());
  heuristics.set(kHeuristicsMode, kHeuristicsModeType, mode);
  heuristics.finalize("the heuristics of a convolution");
  std::vector<Descriptor> configs;
  std::vector<void*> raw;
  for (int64_t i = 0; i < kMostConfigs; ++i) {
    configs.emplace_back(kEngineConfig);
    raw.push_back(configs.back().raw());
  }
  int64_t count = heuristics.get(kHeuristicsResults, kDescriptorType, kMostConfigs, raw.data());
  for (int64_t i = 0; i < std::min(count, kMostConfigs); ++i) {
    Descriptor engine(kEngine);
    void* place = engine.raw();
    configs[i].get(kEngineConfigEngine, kDescriptorType, 1, &place);
    const std::vector<int> notes = notes_of(engine);
    if (!is_exact(notes, type)) continue;
    Choice choice = choice_of(configs[i], engine);
    choice.on_tensor_cores = std::find(notes.begin(), notes.end(), kTensorCore) != notes.end();
    bool known = std::any_of(choices.begin(), choices.end(), [&](const Choice& other) {
      return other.engine == choice.engine && other.knobs == choice.knobs;
    });
    if (!known) choices.push_back(std::move(choice));
  }
}

}  // namespace

std::vector<Choice> choices_for(const Graph& graph, int type) {
  std::vector<Choice> choices;
  std::string problem;
  for (Value mode : {kModeA, kModeFallback}) try {
      append(choices, graph, type, mode);
    } catch (const Failure& failure) {  // a mode may know nothing of a pattern
      problem = failure.what();
    }
  if (choices.empty() && !problem.empty()) throw Failure(problem);
  std::stable_partition(choices.begin(), choices.end(),
                        [](const Choice& choice) { return choice.on_tensor_cores; });
  return choices;
}

Plan make_plan(std::shared_ptr<const Graph> graph, const Choice& choice, int type, void* handle) {
  Descriptor engine(kEngine);
  engine.set(kEngineOperationGraph, graph->whole());
  engine.set(kEngineGlobalIndex, kInt64Type, choice.engine);
  engine.finalize("this engine");
  if (!is_exact(notes_of(engine), type)) throw Failure("the engine rounds more than it may, or at random");
  std::vector<Descriptor> knobs;
  std::vector<void*> raw;
  for (auto [knob, value] : choice.knobs) {
    knobs.emplace_back(kKnobChoice);
    knobs.back().set(kKnobChoiceType, kKnobTypeType, static_cast<int>(knob));
    knobs.back().set(kKnobChoiceValue, kInt64Type, value);
    knobs.back().finalize("a knob");
    raw.push_back(knobs.back().raw());
  }
  Descriptor config(kEngineConfig), plan(kExecutionPlan);
  config.set(kEngineConfigEngine, engine);
  if (!raw.empty()) config.set(kEngineConfigKnobChoices, kDescriptorType, raw);
  config.finalize("this engine with these knobs");
  plan.set(kExecutionPlanHandle, kHandleType, handle);
  plan.set(kExecutionPlanEngineConfig, config);
  plan.finalize("a plan");
  int64_t bytes = 0;
  plan.get(kExecutionPlanWorkspaceSize, kInt64Type, 1, &bytes);
  return {std::move(graph), std::move(config), std::move(plan), bytes};
}

}  // namespace rn::cudnn
