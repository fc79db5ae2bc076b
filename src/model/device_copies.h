// DeviceCopies: tensors of the host, such as files' maps, as ops read them: where they are on a
// CPU, copied to the device's memory on a GPU.
//
// Threads: one at a time.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/tensor_convert.h"
#include "tensor/arena.h"

namespace jige::model {

class DeviceCopies {
 public:
  // `name` appears in errors. The stream must outlive it.
  DeviceCopies(Stream& stream, const std::string& name)
      : stream_(stream), arena_(stream.device(), stream.device().name() + " " + name) {}

  // A view for ops on the stream, until clear(); of type `dtype`, to which the stored one can be
  // widened. Fails with kExhausted.
  Result<TensorView> of(const TensorView& stored, DType dtype) {
    if (stream_.device().kind() == DeviceKind::kCpu && stored.dtype == dtype) return stored;
    JIGE_TRY(Tensor tensor, arena_.make(dtype, stored.shape));
    const TensorView view = tensor.view();
    tensors_.push_back(std::move(tensor));
    JIGE_DO(copy_converted(stream_, view, stored));
    return view;
  }
  // Waits for the stream and gives the memory back.
  void clear() {
    stream_.synchronize();
    tensors_.clear();
  }

 private:
  Stream& stream_;
  Arena arena_;
  std::vector<Tensor> tensors_;
};

}  // namespace jige::model
