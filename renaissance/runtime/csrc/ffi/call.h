// Reads one custom call: its buffers, its attributes, and the launches that Python planned for it.
//
// One handler serves both ways of calling. The attribute `at` gives each operand of the operation, in
// the order of its record, as a pair (buffer, byte offset). Called functionally, the buffers are the
// arguments followed by the results, and every offset is 0. Called in place, they are the banks, each
// passed once and aliased to the result of the same index; the attribute `in_place` then counts them,
// and a bank that XLA copied after all is refused. Further results are workspace. A buffer of -1 leaves
// an operand out.
#pragma once

#include <string>

#include "operations.h"
#include "xla/ffi/api/c_api.h"
#include "xla/ffi/api/ffi.h"

namespace rn {

namespace ffi = xla::ffi;

class Call {
 public:
  Call(ffi::RemainingArgs args, ffi::RemainingRets rets, ffi::Dictionary attrs)
      : args_(args), rets_(rets), attrs_(attrs) {
    check_aliases(static_cast<size_t>(integer("in_place")));
  }

  // The next operand of the record.
  template <class T = void>
  T* pointer() {
    auto at = attribute<ffi::Span<const int64_t>>("at");
    size_t index = 2 * operand_++;
    if (index + 1 >= at.size()) return fail<T>("has too few operands");
    if (at[index] < 0) return nullptr;
    char* base = static_cast<char*>(buffer(static_cast<size_t>(at[index])));
    return base ? reinterpret_cast<T*>(base + at[index + 1]) : nullptr;
  }

  int64_t integer(const char* name) { return attribute<int64_t>(name); }
  float real(const char* name) { return attribute<float>(name); }
  ffi::Span<const int64_t> integers(const char* name) {
    return attribute<ffi::Span<const int64_t>>(name);
  }
  ffi::Span<const double> reals(const char* name) {
    return attribute<ffi::Span<const double>>(name);
  }

  void refuse(const char* what) { fail<void>(what); }
  bool failed() const { return !problem_.empty(); }
  ffi::Error error() const { return ffi::Error::InvalidArgument(problem_); }

 private:
  template <class T>
  T attribute(const char* name) {
    auto value = attrs_.get<T>(name);
    if (value.has_value()) return *value;
    if (problem_.empty())  // the first problem is the one to tell
      problem_ = std::string("attribute ") + name + ": " + value.error().message();
    return T{};
  }

  template <class T>
  T* fail(const char* what) {
    if (problem_.empty()) problem_ = std::string("the call ") + what;
    return nullptr;
  }

  void* buffer(size_t index) {
    if (index < args_.size()) return argument(index);
    auto result = rets_.get<ffi::AnyBuffer>(index - args_.size());
    return result.has_value() ? (*result)->untyped_data() : fail<void>("names a missing buffer");
  }

  void* argument(size_t index) {
    auto value = args_.get<ffi::AnyBuffer>(index);
    return value.has_value() ? value->untyped_data() : fail<void>("names a missing buffer");
  }

  void check_aliases(size_t banks) {
    for (size_t i = 0; i < banks; ++i) {
      auto result = rets_.get<ffi::AnyBuffer>(i);
      if (!result.has_value() || argument(i) != (*result)->untyped_data())
        problem_ = "bank " + std::to_string(i) + " of the call is not aliased to its own input";
    }
  }

  ffi::RemainingArgs args_;
  ffi::RemainingRets rets_;
  ffi::Dictionary attrs_;
  size_t operand_ = 0;
  std::string problem_;
};

// Builds an operation's record from a call; one specialisation per operation, in decode.h.
template <class Operation>
Operation decode(Call& call);

}  // namespace rn
