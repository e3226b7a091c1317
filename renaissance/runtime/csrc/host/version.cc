#include "host/export.h"

RN_EXPORT const char* rn_version() { return RN_VERSION; }
