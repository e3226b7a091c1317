#include "data/plan.h"

#include <algorithm>

namespace rn::data {
namespace {

struct Rule {
  size_t args, table;
};

bool rule_of(int32_t kind, Rule* rule) {
  switch (kind) {
    case kPad: *rule = {6, 0}; return true;
    case kCrop: *rule = {2, 0}; return true;
    case kWindow: *rule = {4, 0}; return true;
    case kFlip: *rule = {1, 0}; return true;
    case kRotate: *rule = {1, 2 * kEntries}; return true;
    case kScale: *rule = {1, kEntries}; return true;
    case kErase: *rule = {1, 3 * kEntries}; return true;
    default: return false;
  }
}

bool within(int32_t value, int32_t low, int32_t high) { return low <= value && value <= high; }

// Sets the size after an operation; false if its arguments do not fit the size before it.
bool apply_size(Operation& op) {
  const std::vector<int32_t>& a = op.args;
  op.out_h = op.in_h;
  op.out_w = op.in_w;
  switch (op.kind) {
    case kPad: {
      for (int side = 0; side < 4; ++side)
        if (!within(a[side], 0, kMostSide)) return false;
      bool mirrored = a[4] == kReflect || a[4] == kSymmetric;
      int32_t room = a[4] == kReflect ? 1 : 0;
      if (mirrored && (std::max(a[0], a[2]) > op.in_h - room ||
                       std::max(a[1], a[3]) > op.in_w - room))
        return false;
      op.out_h += a[0] + a[2];
      op.out_w += a[1] + a[3];
      return within(a[4], kConstant, kSymmetric) && within(a[5], 0, 255);
    }
    case kCrop:
      op.out_h = a[0];
      op.out_w = a[1];
      return within(a[0], 1, op.in_h) && within(a[1], 1, op.in_w);
    case kWindow:
      op.out_h = a[2];
      op.out_w = a[3];
      return within(a[2], 1, op.in_h) && within(a[3], 1, op.in_w) &&
             within(a[0], 0, op.in_h - a[2]) && within(a[1], 0, op.in_w - a[3]);
    case kFlip: return within(a[0], 0, 1 << 24);
    case kRotate:
      return within(a[0], 0, 255) &&
             std::all_of(op.table.begin(), op.table.end(),
                         [](int32_t v) { return within(v, -65536, 65536); });
    case kScale:
      return within(a[0], 0, 255) &&
             std::all_of(op.table.begin(), op.table.end(),
                         [](int32_t v) { return within(v, 1, 16 * 65536); });
    case kErase:
      return op.last && within(a[0], 0, 1 << 24) &&
             std::all_of(op.table.begin(), op.table.begin() + kEntries,
                         [](int32_t v) { return within(v, 0, kMostSide * 256); }) &&
             std::all_of(op.table.begin() + kEntries, op.table.end(),
                         [](int32_t v) { return within(v, 1, 4096); });
  }
  return false;
}

}  // namespace

std::string Plan::parse(const int32_t* words, int64_t count) {
  const int32_t* end = words + count;
  if (count < 4) return "plan of " + std::to_string(count) + " words is too short";
  h = words[0];
  w = words[1];
  c = words[2];
  int32_t number = words[3];
  words += 4;
  if (!within(h, 1, kMostSide) || !within(w, 1, kMostSide) || !within(c, 1, kMostChannels))
    return "picture of " + std::to_string(h) + "x" + std::to_string(w) + "x" + std::to_string(c) +
           " is beyond 1024x1024x4";
  int32_t erasures = 0;
  out_h = h;
  out_w = w;
  most_pixels = int64_t{h + 2} * (w + 2);
  for (int32_t i = 0; i < number; ++i) {
    std::string where = "operation " + std::to_string(i);
    if (end - words < 5) return where + " is cut off";
    Rule rule;
    if (!rule_of(words[0], &rule)) return where + " has unknown kind " + std::to_string(words[0]);
    Operation op;
    op.kind = static_cast<Kind>(words[0]);
    op.id = static_cast<uint32_t>(words[1]);
    op.last = words[2] != 0;
    bool fits = words[3] == static_cast<int32_t>(rule.args) &&
                words[4] == static_cast<int32_t>(rule.table);
    words += 5;
    if (!fits || end - words < static_cast<int64_t>(rule.args + rule.table))
      return where + " has the wrong number of words";
    op.args.assign(words, words + rule.args);
    words += rule.args;
    op.table.assign(words, words + rule.table);
    words += rule.table;
    op.in_h = out_h;
    op.in_w = out_w;
    if (!apply_size(op)) return where + " has arguments out of range";
    out_h = op.out_h;
    out_w = op.out_w;
    if (out_h > kMostSide || out_w > kMostSide) return where + " makes the picture too large";
    most_pixels = std::max(most_pixels, int64_t{out_h + 2} * (out_w + 2));
    erasures += op.kind == kErase;
    operations.push_back(std::move(op));
  }
  if (erasures > 1) return "plan erases " + std::to_string(erasures) + " times, expected once";
  return words == end ? "" : "plan has words left over";
}

}  // namespace rn::data
