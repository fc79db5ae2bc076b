// Counts how deep the interpreter's own calls nest, so that a template cannot exhaust the stack.
//
// Threads: one thread.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace jige::text::jinja {

class DepthGuard {
 public:
  static constexpr uint32_t kDepthMax = 500;

  explicit DepthGuard(uint32_t& depth) : depth_(depth) { ++depth_; }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

  // Fails with kExhausted when calls nest too deep.
  Status check() const {
    if (depth_ <= kDepthMax) return {};
    return fail(Code::kExhausted, "the template nests calls deeper than {} levels", kDepthMax);
  }

 private:
  uint32_t& depth_;
};

}  // namespace jige::text::jinja
