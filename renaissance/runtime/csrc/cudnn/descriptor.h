// A backend descriptor that is destroyed with its owner, and the one way errors travel in here: a
// Failure, caught where Python or XLA calls in.
#pragma once

#include <stdexcept>
#include <utility>
#include <vector>

#include "cudnn/interface.h"

namespace rn::cudnn {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// No device memory is left to try something on.
struct NoMemory : Failure {
  using Failure::Failure;
};

inline void check(int status, const char* what) {
  if (status == 0) return;
  const Library& cudnn = library();
  char detail[256] = "";
  cudnn.last_error(detail, sizeof detail);
  throw Failure(std::string("cuDNN refuses ") + what + ": " + cudnn.error_string(status) +
                (detail[0] ? std::string("; ") + detail : ""));
}

class Descriptor {
 public:
  explicit Descriptor(DescriptorType type) {
    check(library().create_descriptor(type, &raw_), "a descriptor");
  }
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Descriptor() {
    if (raw_) library().destroy_descriptor(raw_);
  }

  template <class T>
  void set(Attribute name, AttributeType type, const std::vector<T>& values) {
    put(name, type, static_cast<int64_t>(values.size()), values.data());
  }
  template <class T>
  void set(Attribute name, AttributeType type, T value) {
    put(name, type, 1, &value);
  }
  void set(Attribute name, const Descriptor& value) {
    put(name, kDescriptorType, 1, &value.raw_);
  }

  void finalize(const char* what) { check(library().finalize(raw_), what); }

  // How many values there are; at most `capacity` of them are written.
  template <class T>
  int64_t get(Attribute name, AttributeType type, int64_t capacity, T* values) const {
    int64_t count = 0;
    check(library().get_attribute(raw_, name, type, capacity, &count, values), "a question");
    return count;
  }

  void* raw() const { return raw_; }

 private:
  void put(Attribute name, AttributeType type, int64_t count, const void* values) {
    int status = library().set_attribute(raw_, name, type, count, values);
    if (status) check(status, ("attribute " + std::to_string(name)).c_str());
  }

  void* raw_ = nullptr;
};

}  // namespace rn::cudnn
