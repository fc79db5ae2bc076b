// AdapterLoader: LoRA adapters read from inside one folder while the server runs.
//
// Nothing outside the folder is read: paths with "..", paths that lead out of it, and links that do
// so, of the adapter's folder or of a file in it, are refused.
// Threads: load() on one at a time, beside the engine's; it has a device of one thread of its own,
// so that the engine's team does not wait for it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "api/api_error.h"
#include "api/served_adapters.h"
#include "model/inference.h"
#include "tensor/cpu_device.h"

namespace jige::api {

// What the fingerprint of answers says with an adapter. Fails as read_file does.
Result<std::string> adapter_fingerprint(const std::string& model_fingerprint,
                                        const std::string& folder);

class AdapterLoader {
 public:
  // `root`: a folder that is there; else fails with kNotFound. The model must outlive the loader
  // and have been loaded with rooms for adapters.
  static Result<std::shared_ptr<AdapterLoader>> create(const std::string& root,
                                                       model::InferenceModel& model,
                                                       std::string model_fingerprint);

  // Reads, checks and packs the adapter in the folder `path`, or that of a run there, given from
  // the root on or whole. Fails with 403 where the path leads out of the root, 404 where nothing is
  // there, 409 where all rooms are taken, 400 on what is no adapter for this model or has too high
  // a rank.
  ApiResult<ServedAdapter> load(const std::string& name, const std::string& path);

 private:
  AdapterLoader(std::string root, model::InferenceModel& model, std::string model_fingerprint)
      : root_(std::move(root)), model_(model), model_fingerprint_(std::move(model_fingerprint)) {}
  ApiResult<std::string> find_folder(const std::string& path) const;
  bool is_inside(const std::string& path) const;
  // Whether every entry of a folder is a plain file inside the root, or a folder.
  std::optional<ApiError> check_entries(const std::string& folder) const;

  const std::string root_;  // canonical
  model::InferenceModel& model_;
  const std::string model_fingerprint_;
  // Packs, where no GPU does, beside the model's threads.
  CpuDevice device_{{.name = "adapters", .thread_count = 1}};
  std::unique_ptr<Stream> stream_;
};

}  // namespace jige::api
