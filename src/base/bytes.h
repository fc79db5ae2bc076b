// Sizes for people: 1536 <-> "1.5 KiB".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace jige {

// "512 B", "1.5 KiB", "23.1 GiB": three significant digits.
std::string format_bytes(int64_t bytes);

// The same rounded up: a size that, given as a limit, is enough.
std::string format_bytes_up(int64_t bytes);

// Reads "4096", "64K", "1.5 GiB", "2GB": K, M, G, T with or without B count in powers of 1024
// (iB or none) or 1000 (B). Fails with kInvalidArgument, naming the text and the forms it may take.
Result<uint64_t> parse_bytes(std::string_view text);

// 1234567 -> "1.23 M", for parameter and token counts.
std::string format_count(double count);

// 3725 s -> "1:02:05", 65 s -> "1:05"; "unknown" for what is infinite or not a number.
std::string format_duration(double seconds);

}  // namespace jige
