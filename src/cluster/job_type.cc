#include "cluster/job_type.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

namespace jige::cluster {
namespace {

bool read_count(std::string_view text, int32_t& number) {
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && at == text.data() + text.size() && number > 0;
}

}  // namespace

std::optional<JobType> parse_job_type(const std::string& cell) {
  const size_t second = cell.rfind(',');
  if (second == std::string::npos || second == 0) return std::nullopt;
  const size_t first = cell.rfind(',', second - 1);
  if (first == std::string::npos || first == 0) return std::nullopt;
  JobType type{.model = cell.substr(0, first)};
  const std::string_view text = cell;
  if (!read_count(text.substr(first + 1, second - first - 1), type.gpus) ||
      !read_count(text.substr(second + 1), type.nodes)) {
    return std::nullopt;
  }
  return type;
}

std::string to_string(const JobType& type) {
  return fmt::format("{},{},{}", type.model, type.gpus, type.nodes);
}

}  // namespace jige::cluster
