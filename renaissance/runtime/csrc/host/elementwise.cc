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

float dropout_scale(float p) { return static_cast<float>(1.0 / (1.0 - static_cast<double>(p))); }

template <class T>
void drop(const DropoutForward& op) {
  const T* x = static_cast<const T*>(op.x);
  T* y = static_cast<T*>(op.y);
  uint64_t key = static_cast<uint32_t>(op.seed[0]) |
                 static_cast<uint64_t>(static_cast<uint32_t>(op.seed[1])) << 32;
  uint32_t step = static_cast<uint32_t>(*op.applied_steps + *op.skipped_steps);
  uint32_t layer = static_cast<uint32_t>(op.layer);
  float scale = dropout_scale(op.p);
  for (Index row = 0; row < op.rows; ++row)
    for (Index first = 0; first < op.elements; first += 4) {
      PhiloxBlock block = philox4x32(
          {{static_cast<uint32_t>(first / 4), static_cast<uint32_t>(row), layer, step}}, key);
      for (Index lane = 0; lane < 4 && first + lane < op.elements; ++lane) {
        Index i = row * op.elements + first + lane;
        bool keep = uniform_of(block.word[lane]) >= op.p;
        if (op.mask) op.mask[i] = keep ? 1 : 0;
        y[i] = from_float<T>(keep ? to_float(x[i]) * scale : 0.0f);
      }
    }
}

template <class T>
void drop_backward(const DropoutBackward& op) {
  const T* dy = static_cast<const T*>(op.dy);
  T* dx = static_cast<T*>(op.dx);
  float scale = dropout_scale(op.p);
  for (Index i = 0; i < op.count; ++i)
    dx[i] = from_float<T>(op.mask[i] ? to_float(dy[i]) * scale : 0.0f);
}

template <class From, class To>
void load(const LoadBatch& op) {
  Index batch = op.batch ? *op.batch : 0;
  const From* images = static_cast<const From*>(op.images) + batch * op.pixels * op.channels;
  To* data = static_cast<To*>(op.data);
  for (Index pixel = 0; pixel < op.pixels; ++pixel)
    for (Index c = 0; c < op.padded_channels; ++c)
      data[pixel * op.padded_channels + c] = from_float<To>(
          c < op.channels ? to_float(images[pixel * op.channels + c]) : 0.0f);
  std::memcpy(op.label, op.labels + batch * op.rows, op.rows * sizeof(int));
}

}  // namespace

void run(const ActivationForward& op) {
  with_type(op.type, [&](auto t) { forward<decltype(t)>(op); });
}

void run(const ActivationBackward& op) {
  with_type(op.type, [&](auto t) { backward<decltype(t)>(op); });
}

void run(const DropoutForward& op) {
  with_type(op.type, [&](auto t) { drop<decltype(t)>(op); });
}

void run(const DropoutBackward& op) {
  with_type(op.type, [&](auto t) { drop_backward<decltype(t)>(op); });
}

void run(const LoadBatch& op) {
  with_type(op.from_type, [&](auto from) {
    with_type(op.type, [&](auto to) { load<decltype(from), decltype(to)>(op); });
  });
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

void run(const Copy& op) {
  if (!op.flag || !*op.flag) std::memmove(op.to, op.from, op.bytes);
}

}  // namespace rn
