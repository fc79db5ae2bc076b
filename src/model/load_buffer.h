// LoadBuffer: memory for a parameter that has to be made out of what files hold. It is kept for the
// next one: fresh memory costs more to clear than a matrix in few bits costs to decode.
//
// Invariant: it holds the values of one parameter at a time. Threads: one at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <string>

#include "base/result.h"
#include "tensor/view.h"

namespace jige::model {

class LoadBuffer {
 public:
  // Memory without values, until the next call. Fails with kExhausted, naming the folder.
  Result<TensorView> make(const std::string& folder, DType dtype, const Shape& shape) {
    const int64_t bytes = dtype_bytes(dtype, shape.count());
    if (bytes > size_) {
      memory_.reset();  // never both at once
      size_ = 0;
      memory_.reset(new (std::nothrow) std::byte[static_cast<size_t>(bytes)]);
      if (!memory_) return fail(Code::kExhausted, "{}: no {} bytes to load with", folder, bytes);
      size_ = bytes;
    }
    return TensorView::of(memory_.get(), dtype, shape);
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  int64_t size_ = 0;
};

}  // namespace jige::model
