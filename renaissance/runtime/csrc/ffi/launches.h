// The attribute `launches` of a call, planned in Python: six numbers a launch, namely the kernel's key,
// grid x, y, z, threads of a block, bytes of dynamic shared memory.
#pragma once

#include "ffi/call.h"
#include "host/driver.h"

namespace rn {

class Launches {
 public:
  explicit Launches(Call& call) : numbers_(call.integers("launches")) {}

  bool valid() const { return numbers_.size() > 0 && numbers_.size() % 6 == 0; }
  size_t size() const { return numbers_.size() / 6; }
  Launch operator[](size_t i) const {
    const int64_t* l = numbers_.begin() + 6 * i;
    return {l[0], l[1], l[2], l[3], l[4], l[5]};
  }

 private:
  ffi::Span<const int64_t> numbers_;
};

}  // namespace rn
