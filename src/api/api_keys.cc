#include "api/api_keys.h"

#include <algorithm>
#include <cstdlib>

#include "base/file.h"

namespace jige::api {
namespace {

constexpr size_t kKeyBytesMin = 8;
constexpr size_t kFileBytesMax = size_t{1} << 20;

std::string_view without_spaces(std::string_view text) {
  const char* kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// The key of "Authorization: Bearer KEY"; empty where there is none.
std::string_view bearer_key(const HttpRequest& request) {
  constexpr std::string_view kScheme = "bearer ";
  const std::string_view field = request.header("Authorization");
  if (field.size() < kScheme.size()) return {};
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = field[i];
    if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != kScheme[i]) return {};
  }
  return without_spaces(field.substr(kScheme.size()));
}

}  // namespace

Result<ApiKeys> ApiKeys::load(const std::string& file) {
  JIGE_TRY(const std::string text, read_file(file, kFileBytesMax));
  return parse(text, file);
}

Result<ApiKeys> ApiKeys::parse(std::string_view text, std::string_view where) {
  std::vector<std::string> keys;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = without_spaces(text.substr(begin, end - begin));
    begin = end + 1;
    if (line.empty() || line.front() == '#') continue;
    if (line.size() < kKeyBytesMin) {
      return fail(Code::kInvalidArgument, "{}: key {} is shorter than {} characters", where,
                  keys.size() + 1, kKeyBytesMin);
    }
    keys.emplace_back(line);
  }
  if (keys.empty()) return fail(Code::kInvalidArgument, "{}: holds no key; one a line", where);
  return ApiKeys(std::move(keys));
}

bool ApiKeys::admits(const HttpRequest& request) const {
  if (keys_.empty()) return true;
  return holds(bearer_key(request)) || holds(without_spaces(request.header("x-api-key")));
}

bool ApiKeys::holds(std::string_view given) const {
  bool admitted = false;
  for (const std::string& key : keys_) {
    const bool equal = equal_in_constant_time(given, key);
    admitted = admitted || equal;  // no early end: it would tell which key
  }
  return admitted;
}

std::string client_key() {
  const char* key = std::getenv("JIGE_API_KEY");
  return std::string(without_spaces(key ? key : ""));
}

bool equal_in_constant_time(std::string_view given, std::string_view secret) {
  volatile unsigned char difference = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    const auto expected =
        static_cast<unsigned char>(secret.empty() ? '\0' : secret[i % secret.size()]);
    difference = difference | (static_cast<unsigned char>(given[i]) ^ expected);
  }
  return difference == 0;
}

}  // namespace jige::api
