// What this processor offers, and which instruction set the kernels use.
//
// AVX2 with FMA and F16C is the floor (x86-64-v3); AVX-512 (x86-64-v4), its products of bf16 pairs
// (AVX512_BF16) and AMX are used where the processor and the kernel allow them.
// JIGE_ISA=avx2|avx512|avx512_bf16|amx lowers the choice, never raises it.
// Threads: every function may be called from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace jige {

// Ordered: a later one includes the earlier ones.
enum class Isa { kAvx2, kAvx512, kAvx512Bf16, kAmx };
inline constexpr size_t kIsaCount = 4;

// "avx2", "avx512", "avx512_bf16" or "amx".
const char* isa_name(Isa isa);

struct CpuFeatures {
  std::string model_name;
  bool avx2 = false;    // with FMA, F16C, BMI2
  bool avx512 = false;  // F, BW, CD, DQ, VL
  bool avx512_bf16 = false;
  bool avx512_vnni = false;
  bool amx_bf16 = false;  // with the permission to use tiles granted by the kernel
  bool amx_int8 = false;
  int amd_family = 0;     // of AMD's processors: 0x19 are Zen 3 and 4, 0x1a is Zen 5; 0: others
  int logical_count = 0;  // processors this process may run on
};

// Read once; asks the kernel for the AMX tile permission where the processor has AMX.
const CpuFeatures& cpu_features();

// Lets cpu_features() say that there is AMX where there is AVX512_BF16, for tests that emulate its
// instructions (tests/fakes/amx_emulation.cc). REQUIRES: nobody has asked for features before.
void pretend_amx();

// Instruction sets usable here, weakest first; never empty on a supported machine.
std::vector<Isa> supported_isas();

// The instruction set kernels use: the strongest supported one, or what JIGE_ISA lowers it to.
Isa active_isa();

// Replaces the choice of active_isa(), for tests and benchmarks.
// REQUIRES: isa is supported; no kernel is running.
void set_active_isa(Isa isa);

}  // namespace jige
