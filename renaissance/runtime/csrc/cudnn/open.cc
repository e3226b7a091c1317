// Opens cuDNN at run time, from wherever Python found it.
#include <dlfcn.h>

#include <mutex>

#include "cudnn/interface.h"
#include "host/export.h"
#include "host/message.h"

namespace rn::cudnn {
namespace {

std::mutex opening;
Library opened;
bool is_open = false;

template <class Function>
void find(void* from, const char* name, Function& function, std::string& problem) {
  function = reinterpret_cast<Function>(dlsym(from, name));
  if (!function && problem.empty()) problem = std::string("this cuDNN has no ") + name;
}

Library open_library(const char* path) {
  Library library{};
  void* from = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!from) {
    const char* why = dlerror();
    library.problem = why ? why : std::string(path) + " cannot be opened";
    return library;
  }
  std::string& problem = library.problem;
  find(from, "cudnnGetVersion", library.version, problem);
  find(from, "cudnnGetErrorString", library.error_string, problem);
  find(from, "cudnnGetLastErrorString", library.last_error, problem);
  find(from, "cudnnCreate", library.create, problem);
  find(from, "cudnnSetStream", library.set_stream, problem);
  find(from, "cudnnBackendCreateDescriptor", library.create_descriptor, problem);
  find(from, "cudnnBackendDestroyDescriptor", library.destroy_descriptor, problem);
  find(from, "cudnnBackendFinalize", library.finalize, problem);
  find(from, "cudnnBackendSetAttribute", library.set_attribute, problem);
  find(from, "cudnnBackendGetAttribute", library.get_attribute, problem);
  find(from, "cudnnBackendExecute", library.execute, problem);
  if (problem.empty() && library.version() < kOldestVersion)
    problem = "cuDNN " + std::to_string(library.version()) + " is older than 9.0";
  return library;
}

}  // namespace

const Library& library() {
  static const Library none = [] {
    Library library{};
    library.problem = "cuDNN was not opened in this process";
    return library;
  }();
  std::lock_guard lock(opening);
  return is_open ? opened : none;
}

}  // namespace rn::cudnn

// Opens cuDNN, once in a process. Returns its version (9.19.0 is 91900), or -1 and a message.
RN_EXPORT int rn_cudnn_open(const char* path, char* message, int capacity) {
  using namespace rn::cudnn;
  std::lock_guard lock(opening);
  if (!is_open) {
    Library candidate = open_library(path);
    if (!candidate.problem.empty()) {
      rn::tell(candidate.problem, message, capacity);
      return -1;
    }
    opened = candidate;
    is_open = true;
  }
  return static_cast<int>(opened.version());
}
