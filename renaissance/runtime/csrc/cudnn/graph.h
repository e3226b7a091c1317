// A convolution as an operation graph of cuDNN.
#pragma once

#include "cudnn/descriptor.h"
#include "map_operations.h"

namespace rn::cudnn {

enum Kind : int { kForward = 0, kBackwardData = 1, kBackwardWeight = 2, kForwardStatistics = 3 };

// What a plan is made for. Python passes it as kNumbers integers in this order.
struct Convolution {
  Kind kind;
  int type, y_type;
  ConvShape shape;
  int64_t workspace_bytes;

  static constexpr int kNumbers = 16;
  static Convolution read(const int64_t* numbers);
};

// Its tensors have the ids 1, 2, ... in the order of the operation's record in map_operations.h.
struct Graph {
  std::vector<Descriptor> parts;
  std::vector<int64_t> bytes;  // of tensor 1, 2, ...

  const Descriptor& whole() const { return parts.back(); }
};

// Throws a Failure where cuDNN refuses; a null handle is for looking at descriptors only.
Graph make_graph(const Convolution& convolution, void* handle);

}  // namespace rn::cudnn
