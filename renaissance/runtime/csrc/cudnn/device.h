// What measuring needs of the CUDA driver, opened at run time: contexts, scratch memory, a stream
// whose work is captured into a graph, events.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace rn::cudnn {

// Makes a device's context current while it lives. Throws a Failure without driver or device.
class Current {
 public:
  explicit Current(int device);
  explicit Current(void* stream);  // the device that the stream belongs to
  ~Current();
  Current(const Current&) = delete;

  int device() const { return device_; }

 private:
  void push(void* context);
  int device_ = 0;
};

// Device memory for operands, filled with normal numbers: zeros would run faster than data does.
// Throws NoMemory where there is too little.
class Scratch {
 public:
  explicit Scratch(const std::vector<int64_t>& bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;

  const std::vector<void*>& places() const { return places_; }

 private:
  std::vector<void*> places_;
};

using Enqueue = std::function<void(void* stream)>;

// Runs it once, and waits.
void run_once(const Enqueue& enqueue);

// Microseconds of one run: the median over `repeats` replays of a captured graph that holds a few.
// A run alone, after one that loads what is loaded late, comes first: where it takes several times the
// `least` that another candidate took alone, or very long, its time is the answer, and nothing is
// repeated. Updates `least`. Throws a Failure where it cannot be captured.
double microseconds(const Enqueue& enqueue, int repeats, double& least);

}  // namespace rn::cudnn
