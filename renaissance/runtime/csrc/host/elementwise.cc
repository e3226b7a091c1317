// Operations that work element by element: activations, dropout, casts, clearing, copying.
#include <cstring>

#include "activation.h"
#include "host/half.h"
#include "host/philox.h"
#include "host/run.h"

namespace rn {
namespace {

template <class T>
void forward(const ActivationForward& op) {
  const T* x = static_cast<const T*>(op.x);
  T* y = static_cast<T*>(op.y);
  for (Index i = 0; i < op.count; ++i)
    y[i] = from_float<T>(activate(op.activation, to_float(x[i])));
}

template <class T>
void backward(const ActivationBackward& op) {
  const T* dy = static_cast<const T*>(op.dy);
  const T* gate = static_cast<const T*>(op.gate);
  T* dx = static_cast<T*>(op.dx);
  for (Index i = 0; i < op.count; ++i)
    dx[i] = from_float<T>(to_float(dy[i]) * activation_slope(op.activation, to_float(gate[i])));
}

template <class T>
void drop(const Dropout& op) {
  const T* x = static_cast<const T*>(op.x);
  T* y = static_cast<T*>(op.y);
  uint64_t key = static_cast<uint32_t>(op.seed[0]) |
                 static_cast<uint64_t>(static_cast<uint32_t>(op.seed[1])) << 32;
  uint32_t step = static_cast<uint32_t>(*op.applied_steps + *op.skipped_steps);
  uint32_t layer = static_cast<uint32_t>(op.layer);
  float scale = static_cast<float>(1.0 / (1.0 - static_cast<double>(op.p)));
  for (Index row = 0; row < op.rows; ++row)
    for (Index first = 0; first < op.elements; first += 4) {
      PhiloxBlock block = philox4x32(
          {{static_cast<uint32_t>(first / 4), static_cast<uint32_t>(row), layer, step}}, key);
      for (Index lane = 0; lane < 4 && first + lane < op.elements; ++lane) {
        Index i = row * op.elements + first + lane;
        bool keep = uniform_of(block.word[lane]) >= op.p;
        y[i] = from_float<T>(keep ? to_float(x[i]) * scale : 0.0f);
      }
    }
}

}  // namespace

void run(const ActivationForward& op) {
  with_type(op.type, [&](auto t) { forward<decltype(t)>(op); });
}

void run(const ActivationBackward& op) {
  with_type(op.type, [&](auto t) { backward<decltype(t)>(op); });
}

void run(const Dropout& op) {
  with_type(op.type, [&](auto t) { drop<decltype(t)>(op); });
}

void run(const Cast& op) {
  with_type(op.from_type, [&](auto from_type) {
    with_type(op.to_type, [&](auto to_type) {
      const auto* from = static_cast<const decltype(from_type)*>(op.from);
      auto* to = static_cast<decltype(to_type)*>(op.to);
      for (Index i = 0; i < op.count; ++i) to[i] = from_float<decltype(to_type)>(to_float(from[i]));
    });
  });
}

void run(const Clear& op) { std::memset(op.to, 0, op.bytes); }

void run(const Copy& op) { std::memmove(op.to, op.from, op.bytes); }

}  // namespace rn
