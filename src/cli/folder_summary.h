// What a model or adapter folder holds, for `jige inspect`.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/served_model.h"
#include "base/json.h"
#include "base/result.h"
#include "formats/image_config.h"
#include "formats/lora_config.h"
#include "formats/model_config.h"

namespace jige::cli {

struct TensorLine {
  std::string name;
  std::string dtype;  // as safetensors spells it
  std::vector<int64_t> dims;
  uint64_t bytes = 0;
};

struct TokenizerLine {
  int64_t vocab_size = 0;
  std::string bos_token, eos_token;
  bool chat_template = false;
};

struct FolderSummary {
  std::optional<formats::ModelConfig> config;  // none: an adapter folder
  std::optional<formats::LoraConfig> adapter;
  std::optional<formats::ImageConfig> images;  // none: the model reads text alone
  int64_t image_parameters = 0;                // of what reads images
  std::vector<TensorLine> tensors;             // empty: no weights
  size_t file_count = 0;
  std::optional<DType> dominant_dtype;  // of most stored parameters
  std::optional<TokenizerLine> tokenizer;
  api::ServedKind kind = api::ServedKind::kAnswers;  // by what it holds (embedding_folder.h)
  std::string problem;  // why the weights are not those of the configuration; empty: they are
  std::string images_problem;  // why images are not read where the configuration says they are

  // Whether it is run for rows alone, and has no use for a language model's head.
  bool embeds() const {
    return (config && config->looks_ahead) || kind != api::ServedKind::kAnswers;
  }
  // Parameters in the files; where they hold some in few bits, those of the model.
  int64_t stored_count() const;
  uint64_t stored_bytes() const;
};

// As find_model_folder (input.h), and a folder with an adapter_config.json will do as well.
Result<std::string> find_inspectable_folder(const std::string& path);

// Reads what is there. Weights and tokenizer may be missing; what is there must be sound, or it
// fails as the readers do.
Result<FolderSummary> summarise_folder(const std::string& folder);

std::string summary_text(const FolderSummary& summary);
Json summary_json(const FolderSummary& summary);

// "1024 x 1024 pixels", above which an image shrinks.
std::string largest_image_text(const formats::ImageConfig& images);

}  // namespace jige::cli
