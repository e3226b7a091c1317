// Engines that can run a graph, and plans made from them.
#pragma once

#include <memory>

#include "cudnn/graph.h"

namespace rn::cudnn {

// An engine and how its knobs are set: what is recorded, and gives the same plan next time.
struct Choice {
  int64_t engine;
  std::vector<std::pair<int64_t, int64_t>> knobs;  // type, value
  bool on_tensor_cores = false;
};

struct Plan {
  std::shared_ptr<const Graph> graph;
  Descriptor config, plan;
  int64_t workspace_bytes;
};

// Choices in the order cuDNN's heuristics prefer them, then its fallbacks; each once, and those on
// tensor cores before all others, which may take a hundred times as long. Those are left out whose result may change from run to run, or is rounded more than the types ask for.
std::vector<Choice> choices_for(const Graph& graph, int type);

// Throws a Failure where the engine cannot run the graph with these knobs, or rounds too much.
Plan make_plan(std::shared_ptr<const Graph> graph, const Choice& choice, int type, void* handle);

}  // namespace rn::cudnn
