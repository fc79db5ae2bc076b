// What the tests of this folder share: recorded images and drawn ones.
//
// Threads: one test at a time.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/base64.h"
#include "base/file.h"
#include "images/image.h"

namespace jige::images {

inline std::string fixture(std::string_view name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/images/" + std::string(name);
}

inline std::string read_or_fail(const std::string& path) {
  Result<std::string> text = read_file(path);
  EXPECT_TRUE(text) << (text ? "" : text.error().message);
  return text ? std::move(*text) : std::string();
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline nlohmann::json recorded(std::string_view name) {
  return nlohmann::json::parse(read_or_fail(fixture(name)));
}

inline std::string recorded_bytes(const nlohmann::json& value) {
  const auto bytes = base64_bytes(value.get<std::string>());
  EXPECT_TRUE(bytes);
  return bytes.value_or("");
}

inline Image image_of(Result<Image> image) {
  EXPECT_TRUE(image) << (image ? "" : image.error().message);
  return image ? std::move(*image) : Image();
}

inline std::string text_of(const Image& image) {
  return {reinterpret_cast<const char*>(image.rgb.data()), image.rgb.size()};
}

// As drawn of tests/tools/record_images.py.
inline Image drawn_image(int32_t width, int32_t height, uint32_t seed) {
  Image image = make_image(width, height);
  uint32_t state = seed;
  for (uint8_t& byte : image.rgb) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<uint8_t>(state >> 24);
    if (seed % 3 == 0) byte = byte > 127 ? 255 : 0;
  }
  return image;
}

}  // namespace jige::images
