// A stand-in for cuDNN and the CUDA driver in one library: six engines, of which 1 is not
// deterministic, 2 needs tensor cores, 3 too much workspace, 4 is faster than 0, and 5 is hopeless.
// What is done with them is written to a log.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace {

struct Descriptor {
  int type = 0;
  std::map<int, int64_t> held;  // the first value of every attribute, as far as it is 8 bytes wide
};

int64_t last_engine = -1;

void log(const std::string& line) {
  if (FILE* file = std::fopen(std::getenv("FAKE_LOG"), "a")) {
    std::fprintf(file, "%s\n", line.c_str());
    std::fclose(file);
  }
}

Descriptor* at(const void* values, int index) {
  return static_cast<Descriptor* const*>(values)[index];
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return 91900; }
const char* cudnnGetErrorString(int) { return "FAKE_STATUS"; }
void cudnnGetLastErrorString(char* text, size_t) { text[0] = '\0'; }
int cudnnCreate(void** handle) {
  log("handle");
  *handle = new int;
  return 0;
}
int cudnnSetStream(void*, void*) { return 0; }
int cudnnBackendCreateDescriptor(int type, void** made) {
  *made = new Descriptor{type, {}};
  return 0;
}
int cudnnBackendDestroyDescriptor(void* one) {
  delete static_cast<Descriptor*>(one);
  return 0;
}
int cudnnBackendFinalize(void* one) {
  auto& held = static_cast<Descriptor*>(one)->held;
  return held.count(1301) && held[1301] > 9 ? 3000 : 0;  // there is no such engine
}
int cudnnBackendSetAttribute(void* one, int name, int type, int64_t, const void* values) {
  auto& held = static_cast<Descriptor*>(one)->held;
  bool narrow = type != 0 && type != 3 && type != 6 && type != 15;
  held[name] = narrow ? *static_cast<const int*>(values) : *static_cast<const int64_t*>(values);
  if (name == 300) held[1301] = at(values, 0)->held[1301];
  if (name == 401) held[1301] = at(values, 0)->held[1301];
  return 0;
}
int cudnnBackendGetAttribute(void* one, int name, int, int64_t, int64_t* count, void* values) {
  auto& held = static_cast<Descriptor*>(one)->held;
  *count = 1;
  if (name == 202) {  // configurations, one for each engine
    *count = held[200] == 3 ? 6 : 0;
    for (int i = 0; i < *count; ++i) at(values, i)->held[1301] = i;
  } else if (name == 300) {
    at(values, 0)->held[1301] = held[1301];
  } else if (name == 302) {
    at(values, 0)->held = {{600, 7}, {601, held[1301] + 10}};
  } else if (name == 600) {
    *static_cast<int*>(values) = static_cast<int>(held[600]);
  } else if (name == 1303) {
    *count = held[1301] == 1 || held[1301] == 2;
    if (*count) *static_cast<int*>(values) = held[1301] == 1 ? 4 : 0;
  } else if (name == 402) {
    *static_cast<int64_t*>(values) = held[1301] == 3 ? int64_t{1} << 40 : 64;
  } else {
    *static_cast<int64_t*>(values) = held[name];
  }
  return 0;
}
int cudnnBackendExecute(void*, void* plan, void*) {
  last_engine = static_cast<Descriptor*>(plan)->held[1301];
  log("run " + std::to_string(last_engine));
  return 0;
}

int cuMemAlloc_v2(uint64_t* place, size_t) {
  *place = 256;
  return std::getenv("FAKE_FULL") ? 2 : 0;
}
int cuEventElapsedTime(float* milliseconds, void*, void*) {
  *milliseconds = last_engine == 0 ? 4.0f : last_engine == 5 ? 40.0f : 2.0f;
  if (std::getenv("FAKE_SLOW")) *milliseconds *= std::atoi(std::getenv("FAKE_SLOW"));
  return 0;
}
#define RN_NOTHING(name) \
  int name() { return 0; }
RN_NOTHING(cuInit)
RN_NOTHING(cuDeviceGet)
RN_NOTHING(cuDevicePrimaryCtxRetain)
RN_NOTHING(cuCtxPushCurrent_v2)
RN_NOTHING(cuCtxPopCurrent_v2)
RN_NOTHING(cuCtxGetDevice)
RN_NOTHING(cuStreamGetCtx)
RN_NOTHING(cuMemFree_v2)
RN_NOTHING(cuMemcpyHtoD_v2)
RN_NOTHING(cuMemcpyDtoD_v2)
RN_NOTHING(cuStreamCreate)
RN_NOTHING(cuStreamDestroy_v2)
RN_NOTHING(cuStreamSynchronize)
RN_NOTHING(cuStreamBeginCapture_v2)
RN_NOTHING(cuStreamEndCapture)
RN_NOTHING(cuGraphInstantiateWithFlags)
RN_NOTHING(cuGraphLaunch)
RN_NOTHING(cuGraphDestroy)
RN_NOTHING(cuGraphExecDestroy)
RN_NOTHING(cuEventCreate)
RN_NOTHING(cuEventRecord)
RN_NOTHING(cuEventDestroy_v2)

}  // extern "C"
