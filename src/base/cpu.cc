#include "base/cpu.h"

#include <cpuid.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/log.h"

namespace jige {
namespace {

constexpr int kArchReqXcompPerm = 0x1023;  // arch_prctl code of Linux 5.16 and later
constexpr int kXfeatureTileData = 18;

std::atomic<bool> amx_pretended = false;

uint64_t read_xcr0() {
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

std::string read_model_name() {
  uint32_t words[12] = {};
  uint32_t highest = __get_cpuid_max(0x80000000u, nullptr);
  if (highest < 0x80000004u) return "unknown";
  for (uint32_t i = 0; i < 3; ++i) {
    __get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                &words[4 * i + 3]);
  }
  char text[sizeof words + 1] = {};
  std::memcpy(text, words, sizeof words);
  std::string name(text);
  name.erase(0, name.find_first_not_of(' '));
  return name.substr(0, name.find_last_not_of(' ') + 1);
}

// 0: not of AMD.
int read_amd_family() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  char vendor[12];
  if (!__get_cpuid(0, &a, &b, &c, &d)) return 0;
  std::memcpy(vendor, &b, 4);
  std::memcpy(vendor + 4, &d, 4);
  std::memcpy(vendor + 8, &c, 4);
  if (std::string_view(vendor, sizeof vendor) != "AuthenticAMD") return 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  return static_cast<int>(((a >> 8) & 0xf) + ((a >> 20) & 0xff));
}

CpuFeatures detect() {
  CpuFeatures features;
  features.model_name = read_model_name();
  features.amd_family = read_amd_family();
  cpu_set_t set;
  CPU_ZERO(&set);
  // The call fails where the machine has more processors than the set has room for.
  features.logical_count = sched_getaffinity(0, sizeof set, &set) == 0
                               ? CPU_COUNT(&set)
                               : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));

  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return features;
  const bool fma = c & (1u << 12);
  const bool osxsave = c & (1u << 27);
  const bool f16c = c & (1u << 29);
  if (!osxsave || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
  const uint64_t xcr0 = read_xcr0();
  const bool ymm_state = (xcr0 & 0x6) == 0x6;
  const bool zmm_state = (xcr0 & 0xe6) == 0xe6;
  const bool tile_state = (xcr0 & 0x60000) == 0x60000;
  const auto ebx = [&](int bit) { return (b >> bit) & 1u; };
  features.avx2 = ymm_state && fma && f16c && ebx(5) && ebx(8);
  features.avx512 =
      features.avx2 && zmm_state && ebx(16) && ebx(17) && ebx(28) && ebx(30) && ebx(31);
  features.avx512_vnni = features.avx512 && (c & (1u << 11));
  const bool amx_tile = d & (1u << 24);
  const bool amx_bf16 = d & (1u << 22);
  const bool amx_int8 = d & (1u << 25);
  if (features.avx512 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
    features.avx512_bf16 = a & (1u << 5);
  }
  if (features.avx512 && tile_state && amx_tile &&
      syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0) {
    features.amx_bf16 = amx_bf16;
    features.amx_int8 = amx_int8;
  }
  if (amx_pretended && features.avx512_bf16) features.amx_bf16 = features.amx_int8 = true;
  return features;
}

Isa choose_isa() {
  Isa best = supported_isas().back();
  const char* wanted = std::getenv("JIGE_ISA");
  if (!wanted) return best;
  std::string known;
  for (const Isa isa : supported_isas()) {
    if (std::string_view(wanted) == isa_name(isa)) return std::min(isa, best);
    known += known.empty() ? "" : ", ";
    known += isa_name(isa);
  }
  log_warn("JIGE_ISA is \"{}\", which is not one of {}; {} is used", wanted, known, isa_name(best));
  return best;
}

std::atomic<Isa>& active_isa_slot() {
  static std::atomic<Isa> slot = choose_isa();
  return slot;
}

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
    case Isa::kAmx:
      return "amx";
  }
  return "avx2";
}

void pretend_amx() { amx_pretended = true; }

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas = {Isa::kAvx2};
  if (cpu_features().avx512) isas.push_back(Isa::kAvx512);
  if (cpu_features().avx512_bf16) isas.push_back(Isa::kAvx512Bf16);
  // The code for tiles rounds with AVX512_BF16, which a virtual machine may hide beside them.
  if (cpu_features().amx_bf16 && cpu_features().avx512_bf16) isas.push_back(Isa::kAmx);
  return isas;
}

Isa active_isa() { return active_isa_slot().load(std::memory_order_relaxed); }

void set_active_isa(Isa isa) {
  const auto isas = supported_isas();
  JIGE_CHECK(std::find(isas.begin(), isas.end(), isa) != isas.end(), "{} is not supported here",
             isa_name(isa));
  active_isa_slot().store(isa, std::memory_order_relaxed);
}

}  // namespace jige
