// safetensors files.
//
// Layout: u64 little-endian N; N bytes of JSON {"name": {"dtype", "shape", "data_offsets": [begin,
// end)}, …, "__metadata__": {string: string}}; data, to which the offsets refer. The ranges cover
// the data without gap or overlap, and the file ends where the data ends.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/stored_tensor.h"
#include "formats/tensor_file.h"

namespace jige::formats {

inline constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;  // the format's own limit

// Checks the header of a whole file given as bytes. Fails with kCorrupt, naming `where`, the tensor
// and the contradiction.
Result<TensorTable> parse_safetensors_header(std::span<const std::byte> file,
                                             std::string_view where);

// Maps a file and checks its header; no tensor data is read.
Result<TensorFile> open_safetensors(const std::string& path);

}  // namespace jige::formats
