// The host twin of batches made on the device: the workers' own transforms and normalisation.
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "data/normalize.h"
#include "data/plan.h"
#include "host/run_data.h"

namespace rn {
namespace {

// The chain as Plan reads it: tables follow the arguments of their operation.
data::Plan plan_of(const AugmentBatch& op) {
  std::vector<int32_t> words(op.chain, op.chain + data::kHead);
  for (Index i = 0; i < op.chain[3]; ++i) {
    const Index* operation = op.chain + data::kHead + i * data::kFields;
    const Index* arguments = operation + data::kFieldFirst;
    const int* table = op.tables + operation[data::kFieldTableBegin];
    words.insert(words.end(), operation, operation + data::kFieldTableBegin);
    words.insert(words.end(), arguments, arguments + operation[data::kFieldArgs]);
    words.insert(words.end(), table, table + operation[data::kFieldTable]);
  }
  data::Plan plan;
  const std::string problem = plan.parse(words.data(), static_cast<int64_t>(words.size()));
  if (!problem.empty()) throw std::logic_error("a batch on the device: " + problem);
  return plan;
}

}  // namespace

void run(const AugmentBatch& op) {
  const data::Plan plan = plan_of(op);
  const data::Normalizer normalizer(op.values, nullptr, nullptr, plan.c, op.padded_channels,
                                    op.type == kFloat16, data::kScalar);
  const int64_t in_bytes = int64_t{plan.h} * plan.w * plan.c;
  const int64_t out_bytes =
      int64_t{plan.out_h} * plan.out_w * op.padded_channels * normalizer.element_bytes();
  const uint64_t seed = op.seed[0] | static_cast<uint64_t>(op.seed[1]) << 32;
  const int* ids = op.ids + (op.batch ? *op.batch * op.rows : 0);
  std::vector<uint8_t> scratch(static_cast<size_t>(3 * plan.most_pixels * plan.c));
  for (Index row = 0; row < op.rows; ++row) {
    const int64_t id = std::clamp<int64_t>(ids[row], 0, op.samples - 1);
    const data::Origin origin{seed, static_cast<uint32_t>(id), *op.epoch};
    data::Finish finish;
    const uint8_t* image =
        data::transform(plan, origin, op.images + id * in_bytes, scratch.data(), &finish);
    normalizer.run(image, plan.out_h, plan.out_w, finish, false,
                   static_cast<uint8_t*>(op.data) + row * out_bytes);
    op.label[row] = op.labels[id];
  }
}

}  // namespace rn
