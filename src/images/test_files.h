// Files of images for tests: those recorded, and such that lie.
//
// Threads: one test at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "images/test_support.h"

namespace jige::images {

// Names and contents of all recorded files, by name.
inline std::vector<std::pair<std::string, std::string>> image_files() {
  std::vector<std::pair<std::string, std::string>> files;
  for (const auto& entry : std::filesystem::directory_iterator(fixture("files"))) {
    files.emplace_back(entry.path().filename(), read_or_fail(entry.path()));
  }
  std::sort(files.begin(), files.end());  // the order of a folder is not the same everywhere
  EXPECT_GT(files.size(), 50u);
  return files;
}

inline std::string four_bytes(uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 255);
  return text;
}

// The checksum at the end of a PNG's chunk.
inline uint32_t png_checksum(std::string_view text) {
  uint32_t sum = 0xFFFFFFFF;
  for (const char c : text) {
    sum ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320 : 0);
  }
  return ~sum;
}

inline std::string png_chunk(std::string_view name, std::string_view data) {
  const std::string body = std::string(name) + std::string(data);
  return four_bytes(static_cast<uint32_t>(data.size())) + body + four_bytes(png_checksum(body));
}

// A PNG of rows that each begin with the number of their filter, not compressed. `form` is what
// stands behind the sizes in its header. REQUIRES: fewer than 64 KiB of rows.
inline std::string stored_png(uint32_t width, uint32_t height, std::string_view form,
                              const std::string& rows) {
  uint32_t low = 1, high = 0;
  for (const char c : rows) {
    low = (low + static_cast<unsigned char>(c)) % 65521;
    high = (high + low) % 65521;
  }
  std::string stored = "\x78\x01\x01";
  for (const size_t size : {rows.size(), ~rows.size()}) {
    stored += static_cast<char>(size & 0xFF);
    stored += static_cast<char>(size >> 8 & 0xFF);
  }
  return "\x89PNG\r\n\x1a\n" +
         png_chunk("IHDR", four_bytes(width) + four_bytes(height) + std::string(form)) +
         png_chunk("IDAT", stored + rows + four_bytes(high << 16 | low)) + png_chunk("IEND", "");
}

// A PNG whose checksums are right again, so that damage reaches what stands behind them.
inline std::string with_png_checksums(std::string file) {
  const auto byte = [&](size_t at) { return uint32_t{static_cast<unsigned char>(file[at])}; };
  for (size_t at = 8; at + 12 <= file.size();) {
    const size_t size = byte(at) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3);
    if (size > file.size() - at - 12) break;
    file.replace(at + 8 + size, 4,
                 four_bytes(png_checksum(std::string_view(file).substr(at + 4, 4 + size))));
    at += 12 + size;
  }
  return file;
}

// A PNG of a few bytes that says to be of this size.
inline std::string png_that_says(uint32_t width, uint32_t height) {
  const std::string header =
      four_bytes(width) + four_bytes(height) + std::string("\x08\x02\0\0\0", 5);
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + png_chunk("IDAT", "x\x9c") +
         png_chunk("IEND", "");
}

inline std::string gif_that_says(uint16_t width, uint16_t height) {
  const auto two = [](uint16_t value) {
    return std::string{static_cast<char>(value & 255), static_cast<char>(value >> 8)};
  };
  return "GIF89a" + two(width) + two(height) + std::string(3, 0) + "," + std::string(4, 0) +
         two(width) + two(height) + std::string("\0\x08\0;", 4);
}

}  // namespace jige::images
