#include "images/data_url.h"

#include <utility>

#include "base/ascii.h"
#include "base/base64.h"

namespace jige::images {

bool has_scheme(std::string_view url, std::string_view scheme) {
  return lower_ascii(url.substr(0, scheme.size())) == scheme;
}

tl::expected<std::string, DataUrlFault> data_url_bytes(std::string_view url) {
  constexpr std::string_view kScheme = "data:";
  constexpr std::string_view kCoding = ";base64";
  if (!has_scheme(url, kScheme)) return tl::unexpected(DataUrlFault::kOtherUrl);
  const size_t comma = url.find(',');
  const std::string_view head = url.substr(0, comma);
  const bool coded = comma != url.npos && head.size() >= kScheme.size() + kCoding.size() &&
                     lower_ascii(head.substr(head.size() - kCoding.size())) == kCoding;
  if (!coded || !has_scheme(head.substr(kScheme.size()), "image/")) {
    return tl::unexpected(DataUrlFault::kOtherForm);
  }
  auto bytes = base64_bytes(url.substr(comma + 1));
  if (!bytes) return tl::unexpected(DataUrlFault::kNoBase64);
  return std::move(*bytes);
}

}  // namespace jige::images
