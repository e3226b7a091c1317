// Text handed to Python in a buffer that it brings.
#pragma once

#include <cstring>
#include <string>

namespace rn {

// Copies a text, cut to the capacity. Returns its whole length.
inline int tell(const std::string& text, char* message, int capacity) {
  if (capacity > 0) {
    std::strncpy(message, text.c_str(), static_cast<size_t>(capacity) - 1);
    message[capacity - 1] = '\0';
  }
  return static_cast<int>(text.size());
}

}  // namespace rn
