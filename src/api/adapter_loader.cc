#include "api/adapter_loader.h"

#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/rng.h"

namespace jige::api {
namespace {

namespace fs = std::filesystem;

constexpr size_t kEntriesMax = 4096;  // of an adapter's folder
constexpr std::string_view kPathField = "lora_path";

ApiError refused_path(int status, std::string_view code, std::string message) {
  return {.status = status,
          .message = std::move(message),
          .param = std::string(kPathField),
          .code = std::string(code)};
}

ApiError outside() {
  return refused_path(403, "path_outside_root",
                      "lora_path leads out of the folder that --adapter-root names");
}

ApiError not_there() {
  return refused_path(404, "adapter_not_found",
                      "lora_path: no folder with adapter_config.json is there");
}

// What went wrong as the client may know it: with paths from the root on.
ApiError shown_error(const Error& error, const std::string& flag, const std::string& root) {
  std::string message = error.message;
  if (message.starts_with(flag + ": ")) message.erase(0, flag.size() + 2);
  for (size_t at = message.find(root + "/"); at != std::string::npos;) {
    message.erase(at, root.size() + 1);
    at = message.find(root + "/", at);
  }
  ApiError shown = to_api_error(error, std::string(kPathField));
  shown.message = std::move(message);
  if (error.code == Code::kExhausted) {
    shown.status = 409;
    shown.code = "adapters_full";
    shown.message += "; unload one, or start the server with a larger --max-adapters";
  }
  if (error.code == Code::kNotFound) shown.status = 404;
  return shown;
}

}  // namespace

Result<std::string> adapter_fingerprint(const std::string& model_fingerprint,
                                        const std::string& folder) {
  JIGE_TRY(const std::string what, read_file(folder + "/adapter_config.json"));
  return fmt::format("{}-{:08x}", model_fingerprint, static_cast<uint32_t>(derive_key(0, what)));
}

Result<std::shared_ptr<AdapterLoader>> AdapterLoader::create(const std::string& root,
                                                             model::InferenceModel& model,
                                                             std::string model_fingerprint) {
  std::error_code error;
  const fs::path canonical = fs::canonical(root, error);
  if (error || !fs::is_directory(canonical, error)) {
    return fail(Code::kNotFound, "--adapter-root {}: no such folder", root);
  }
  std::shared_ptr<AdapterLoader> loader(
      new AdapterLoader(canonical.string(), model, std::move(model_fingerprint)));
  const bool on_gpu = model.device().kind() == DeviceKind::kCuda;
  Device& device = on_gpu ? model.device() : static_cast<Device&>(loader->device_);
  JIGE_TRY(loader->stream_, device.make_stream());
  return loader;
}

bool AdapterLoader::is_inside(const std::string& path) const {
  return path == root_ || path.starts_with(root_ == "/" ? root_ : root_ + "/");
}

std::optional<ApiError> AdapterLoader::check_entries(const std::string& folder) const {
  std::error_code error;
  size_t count = 0;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    if (++count > kEntriesMax) {
      return refused_path(
          400, "", fmt::format("lora_path: the folder has more than {} entries", kEntriesMax));
    }
    std::error_code broken;
    const fs::path target = fs::canonical(entries->path(), broken);
    if (broken || !is_inside(target.string())) return outside();
    if (fs::is_directory(target, broken) || fs::is_regular_file(target, broken)) continue;
    return refused_path(400, "", "lora_path: the folder holds what is neither file nor folder");
  }
  if (error) return not_there();
  return std::nullopt;
}

ApiResult<std::string> AdapterLoader::find_folder(const std::string& path) const {
  const fs::path given(path);
  for (const fs::path& part : given) {
    if (part == "..") return tl::unexpected(outside());
  }
  const fs::path whole = (given.is_absolute() ? given : fs::path(root_) / given).lexically_normal();
  for (const fs::path& place : {whole, whole / "adapter"}) {
    std::error_code error;
    const fs::path canonical = fs::canonical(place, error);
    if (error) continue;
    if (!is_inside(canonical.string())) return tl::unexpected(outside());
    if (!fs::is_directory(canonical, error)) continue;
    const auto config = fs::symlink_status(canonical / "adapter_config.json", error);
    if (!fs::exists(config)) continue;
    if (auto wrong = check_entries(canonical.string())) return tl::unexpected(std::move(*wrong));
    return canonical.string();
  }
  // Whether there is something outside, nobody is told.
  return tl::unexpected(is_inside(whole.string()) ? not_there() : outside());
}

ApiResult<ServedAdapter> AdapterLoader::load(const std::string& name, const std::string& path) {
  auto folder = find_folder(path);
  if (!folder) return tl::unexpected(std::move(folder.error()));
  const model::AdapterSource source{.name = name, .folder = *folder};
  const auto shown = [&](const Error& error) {
    return tl::unexpected(shown_error(error, source.flag(), root_));
  };
  auto fingerprint = adapter_fingerprint(model_fingerprint_, *folder);
  if (!fingerprint) return shown(fingerprint.error());
  auto lease = model_.adapter_rooms().load(source, model_.architecture(), *stream_);
  if (!lease) return shown(lease.error());
  ServedAdapter adapter{.name = name,
                        .root = fs::path(*folder).lexically_relative(root_).string(),
                        .fingerprint = std::move(*fingerprint),
                        .number = (*lease)->number,
                        .created_s = static_cast<int64_t>(std::time(nullptr)),
                        .lease = std::move(*lease)};
  return adapter;
}

}  // namespace jige::api
