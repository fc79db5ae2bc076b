#include "api/request_id.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/rng.h"

namespace jige::api {
namespace {

constexpr size_t kRequestIdBytesMax = 128;

uint64_t random_key() {
  auto key = static_cast<uint64_t>(RealClock().now_ns());  // where the system has no better one
  [[maybe_unused]] const int error = getentropy(&key, sizeof key);
  return key;
}

}  // namespace

bool is_request_id(std::string_view text) {
  return !text.empty() && text.size() <= kRequestIdBytesMax &&
         std::ranges::all_of(text, [](unsigned char c) { return c > ' ' && c < 127; });
}

RequestIds::RequestIds() : key_(random_key()) {}

std::string RequestIds::next() {
  return fmt::format("req-{:016x}", derive_key(key_, "request", next_number_++));
}

}  // namespace jige::api
