#include "base/bytes.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/ascii.h"

namespace jige {
namespace {

std::string three_digits(double value) {
  const double size = std::fabs(value);
  if (size >= 99.95) return fmt::format("{:.0f}", value);
  if (size >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

struct Scaled {
  double value;
  const char* unit;
};

// In the first unit that leaves fewer than so many, from KiB on.
Scaled scaled_bytes(int64_t bytes, double most) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= most && unit < 5) {
    value /= 1024;
    ++unit;
  }
  return {value, kUnits[unit]};
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  const Scaled scaled = scaled_bytes(bytes, 999.5);
  return fmt::format("{} {}", three_digits(scaled.value), scaled.unit);
}

std::string format_bytes_up(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  const Scaled scaled = scaled_bytes(bytes, 999);
  const double steps = scaled.value > 99.9 ? 1 : scaled.value > 9.99 ? 10 : 100;  // of one
  return fmt::format("{} {}", three_digits(std::ceil(scaled.value * steps) / steps), scaled.unit);
}

Result<uint64_t> parse_bytes(std::string_view text) {
  const auto invalid = [&] {
    return fail(Code::kInvalidArgument,
                "\"{}\" is not a size; write for example 4096, 512M, 1.5GiB or 2GB", text);
  };
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || !std::isfinite(value) || value < 0) return invalid();
  std::string unit;
  for (const char c : text.substr(static_cast<size_t>(end - text.data()))) {
    if (c != ' ') unit += lower_ascii(c);
  }
  double factor = 1;
  if (!unit.empty() && unit != "b") {
    const size_t power = std::string_view("kmgtp").find(unit[0]);
    const std::string_view rest = std::string_view(unit).substr(1);
    if (power == std::string_view::npos || (!rest.empty() && rest != "b" && rest != "ib")) {
      return invalid();
    }
    factor = std::pow(rest == "b" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
  }
  if (value * factor >= 9.2e18) return invalid();
  return static_cast<uint64_t>(std::llround(value * factor));
}

std::string format_count(double count) {
  static constexpr const char* kUnits[] = {"", " k", " M", " G", " T", " P"};
  size_t unit = 0;
  if (count == std::floor(count) && std::fabs(count) < 1000) return fmt::format("{:.0f}", count);
  while (std::fabs(count) >= 999.5 && unit < 5) {
    count /= 1000;
    ++unit;
  }
  return three_digits(count) + kUnits[unit];
}

std::string format_duration(double seconds) {
  if (!(seconds < 1e15)) return "unknown";  // or not a number
  const auto total = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  const int64_t hours = total / 3600;
  const int64_t minutes = total / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
  return fmt::format("{}:{:02}", minutes, total % 60);
}

}  // namespace jige
