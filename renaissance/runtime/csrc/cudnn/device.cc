#include "cudnn/device.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>

#include "cudnn/descriptor.h"
#include "host/half.h"

namespace rn::cudnn {
namespace {

constexpr int kRunsOfGraph = 4;
constexpr double kLoading = 1e5;   // microseconds that loading an engine takes at most
constexpr double kHopeless = 3.0;  // times the least: no noise makes up for that
constexpr double kLong = 5e4;      // microseconds: one run of that length says enough
constexpr int kThreadLocalCapture = 1, kNonBlocking = 1;  // numbers of the driver's interface
constexpr int64_t kPattern = 1 << 20;                     // bytes of random numbers, repeated

struct Driver {
  int (*init)(unsigned);
  int (*device_get)(int*, int);
  int (*context_retain)(void**, int);
  int (*context_push)(void*);
  int (*context_pop)(void**);
  int (*context_device)(int*);
  int (*stream_context)(void*, void**);
  int (*allocate)(uint64_t*, size_t);
  int (*free)(uint64_t);
  int (*upload)(uint64_t, const void*, size_t);
  int (*copy)(uint64_t, uint64_t, size_t);
  int (*stream_create)(void**, unsigned);
  int (*stream_destroy)(void*);
  int (*stream_wait)(void*);
  int (*capture_begin)(void*, int);
  int (*capture_end)(void*, void**);
  int (*graph_make)(void**, void*, uint64_t);
  int (*graph_launch)(void*, void*);
  int (*graph_destroy)(void*);
  int (*graph_run_destroy)(void*);
  int (*event_create)(void**, unsigned);
  int (*event_record)(void*, void*);
  int (*event_elapsed)(float*, void*, void*);
  int (*event_destroy)(void*);
  std::string problem;
};

Driver open_driver() {
  Driver cuda{};
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    cuda.problem = "no CUDA driver: libcuda.so.1 cannot be opened";
    return cuda;
  }
  auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    if (!function) cuda.problem = std::string("the CUDA driver is too old: it has no ") + name;
  };
  find("cuInit", cuda.init);
  find("cuDeviceGet", cuda.device_get);
  find("cuDevicePrimaryCtxRetain", cuda.context_retain);
  find("cuCtxPushCurrent_v2", cuda.context_push);
  find("cuCtxPopCurrent_v2", cuda.context_pop);
  find("cuCtxGetDevice", cuda.context_device);
  find("cuStreamGetCtx", cuda.stream_context);
  find("cuMemAlloc_v2", cuda.allocate);
  find("cuMemFree_v2", cuda.free);
  find("cuMemcpyHtoD_v2", cuda.upload);
  find("cuMemcpyDtoD_v2", cuda.copy);
  find("cuStreamCreate", cuda.stream_create);
  find("cuStreamDestroy_v2", cuda.stream_destroy);
  find("cuStreamSynchronize", cuda.stream_wait);
  find("cuStreamBeginCapture_v2", cuda.capture_begin);
  find("cuStreamEndCapture", cuda.capture_end);
  find("cuGraphInstantiateWithFlags", cuda.graph_make);
  find("cuGraphLaunch", cuda.graph_launch);
  find("cuGraphDestroy", cuda.graph_destroy);
  find("cuGraphExecDestroy", cuda.graph_run_destroy);
  find("cuEventCreate", cuda.event_create);
  find("cuEventRecord", cuda.event_record);
  find("cuEventElapsedTime", cuda.event_elapsed);
  find("cuEventDestroy_v2", cuda.event_destroy);
  return cuda;
}

const Driver& driver() {
  static const Driver opened = open_driver();
  if (!opened.problem.empty()) throw Failure(opened.problem);
  return opened;
}

void done(int code, const char* what) {
  if (code) throw Failure(std::string("CUDA error ") + std::to_string(code) + ": " + what);
}

// Something of the driver's that is given back when its owner goes.
struct Held {
  void* raw = nullptr;
  int (*release)(void*);
  explicit Held(int (*release)(void*)) : release(release) {}
  ~Held() {
    if (raw) release(raw);
  }
  Held(const Held&) = delete;
};

// Normal halves; read as floats they are small and finite.
const std::vector<uint16_t>& pattern() {
  static const std::vector<uint16_t> numbers = [] {
    std::vector<uint16_t> out(kPattern / 2);
    uint32_t state = 12345;
    auto uniform = [&state] {
      state = state * 1664525u + 1013904223u;
      return static_cast<float>(state >> 8) / 16777216.0f;
    };
    for (auto& one : out) {
      float sum = 0.0f;
      for (int i = 0; i < 12; ++i) sum += uniform();
      half number = to_half(sum - 6.0f);
      one = number.bits;
    }
    return out;
  }();
  return numbers;
}

}  // namespace

Current::Current(int device) : device_(device) {
  const Driver& cuda = driver();
  int number = 0;
  void* context = nullptr;
  done(cuda.init(0), "the driver does not start");
  done(cuda.device_get(&number, device), "there is no such device");
  done(cuda.context_retain(&context, number), "the device has no context");
  push(context);
}

Current::Current(void* stream) {
  void* context = nullptr;
  done(driver().stream_context(stream, &context), "the stream belongs to no context");
  push(context);
  done(driver().context_device(&device_), "the stream belongs to no device");
}

Current::~Current() {
  void* popped = nullptr;
  driver().context_pop(&popped);
}

void Current::push(void* context) {
  done(driver().context_push(context), "the context cannot be made current");
}

Scratch::Scratch(const std::vector<int64_t>& bytes) {
  const Driver& cuda = driver();
  for (int64_t size : bytes) {
    uint64_t place = 0;
    size_t whole = static_cast<size_t>(std::max(size, kPattern));
    if (cuda.allocate(&place, whole)) {
      for (void* taken : places_) cuda.free(reinterpret_cast<uint64_t>(taken));
      throw NoMemory("no device memory is left to try convolutions on: " +
                     std::to_string(whole) + " bytes");
    }
    places_.push_back(reinterpret_cast<void*>(place));
    cuda.upload(place, pattern().data(), kPattern);
    for (size_t filled = kPattern; filled < whole; filled *= 2)
      cuda.copy(place + filled, place, std::min(filled, whole - filled));
  }
}

Scratch::~Scratch() {
  for (void* place : places_) driver().free(reinterpret_cast<uint64_t>(place));
}

void run_once(const Enqueue& enqueue) {
  const Driver& cuda = driver();
  Held stream(cuda.stream_destroy);
  done(cuda.stream_create(&stream.raw, kNonBlocking), "no stream can be made");
  enqueue(stream.raw);
  done(cuda.stream_wait(stream.raw), "the convolution failed");
}

namespace {

// A stream and two events to time what it does.
struct Timer {
  Held stream{driver().stream_destroy}, begin{driver().event_destroy}, end{driver().event_destroy};

  Timer() {
    done(driver().stream_create(&stream.raw, kNonBlocking), "no stream can be made");
    done(driver().event_create(&begin.raw, 0), "no event can be made");
    done(driver().event_create(&end.raw, 0), "no event can be made");
  }

  float milliseconds(const Enqueue& work) {
    const Driver& cuda = driver();
    done(cuda.event_record(begin.raw, stream.raw), "an event is refused");
    work(stream.raw);
    done(cuda.event_record(end.raw, stream.raw), "an event is refused");
    done(cuda.stream_wait(stream.raw), "the convolution failed");
    float elapsed = 0.0f;
    done(cuda.event_elapsed(&elapsed, begin.raw, end.raw), "an event is lost");
    return elapsed;
  }
};

}  // namespace

double microseconds(const Enqueue& enqueue, int repeats, double& least) {
  const Driver& cuda = driver();
  Timer timer;
  const double first = timer.milliseconds(enqueue) * 1e3;  // loads what is loaded late
  const bool is_slow = first > kLoading + std::min(kHopeless * least, kLong);
  const double alone = is_slow ? first : timer.milliseconds(enqueue) * 1e3;
  const bool is_hopeless = alone > kHopeless * least;
  least = std::min(least, alone);
  if (is_hopeless || alone > kLong) return alone;
  Held graph(cuda.graph_destroy), run(cuda.graph_run_destroy);
  void* stream = timer.stream.raw;
  done(cuda.capture_begin(stream, kThreadLocalCapture), "no capture can begin");
  try {
    for (int i = 0; i < kRunsOfGraph; ++i) enqueue(stream);
  } catch (...) {
    cuda.capture_end(stream, &graph.raw);
    throw;
  }
  done(cuda.capture_end(stream, &graph.raw), "the convolution cannot be captured");
  done(cuda.graph_make(&run.raw, graph.raw, 0), "the captured convolution makes no graph");
  const Enqueue replay = [&](void* on) {
    done(cuda.graph_launch(run.raw, on), "the graph is refused");
  };
  timer.milliseconds(replay);  // uploads the graph
  std::vector<float> times;
  for (int i = 0; i < repeats; ++i) times.push_back(timer.milliseconds(replay));
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2] * 1e3 / kRunsOfGraph;
}

}  // namespace rn::cudnn
