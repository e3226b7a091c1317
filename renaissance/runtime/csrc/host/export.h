// Marks a plain C function that Python finds by name; everything else in the library stays hidden.
#pragma once

#include <cstddef>
#include <cstdint>

#define RN_EXPORT extern "C" __attribute__((visibility("default")))
