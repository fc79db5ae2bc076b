// Element types of 16 bits as kernels see them: plain bits, so that overloads tell them apart.
//
// They have the layout of jige::BFloat16 and jige::Float16 but bring no inline function along,
// which the sources compiled once per instruction set must not share. Threads: values.
#pragma once

#include <cstdint>

namespace jige {
enum class Isa;  // base/cpu.h
}

namespace jige::cpu {

struct Bf16 {
  uint16_t bits;
};

struct F16 {
  uint16_t bits;
};

enum class ElementType : uint8_t { kF32, kBf16, kF16 };

// Row t starts `stride` · t elements after `data`; the elements of a row are contiguous.
struct Rows {
  void* data;
  ElementType type;
  int64_t stride;
};

struct ConstRows {
  const void* data;
  ElementType type;
  int64_t stride;
};

}  // namespace jige::cpu
