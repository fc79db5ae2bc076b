// A parameter that had to be made out of what files hold, in memory of its own.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <string>

#include "base/result.h"
#include "tensor/view.h"

namespace jige::model {

struct LoadedParam {
  std::unique_ptr<std::byte[]> memory;
  TensorView view;
};

// Memory without values. Fails with kExhausted, naming the folder.
inline Result<LoadedParam> allocate_param(const std::string& folder, DType dtype,
                                          const Shape& shape) {
  const int64_t bytes = dtype_bytes(dtype, shape.count());
  LoadedParam param;
  param.memory.reset(new (std::nothrow) std::byte[static_cast<size_t>(bytes)]);
  if (!param.memory) return fail(Code::kExhausted, "{}: no {} bytes to load with", folder, bytes);
  param.view = TensorView::of(param.memory.get(), dtype, shape);
  return param;
}

}  // namespace jige::model
