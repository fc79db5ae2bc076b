// The tensors of a state dict that torch.save wrote, from the values of its pickle.
//
// A tensor is a call that is not made:
//   torch._utils._rebuild_tensor(storage, offset, size, stride)
//   torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks, …)
//   torch._utils._rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype, …)
//   torch._utils._rebuild_parameter(tensor, requires_grad, hooks)
// offset and stride count elements. A storage is the persistent id ("storage", torch.FloatStorage
// or the like, key, device, element count, …), and its bytes stand elsewhere in the file.
// The state dict is the dictionary at the top, or the only dictionary of tensors in it, as in
// {"state_dict": {…}, "epoch": 3}.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "formats/pickle.h"
#include "formats/stored_tensor.h"

namespace jige::formats {

inline constexpr size_t kTorchTensorsMax = size_t{1} << 18;

// What to do about a file that cannot be read.
inline constexpr std::string_view kTorchRemedy =
    "load it with torch.load(…, weights_only=True) and save a dictionary of contiguous tensors "
    "anew";

// A storage as a pickle names it.
struct TorchStorageName {
  std::string_view key;
  std::string_view dtype_name;  // as safetensors spells it; of one without a type "U8"
  uint64_t count = 0;           // of elements
  uint64_t bytes = 0;
};

// Bytes of the file.
struct TorchStorage {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
using TorchStorages = std::unordered_map<std::string_view, TorchStorage>;

// The storages that a pickle names, each once. Fails with kUnsupported on types of elements that
// are not known, kCorrupt on ids of another form.
Result<std::vector<TorchStorageName>> torch_storage_names(const Pickle& pickle,
                                                          std::string_view where);

// The tensors, with their places in the file, unordered. Fails with kUnsupported where there is no
// state dict or more than one, on tensors with more elements than their storage and on objects of
// other classes among them, with kCorrupt where a tensor leaves its storage; each
// names `where`, the tensor, and class or value. What is neither tensor nor object is passed over.
Result<std::vector<StoredTensor>> read_state_dict(const Pickle& pickle,
                                                  const TorchStorages& storages,
                                                  std::string_view where);

}  // namespace jige::formats
