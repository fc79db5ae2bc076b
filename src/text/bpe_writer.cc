// Writes a trained tokenizer as the files of a Hugging Face folder (bpe_trainer.h).
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "text/bpe_trainer.h"
#include "text/tokenizer_json.h"

namespace jige::text {
namespace {

// The ids of the special tokens begin here.
size_t first_special(const TrainedBpe& trained) {
  return trained.tokens.size() - trained.special_tokens.size();
}

Result<size_t> special_id(const TrainedBpe& trained, const std::string& token,
                          std::string_view role) {
  const auto& specials = trained.special_tokens;
  const auto it = std::find(specials.begin(), specials.end(), token);
  if (it == specials.end()) {
    return fail(Code::kInvalidArgument, "{} \"{}\" is not one of the special tokens", role, token);
  }
  return first_special(trained) + static_cast<size_t>(it - specials.begin());
}

Status check_roles(const TrainedBpe& trained, const TokenizerFolderOptions& options) {
  const std::pair<std::string_view, const std::string*> roles[] = {
      {"bos_token", &options.bos_token},
      {"eos_token", &options.eos_token},
      {"pad_token", &options.pad_token}};
  for (const auto& [role, token] : roles) {
    if (token->empty()) continue;
    JIGE_TRY([[maybe_unused]] const size_t id, special_id(trained, *token, role));
  }
  return {};
}

Json post_processor(size_t bos_id, const std::string& bos) {
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", true},
                      {"trim_offsets", false},
                      {"use_regex", true}};
  if (bos.empty()) return bytes;
  const Json begin = template_json({{bos, static_cast<int64_t>(bos_id)}}, {});
  return {{"type", "Sequence"}, {"processors", Json::array({bytes, begin})}};
}

Json config_json(const TrainedBpe& trained, const TokenizerFolderOptions& options) {
  Json config = Json::object();
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  Json added = Json::object();
  for (size_t i = 0; i < trained.special_tokens.size(); ++i) {
    added[std::to_string(first_special(trained) + i)] =
        added_token_json(trained.special_tokens[i], true);
  }
  config["added_tokens_decoder"] = std::move(added);
  if (!options.bos_token.empty()) config["bos_token"] = options.bos_token;
  if (!options.eos_token.empty()) config["eos_token"] = options.eos_token;
  if (!options.pad_token.empty()) config["pad_token"] = options.pad_token;
  config["add_bos_token"] = options.add_bos && !options.bos_token.empty();
  config["add_eos_token"] = false;
  config["clean_up_tokenization_spaces"] = false;
  config["model_input_names"] = {"input_ids", "attention_mask"};
  if (options.context_tokens > 0) config["model_max_length"] = options.context_tokens;
  if (!options.chat_template.empty()) config["chat_template"] = options.chat_template;
  return config;
}

Json roles_json(const TokenizerFolderOptions& options) {
  Json roles = Json::object();
  if (!options.bos_token.empty()) roles["bos_token"] = options.bos_token;
  if (!options.eos_token.empty()) roles["eos_token"] = options.eos_token;
  if (!options.pad_token.empty()) roles["pad_token"] = options.pad_token;
  return roles;
}

}  // namespace

Result<std::string> tokenizer_json(const TrainedBpe& trained,
                                   const TokenizerFolderOptions& options) {
  JIGE_DO(check_roles(trained, options));
  Json added = Json::array();
  for (size_t i = 0; i < trained.special_tokens.size(); ++i) {
    Json token = {{"id", first_special(trained) + i}};
    token.update(added_token_json(trained.special_tokens[i], true));
    added.push_back(std::move(token));
  }
  Json root = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  root["added_tokens"] = std::move(added);
  root["normalizer"] = nullptr;
  root["pre_tokenizer"] = split_then_bytes_json(trained.split_pattern);
  std::string bos = options.add_bos ? options.bos_token : "";
  size_t bos_id = 0;
  if (!bos.empty()) {
    JIGE_TRY(bos_id, special_id(trained, bos, "bos_token"));
  }
  root["post_processor"] = post_processor(bos_id, bos);
  root["decoder"] = byte_level_decoder_json();
  std::vector<std::pair<std::string_view, int64_t>> vocab;
  for (size_t id = 0; id < first_special(trained); ++id) {
    vocab.emplace_back(trained.tokens[id], static_cast<int64_t>(id));
  }
  return tokenizer_json_text(root, {.vocab = vocab, .merges = trained.merges});
}

Status write_tokenizer_folder(const TrainedBpe& trained, const TokenizerFolderOptions& options) {
  JIGE_TRY(const std::string tokenizer, tokenizer_json(trained, options));
  JIGE_DO(make_folders(options.folder));
  // All are on the disk before the first takes its place: a disk that fills up leaves the old ones.
  std::vector<AtomicFile> files;
  for (const auto& [name, text] :
       {std::pair{"tokenizer_config.json", dump_json(config_json(trained, options), 2) + "\n"},
        std::pair{"special_tokens_map.json", dump_json(roles_json(options), 2) + "\n"},
        std::pair{"tokenizer.json", tokenizer}}) {
    JIGE_TRY(AtomicFile file, AtomicFile::create(options.folder + "/" + name));
    JIGE_DO(file.write(text.data(), text.size()));
    JIGE_DO(file.sync());
    files.push_back(std::move(file));
  }
  for (AtomicFile& file : files) JIGE_DO(file.commit());
  return {};
}

}  // namespace jige::text
