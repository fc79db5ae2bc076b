// A model folder with random weights, for benchmarks: config.json and model.safetensors.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "formats/model_config.h"

namespace jige::cli {

// Writes the folder, tensor by tensor, in the type of config.stored_dtype (f32 or bf16).
Status write_random_model(const std::string& folder, const formats::ModelConfig& config,
                          uint64_t seed);

// A folder that is removed with everything in it when the object goes.
class TemporaryFolder {
 public:
  // Under $TMPDIR, else /tmp. Fails with kIo.
  static Result<TemporaryFolder> make();
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace jige::cli
