// Plans by key, and their execution on a stream: only enqueues, so that XLA can capture it.
#pragma once

#include <string>

#include "map_operations.h"

namespace rn {

// Enqueues the convolution by the plan that was built under the key for the stream's device. Empty,
// or what went wrong. A plan that sums leaves sums and squares in statistics.partial; after one that
// does not, statistics are still to be taken.
std::string enqueue(const ConvForward& op, int64_t key, void* stream);
std::string enqueue(const ConvForwardStatistics& op, int64_t key, void* stream);
std::string enqueue(const ConvBackwardData& op, int64_t key, void* stream);
std::string enqueue(const ConvBackwardDataNorm& op, int64_t key, void* stream);
std::string enqueue(const ConvBackwardWeight& op, int64_t key, void* stream);

}  // namespace rn
