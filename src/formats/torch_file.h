// Files of torch.save (pytorch_model.bin) that hold a state dict, read through a memory map: the
// same lookup as of safetensors, for the numbers stand in them as they are.
//
// Layout since torch 1.6, a zip archive whose entries are not packed:
//   NAME/data.pkl      the object, a pickle (torch_state_dict.h)
//   NAME/data/KEY      the bytes of a storage, aligned to 64
//   NAME/byteorder     "little" or "big", since torch 2.1
// Layout before: pickles one behind the other of 0x1950a86a20f9469cfc6c, 1001, {"little_endian":
// True, …}, the object, and the list of keys of its storages; then of each of these, in this order,
// i64 element count and the bytes, which are not aligned.
// Nothing that a pickle names is imported, made or called (pickle.h).
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/tensor_file.h"

namespace jige::formats {

// The tensors of a whole file given as bytes. Those that share a storage have the same bytes. Fails
// as read_zip_directory, read_pickle and read_state_dict do, and with kUnsupported on packed
// archives, big-endian numbers and TorchScript.
Result<TensorTable> parse_torch_file(std::span<const std::byte> file, std::string_view where);

// Maps a file and checks it as parse_torch_file does; no tensor data is read.
Result<TensorFile> open_torch_file(const std::string& path);

}  // namespace jige::formats
