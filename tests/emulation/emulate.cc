// One kernel, compiled for a processor. RN_SOURCE is its file, RN_KERNEL its name, RN_RECORD its record.
#include "cuda.h"
#include "host/half.h"
#include "primitives.cuh"

namespace rn {

typedef const char* SharedAddress;

inline float half_to_float(half_bits h) { return to_float(half{h}); }
inline half_bits float_to_half(float f) { return to_half(f).bits; }

inline uint pack_halves(float low, float high) {
  return float_to_half(low) | static_cast<uint>(float_to_half(high)) << 16;
}

inline void unpack_halves(float& low, float& high, uint pair) {
  low = half_to_float(static_cast<half_bits>(pair & 0xFFFFu));
  high = half_to_float(static_cast<half_bits>(pair >> 16));
}

inline void forget_loads() {}

inline uint add_zero(uint pair) {
  uint sum = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    uint h = pair >> shift & 0xFFFFu;
    bool is_nan = (h & 0x7FFFu) > 0x7C00u;
    sum |= (is_nan ? 0x7FFFu : (h == 0x8000u ? 0u : h)) << shift;
  }
  return sum;
}

template <class Choose>
uint each_half(uint a, uint b, Choose choose) {
  uint pair = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    float x = half_to_float(static_cast<half_bits>(a >> shift));
    float y = half_to_float(static_cast<half_bits>(b >> shift));
    uint chosen = x != x || y != y ? 0x7FFFu : float_to_half(choose(x, y));
    pair |= chosen << shift;
  }
  return pair;
}

inline uint larger_halves(uint a, uint b) {
  return each_half(a, b, [](float x, float y) { return x > y || (x == y && !std::signbit(x)) ? x : y; });
}

inline uint smaller_halves(uint a, uint b) {
  return each_half(a, b, [](float x, float y) { return x < y || (x == y && std::signbit(x)) ? x : y; });
}

inline SharedAddress shared_address(const void* pointer) {
  return static_cast<const char*>(pointer);
}

template <int kBytes>
void copy_async(SharedAddress to, const void* from, bool inside) {
  if (inside) std::memcpy(const_cast<char*>(to), from, kBytes);
  else std::memset(const_cast<char*>(to), 0, kBytes);
}

inline uint load_shared(SharedAddress from) {
  uint word;
  std::memcpy(&word, from, 4);
  return word;
}

inline void commit_copies() {}
inline void keep_order() {}
template <int kPending>
void wait_copies() {}

inline void load_copied(uint (&r)[4], SharedAddress address) { std::memcpy(r, address, sizeof r); }

// Lane l gets row l / 4, columns 2 (l % 4) and the next, of each of four 8 x 8 matrices; lane 8 m + r
// has given the address of row r of matrix m.
inline void load_matrices(uint (&r)[4], SharedAddress address) {
  uint64_t word = reinterpret_cast<uint64_t>(address);
  emulation::show(&word, 1);
  unsigned lane = emulation::lane();
  for (int m = 0; m < 4; ++m) {
    auto row = reinterpret_cast<const half_bits*>(emulation::warp().slot[8 * m + lane / 4][0]);
    r[m] = row[lane % 4 * 2] | static_cast<uint>(row[lane % 4 * 2 + 1]) << 16;
  }
  emulation::done_reading();
}

inline void load_matrices_transposed(uint (&r)[4], SharedAddress address) {
  uint64_t word = reinterpret_cast<uint64_t>(address);
  emulation::show(&word, 1);
  unsigned lane = emulation::lane();
  for (int m = 0; m < 4; ++m) {
    half_bits pair[2];
    for (int i = 0; i < 2; ++i) {
      uint64_t row = emulation::warp().slot[8 * m + lane % 4 * 2 + i][0];
      pair[i] = reinterpret_cast<const half_bits*>(row)[lane / 4];
    }
    r[m] = pair[0] | static_cast<uint>(pair[1]) << 16;
  }
  emulation::done_reading();
}

inline float half_of(uint64_t word, int high) {
  return half_to_float(static_cast<half_bits>(word >> (16 * high)));
}

// d (16 x 8) += a (16 x 16) b (16 x 8), fragments as the instruction defines them.
inline void multiply_add(float (&d)[4], const uint (&a)[4], uint b0, uint b1) {
  uint64_t words[6] = {a[0], a[1], a[2], a[3], b0, b1};
  emulation::show(words, 6);
  unsigned lane = emulation::lane();
  auto& slot = emulation::warp().slot;
  for (int e = 0; e < 4; ++e) {
    unsigned row = lane / 4, column = lane % 4 * 2 + e % 2;
    for (unsigned k = 0; k < 16; ++k) {
      uint64_t left = slot[row * 4 + k % 8 / 2][e / 2 + k / 8 * 2];
      uint64_t right = slot[column * 4 + k % 8 / 2][4 + k / 8];
      d[e] += half_of(left, k % 2) * half_of(right, k % 2);
    }
  }
  emulation::done_reading();
}

}  // namespace rn

#include RN_SOURCE

thread_local unsigned char shared[256 * 1024] __attribute__((aligned(16)));
static const rn::RN_RECORD* record;

extern "C" int record_bytes() { return sizeof(rn::RN_RECORD); }

// Runs the kernel; shared memory starts as garbage in every block.
extern "C" void emulate(const void* given, const unsigned* grid, unsigned threads) {
  record = static_cast<const rn::RN_RECORD*>(given);
  emulation::grid = {grid[0], grid[1], grid[2]};
  emulation::block_size = {threads, 1, 1};
  emulation::body = [] { RN_KERNEL(*record); };
  for (unsigned z = 0; z < grid[2]; ++z)
    for (unsigned y = 0; y < grid[1]; ++y)
      for (unsigned x = 0; x < grid[0]; ++x) {
        emulation::block = {x, y, z};
        std::memset(shared, 0x7F, sizeof shared);
        emulation::run_block(threads);
      }
}
