#include "cli/adapter_flags.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "api/served_adapters.h"

namespace jige::cli {
namespace {

namespace fs = std::filesystem;

}  // namespace

Result<std::string> find_adapter_folder(std::string_view flag, const std::string& path) {
  std::error_code error;
  const fs::path folder(path);
  const fs::file_status status = fs::status(folder, error);
  if (error == std::errc::permission_denied) {
    return fail(Code::kIo, "{}: {}", flag, error.message());
  }
  if (!fs::exists(status)) {
    return fail(Code::kNotFound,
                "{}: no such folder; give one that holds adapter_config.json and "
                "adapter_model.safetensors (or .bin), or the run that wrote it",
                flag);
  }
  if (!fs::is_directory(status)) {
    return fail(Code::kInvalidArgument, "{}: is a file; give the folder it is in", flag);
  }
  for (const fs::path& place : {folder, folder / "adapter"}) {
    if (fs::exists(place / "adapter_config.json", error)) return place.string();
  }
  if (fs::exists(folder / "config.json", error)) {
    return fail(Code::kInvalidArgument,
                "{}: is a whole model and no LoRA adapter; give the folder that holds "
                "adapter_config.json, or run this model by itself",
                flag);
  }
  return fail(Code::kNotFound, "{}: holds no adapter_config.json, so it is no LoRA adapter", flag);
}

Result<std::vector<model::AdapterSource>> read_named_adapters(const std::vector<std::string>& words,
                                                              std::string_view model_name) {
  std::vector<model::AdapterSource> adapters;
  for (const std::string& word : words) {
    const std::string flag = "--adapter " + word;
    const size_t sign = word.find('=');
    if (sign == std::string::npos) {
      return fail(Code::kInvalidArgument,
                  "{}: has no name for requests to ask for; give --adapter NAME={}", flag, word);
    }
    const std::string name = word.substr(0, sign);
    const std::string folder = word.substr(sign + 1);
    if (!api::is_adapter_name(name)) {
      return fail(Code::kInvalidArgument,
                  "{}: the name must have 1 to {} bytes of printable text; give --adapter "
                  "NAME=FOLDER",
                  flag, api::kAdapterNameBytesMax);
    }
    if (name == model_name) {
      return fail(Code::kInvalidArgument,
                  "{}: \"{}\" is what the model itself is called; give the adapter another name, "
                  "or the model with --served-model-name",
                  flag, name);
    }
    const auto same = std::ranges::find(adapters, name, &model::AdapterSource::name);
    if (same != adapters.end()) {
      return fail(Code::kInvalidArgument,
                  "{}: \"{}\" is what the adapter {} is called already; give one of them another "
                  "name",
                  flag, name, same->folder);
    }
    JIGE_TRY(std::string found, find_adapter_folder(flag, folder));
    adapters.push_back({.name = name, .folder = std::move(found)});
  }
  return adapters;
}

}  // namespace jige::cli
