#include "cli/served_name.h"

#include <fmt/format.h>

#include <filesystem>

#include "cli/device_flags.h"

namespace jige::cli {

std::string folder_name(const std::string& folder) {
  std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  const bool of_run = path.filename() == "model" || path.filename() == "adapter";
  if (of_run && path.has_parent_path()) path = path.parent_path();
  const std::string name = path.filename().string();
  return name.empty() || name == "." ? "model" : name;
}

std::string served_numbers(const model::InferenceSizes& sizes) {
  std::string text(dtype_info(sizes.compute).name);
  if (sizes.format != ops::WeightFormat::kCompute) {
    text += fmt::format("-{}", ops::weight_format_name(sizes.format));
  }
  if (sizes.kv_dtype != sizes.compute) text += fmt::format("-kv{}", kv_cache_name(sizes.kv_dtype));
  return text;
}

}  // namespace jige::cli
