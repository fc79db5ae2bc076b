#include "train/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/file.h"
#include "base/json.h"
#include "formats/generation_config.h"
#include "formats/image_model_names.h"
#include "formats/staged_folder.h"
#include "text/token_files.h"

namespace jige::train {
namespace {

constexpr const char* kGenerationConfig = "generation_config.json";
constexpr std::array kCopiedFiles = {"tokenizer.json",
                                     "tekken.json",
                                     "tiktoken.model",
                                     "tokenizer.model",
                                     "spm.model",
                                     "tokenizer_config.json",
                                     "special_tokens_map.json",
                                     "chat_template.jinja",
                                     "chat_template.json",
                                     "vocab.json",
                                     "merges.txt",
                                     "added_tokens.json",
                                     "vocab.txt",
                                     kGenerationConfig};

// Of the processor of a model that reads images.
constexpr std::array kImageFiles = {"processor_config.json", "preprocessor_config.json",
                                    "video_preprocessor_config.json"};

Status copy_file(const std::string& from, const std::string& to) {
  JIGE_TRY(const std::string content, read_file(from));
  return write_file_atomic(to, content);
}

// Where what is written reads images.
Status add_image_companions(const std::string& folder, const ExportOptions& options) {
  if (options.image_folder.empty()) return {};
  JIGE_TRY(const bool reads_images, formats::has_images(folder));
  if (!reads_images) return {};
  for (const char* name : kImageFiles) {
    const std::string from = fmt::format("{}/{}", options.image_folder, name);
    std::error_code error;
    if (!std::filesystem::exists(from, error)) continue;
    JIGE_DO(copy_file(from, fmt::format("{}/{}", folder, name)));
  }
  return {};
}

// A tokenizer of which its folder's config.json alone says the class must name it beside another
// model's.
Status name_tokenizer_class(const std::string& folder, const std::string& from) {
  const auto is_there = [&](const char* name) {
    std::error_code error;
    return std::filesystem::exists(fmt::format("{}/{}", from, name), error);
  };
  const auto& names = text::kTokenizerFileNames;
  const auto first = std::ranges::find_if(names, is_there);
  if (first == names.end() || *first != std::string_view("vocab.json")) return {};
  JIGE_TRY(const text::TokenFiles files, text::read_token_files(from));
  const text::TokenizerClass named = text::tokenizer_class_of(files);
  if (!named.is_by_model) return {};
  Json config = files.config.is_object() ? files.config : Json::object();
  config["tokenizer_class"] = named.name;
  return write_file_atomic(folder + "/tokenizer_config.json", dump_json(config, 2) + "\n");
}

// Everything of a model folder but weights and config.json.
Status add_companions(const std::string& folder, const ExportOptions& options,
                      const text::SpecialTokens& special) {
  bool tokenizer = false;
  for (const std::string_view name : kCopiedFiles) {
    const std::string from = fmt::format("{}/{}", options.tokenizer_folder, name);
    std::error_code error;
    if (!std::filesystem::exists(from, error)) continue;
    tokenizer |= std::find(text::kTokenizerFileNames.begin(), text::kTokenizerFileNames.end(),
                           name) != text::kTokenizerFileNames.end();
    JIGE_DO(copy_file(from, fmt::format("{}/{}", folder, name)));
  }
  JIGE_DO(name_tokenizer_class(folder, options.tokenizer_folder));
  JIGE_DO(add_image_companions(folder, options));
  if (!tokenizer) {
    return fail(
        Code::kNotFound,
        "{}: the model cannot be written, for its tokenizer is no longer there; put it back "
        "and give the command again",
        options.tokenizer_folder);
  }
  const std::string generation_path = folder + "/" + kGenerationConfig;
  std::error_code error;
  if (std::filesystem::exists(generation_path, error)) return {};
  formats::GenerationConfig generation{.eos_ids = special.eos_ids};
  if (special.bos_id >= 0) generation.bos_id = special.bos_id;
  if (special.pad_id >= 0) generation.pad_id = special.pad_id;
  return write_file_atomic(generation_path,
                           dump_json(formats::to_hf_generation_config(generation), 2) + "\n");
}

}  // namespace

Status export_model(const model::Masters& masters, const text::SpecialTokens& special,
                    const model::NodeStreams& streams, const ExportOptions& options) {
  JIGE_TRY(formats::StagedFolder staged, formats::StagedFolder::create(options.folder));
  JIGE_DO(model::save_model(staged.path(), masters, streams,
                            {.dtype = options.dtype,
                             .cancelled = options.cancelled,
                             .image_folder = options.image_folder}));
  JIGE_DO(add_companions(staged.path(), options, special));
  return staged.commit();
}

Status export_adapter(const model::Masters& masters, const model::NodeStreams& streams,
                      const std::string& base_folder, const std::string& folder) {
  JIGE_TRY(formats::StagedFolder staged, formats::StagedFolder::create(folder));
  JIGE_DO(model::save_adapter(staged.path(), masters, streams, base_folder));
  return staged.commit();
}

Status export_merged(const std::string& base_folder, const std::string& adapter_folder,
                     const text::SpecialTokens& special, const ExportOptions& options) {
  JIGE_TRY(formats::StagedFolder staged, formats::StagedFolder::create(options.folder));
  JIGE_DO(model::merge_adapter(base_folder, adapter_folder, staged.path(),
                               {.dtype = options.dtype, .cancelled = options.cancelled}));
  JIGE_DO(add_companions(staged.path(), options, special));
  return staged.commit();
}

}  // namespace jige::train
