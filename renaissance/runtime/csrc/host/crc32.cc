// CRC-32 (polynomial 0xEDB88320, as in zlib), eight bytes a round: the checksum of DTS files.
#include <array>
#include <cstring>

#include "host/export.h"

namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1u)));
    tables[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; ++byte)
    for (int k = 1; k < 8; ++k)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 255u];
  return tables;
}

}  // namespace

// Continue the checksum `crc` (0 at the start) over `size` bytes.
RN_EXPORT uint32_t rn_crc32(uint32_t crc, const uint8_t* data, size_t size) {
  static const Tables table = make_tables();
  crc = ~crc;
  for (; size >= 8; size -= 8, data += 8) {
    uint32_t low, high;
    std::memcpy(&low, data, 4);
    std::memcpy(&high, data + 4, 4);
    low ^= crc;
    crc = table[7][low & 255] ^ table[6][(low >> 8) & 255] ^ table[5][(low >> 16) & 255] ^
          table[4][low >> 24] ^ table[3][high & 255] ^ table[2][(high >> 8) & 255] ^
          table[1][(high >> 16) & 255] ^ table[0][high >> 24];
  }
  for (; size > 0; --size, ++data) crc = (crc >> 8) ^ table[0][(crc ^ *data) & 255u];
  return ~crc;
}
