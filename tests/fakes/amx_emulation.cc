// AMX on processors without it: tile instructions raise SIGILL there, and this handler does in
// their place what they are documented to do (Intel's instruction set reference, TDPBF16PS and
// others). So the code for tiles runs in tests on every machine with AVX512_BF16
// (docs/ARCHITECTURE.md).
//
// Linked into a test program, it does nothing unless JIGE_EMULATE_AMX=1; then it lets
// cpu_features() say that there is AMX, or ends the program with 77 (skipped) where it cannot: no
// AVX512_BF16, which the code for tiles uses beside them, or an AMX that is there.
// An instruction traps the first time that it is met and is no measure of speed (trap_stubs.h).
// Threads: tiles are thread-local, as those of the processor.
#include <cpuid.h>
#include <immintrin.h>
#include <signal.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/cpu.h"
#include "fakes/trap_stubs.h"

namespace jige {
namespace {

constexpr int kTiles = 8;
constexpr int kRowsMax = 16;
constexpr int kRowBytesMax = 64;
constexpr int kSkipped = 77;
constexpr size_t kInstructionBytesMax = 10;

// The operand of LDTILECFG.
struct Config {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(Config) == 64);

struct Tile {
  int rows = 0;
  int row_bytes = 0;
  alignas(64) uint8_t bytes[kRowsMax][kRowBytesMax] = {};
};

struct TileState {
  bool configured = false;
  Tile tiles[kTiles];
};
thread_local TileState state;

// A three-byte VEX instruction of map 0F38 with W 0 and 128 bits, as all of AMX are.
struct Instruction {
  uint8_t opcode = 0;
  int prefix = 0;  // 0 none, 1 66, 2 F3, 3 F2
  int reg = 0;     // of ModRM, with R
  int rm = 0;      // of ModRM, with B; a tile where `memory` is false
  int vvvv = 0;    // the third operand
  bool memory = false;
  uint64_t address = 0;
  int64_t stride = 0;  // of rows of a tile in memory: the index register, scaled
  int length = 0;
};

TrapRegisters registers_of(const ucontext_t& context) {
  constexpr int kPlaces[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                               REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                               REG_R12, REG_R13, REG_R14, REG_R15};
  TrapRegisters registers;
  for (int i = 0; i < 16; ++i) {
    registers.general[i] = static_cast<uint64_t>(context.uc_mcontext.gregs[kPlaces[i]]);
  }
  return registers;
}

// Reads the memory operand behind ModRM at code[4], of an instruction that stands at `place`; its
// length is added to the instruction's.
bool decode_memory(const uint8_t* code, const uint8_t* place, const TrapRegisters& registers,
                   int index_high, int base_high, Instruction& found) {
  const int mod = code[4] >> 6;
  const int low = code[4] & 7;
  int at = 5;
  bool has_base = true;
  int base = low | base_high;
  if (low == 4) {
    const uint8_t sib = code[at++];
    const int index = (sib >> 3 & 7) | index_high;
    if (index != 4) {
      found.stride = static_cast<int64_t>(registers.general[index]) << (sib >> 6);
    }
    base = (sib & 7) | base_high;
    has_base = (sib & 7) != 5 || mod != 0;
  } else if (mod == 0 && low == 5) {
    int32_t offset;
    std::memcpy(&offset, code + at, sizeof offset);
    found.length = at + 4;
    found.address = reinterpret_cast<uint64_t>(place) + static_cast<uint64_t>(found.length) +
                    static_cast<uint64_t>(int64_t{offset});
    return true;
  }
  int64_t offset = 0;
  if (mod == 1) {
    offset = static_cast<int8_t>(code[at++]);
  } else if (mod == 2 || !has_base) {
    int32_t wide;
    std::memcpy(&wide, code + at, sizeof wide);
    offset = wide;
    at += 4;
  }
  found.address = (has_base ? registers.general[base] : 0) + static_cast<uint64_t>(offset);
  found.length = at;
  return mod != 3;
}

// Whether an AMX instruction stands at `code`, a copy of what stands at `place`.
bool decode(const uint8_t* code, const uint8_t* place, const TrapRegisters& registers,
            Instruction& found) {
  if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x84) != 0) return false;
  found.opcode = code[3];
  found.prefix = code[2] & 3;
  found.vvvv = ~code[2] >> 3 & 15;
  found.reg = code[4] >> 3 & 7;
  const int index_high = code[1] & 0x40 ? 0 : 8;
  const int base_high = code[1] & 0x20 ? 0 : 8;
  found.rm = (code[4] & 7) | base_high;
  found.length = 5;
  if (code[4] >> 6 == 3) return true;
  found.memory = true;
  return decode_memory(code, place, registers, index_high, base_high, found);
}

bool configure(const Config& config) {
  if (config.palette != 1 || config.start_row != 0) return false;
  state = {};
  for (int i = 0; i < kTiles; ++i) {
    if (config.rows[i] > kRowsMax || config.row_bytes[i] > kRowBytesMax) return false;
    state.tiles[i].rows = config.rows[i];
    state.tiles[i].row_bytes = config.row_bytes[i];
  }
  state.configured = true;
  return true;
}

void load(Tile& tile, uint64_t address, int64_t stride) {
  std::memset(tile.bytes, 0, sizeof tile.bytes);
  for (int row = 0; row < tile.rows; ++row) {
    std::memcpy(tile.bytes[row],
                reinterpret_cast<const void*>(address + static_cast<uint64_t>(row * stride)),
                static_cast<size_t>(tile.row_bytes));
  }
}

void store(const Tile& tile, uint64_t address, int64_t stride) {
  for (int row = 0; row < tile.rows; ++row) {
    std::memcpy(reinterpret_cast<void*>(address + static_cast<uint64_t>(row * stride)),
                tile.bytes[row], static_cast<size_t>(tile.row_bytes));
  }
}

// Eight columns of a row: sums + (even chain + odd chain), both from zero over the pairs of depths.
void multiply_bf16_columns(float* sums, const uint8_t* left, const Tile& right, int pairs,
                           int column) {
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  __m256 even = _mm256_setzero_ps();
  __m256 odd = even;
  for (int pair = 0; pair < pairs; ++pair) {
    uint32_t both;
    std::memcpy(&both, left + 4 * pair, sizeof both);
    const __m256i a = _mm256_set1_epi32(static_cast<int>(both));
    const __m256i b =
        _mm256_load_si256(reinterpret_cast<const __m256i*>(right.bytes[pair] + 4 * column));
    even = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)),
                           _mm256_castsi256_ps(_mm256_slli_epi32(b, 16)), even);
    odd = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(a, high)),
                          _mm256_castsi256_ps(_mm256_and_si256(b, high)), odd);
  }
  _mm256_store_ps(sums + column,
                  _mm256_add_ps(_mm256_load_ps(sums + column), _mm256_add_ps(even, odd)));
}

// TDPBF16PS. Numbers below the normal range count as zeros, as operands and as results.
void multiply_bf16(Tile& dst, const Tile& left, const Tile& right) {
  const unsigned modes = _mm_getcsr();
  _mm_setcsr(0x1f80 | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
  for (int row = 0; row < dst.rows; ++row) {
    auto* sums = reinterpret_cast<float*>(dst.bytes[row]);
    for (int column = 0; column < dst.row_bytes / 4; column += 8) {
      multiply_bf16_columns(sums, left.bytes[row], right, left.row_bytes / 4, column);
    }
  }
  _mm_setcsr(modes);
}

// TDPB**D: products of bytes, each side signed or not, summed exactly into 32 bits.
template <typename Left, typename Right>
void multiply_bytes(Tile& dst, const Tile& left, const Tile& right) {
  for (int row = 0; row < dst.rows; ++row) {
    auto* sums = reinterpret_cast<int32_t*>(dst.bytes[row]);
    const auto* a = reinterpret_cast<const Left*>(left.bytes[row]);
    for (int group = 0; group < left.row_bytes / 4; ++group) {
      const auto* b = reinterpret_cast<const Right*>(right.bytes[group]);
      for (int column = 0; column < dst.row_bytes / 4; ++column) {
        for (int i = 0; i < 4; ++i) sums[column] += a[4 * group + i] * b[4 * column + i];
      }
    }
  }
}

bool multiply(const Instruction& found) {
  if (found.memory || found.rm >= kTiles || found.vvvv >= kTiles) return false;
  Tile& dst = state.tiles[found.reg];
  const Tile& left = state.tiles[found.rm];
  const Tile& right = state.tiles[found.vvvv];
  const bool shapes =
      dst.rows == left.rows && dst.row_bytes == right.row_bytes && right.rows == left.row_bytes / 4;
  if (!shapes || found.reg == found.rm || found.reg == found.vvvv || found.rm == found.vvvv) {
    return false;
  }
  if (found.opcode == 0x5c) {
    if (found.prefix != 2) return false;
    multiply_bf16(dst, left, right);
    return true;
  }
  switch (found.prefix) {
    case 0:
      multiply_bytes<uint8_t, uint8_t>(dst, left, right);
      return true;
    case 1:
      multiply_bytes<uint8_t, int8_t>(dst, left, right);
      return true;
    case 2:
      multiply_bytes<int8_t, uint8_t>(dst, left, right);
      return true;
    default:
      multiply_bytes<int8_t, int8_t>(dst, left, right);
      return true;
  }
}

// LDTILECFG, TILERELEASE and TILEZERO.
bool change_tiles(const Instruction& found) {
  if (found.memory) {
    return found.prefix == 0 && found.reg == 0 &&
           configure(*reinterpret_cast<const Config*>(found.address));
  }
  if (found.prefix == 0) {
    state = {};
    return true;
  }
  Tile& tile = state.tiles[found.reg];
  std::memset(tile.bytes, 0, sizeof tile.bytes);
  return found.prefix == 3 && state.configured;
}

// Loads and stores of tiles.
bool move(const Instruction& found) {
  Tile& tile = state.tiles[found.reg];
  if (!found.memory || !state.configured || found.prefix == 0) return false;
  if (found.prefix == 2) {
    store(tile, found.address, found.stride);
  } else {
    load(tile, found.address, found.stride);
  }
  return true;
}

bool execute(const Instruction& found) {
  switch (found.opcode) {
    case 0x49:
      return change_tiles(found);
    case 0x4b:
      return move(found);
    case 0x5c:
    case 0x5e:
      return state.configured && multiply(found);
    default:
      return false;
  }
}

// Does what instructions of AMX say, one after the other, until another one comes; returns their
// length.
size_t execute_all(const uint8_t* code, const uint8_t* place, const TrapRegisters& registers) {
  size_t done = 0;
  for (Instruction found; done + kInstructionBytesMax <= TrapCode::kBytesMax &&
                          decode(code + done, place + done, registers, found);
       found = {}) {
    if (!execute(found)) break;
    done += static_cast<size_t>(found.length);
  }
  return done;
}

void end_as_illegal() {
  struct sigaction usual = {};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGILL, &usual, nullptr);
}

void execute_copy(const TrapCode& code, const TrapRegisters& registers) {
  if (execute_all(code.bytes, code.at, registers) == code.length) return;
  end_as_illegal();
  raise(SIGILL);
}

void on_illegal_instruction(int, siginfo_t*, void* raw) {
  auto& context = *static_cast<ucontext_t*>(raw);
  auto& next = context.uc_mcontext.gregs[REG_RIP];
  const auto* const code = reinterpret_cast<const uint8_t*>(next);
  const CodeLock lock;
  if (is_emulated_without_trap(code)) return;  // another thread was here meanwhile
  const size_t done = execute_all(code, code, registers_of(context));
  if (done > 0) {
    emulate_without_trap(code, done, execute_copy);
    next += static_cast<greg_t>(done);
  } else {
    end_as_illegal();  // the instruction is met again
  }
}

[[noreturn]] void skip(const char* why) {
  std::printf("skipped: %s\n", why);
  std::fflush(stdout);
  std::_Exit(kSkipped);
}

bool processor_has(int leaf_part, bool in_eax, int bit) {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, static_cast<unsigned>(leaf_part), &a, &b, &c, &d)) return false;
  return (in_eax ? a : d) >> bit & 1;
}

struct Installation {
  Installation() {
    const char* wanted = std::getenv("JIGE_EMULATE_AMX");
    if (!wanted || std::strcmp(wanted, "1") != 0) return;
    if (processor_has(0, false, 24)) skip("this processor has AMX itself");
    if (!processor_has(1, true, 5)) skip("the code for tiles needs AVX512_BF16 beside them");
    struct sigaction action = {};
    action.sa_sigaction = on_illegal_instruction;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGILL, &action, nullptr);
    pretend_amx();
  }
};
const Installation installation;

}  // namespace
}  // namespace jige
