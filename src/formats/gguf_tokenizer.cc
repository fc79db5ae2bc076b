#include "formats/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "formats/gguf_words.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"
#include "text/unicode.h"

namespace jige::formats {
namespace {

constexpr const char* kTokensKey = "tokenizer.ggml.tokens";
constexpr const char* kSpaceMark = "\u2581";
// Pieces are cut at every character; longer ones do not occur.
constexpr size_t kPieceBytesMax = 1024;

// Tokens that end a turn in common chat templates.
constexpr std::string_view kTurnEnds[] = {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>"};

// How models of an architecture cut words where their files do not say.
const char* usual_words(std::string_view architecture) {
  if (architecture == "gpt2" || architecture == "phi2") return "gpt-2";
  if (architecture == "gptneox") return "olmo";
  return architecture == "llama" ? "llama-bpe" : "qwen2";
}

class GgufTokenizerReader {
 public:
  GgufTokenizerReader(const GgufMetadata& keys, const GgufTokenizerOptions& options)
      : keys_(keys), options_(options) {}

  Result<GgufTokenizerFiles> run() {
    JIGE_TRY(const auto model, keys_.find_text("tokenizer.ggml.model"));
    if (!model || (*model != "gpt2" && *model != "llama" && *model != "gemma4")) {
      return fail(Code::kUnsupported,
                  "{}: {}; Jige reads the kinds gpt2 (byte-level BPE), llama and gemma4 "
                  "(SentencePiece)",
                  keys_.where(),
                  model ? fmt::format("key \"tokenizer.ggml.model\" is \"{}\"", gguf_shown(*model))
                        : "has no tokenizer (key \"tokenizer.ggml.model\")");
    }
    byte_level_ = *model == "gpt2";
    JIGE_DO(read_tokens());
    JIGE_DO(read_ids());
    JIGE_DO(read_template());
    if (byte_level_) {
      JIGE_DO(read_words());
    } else {
      JIGE_DO(read_pieces());
    }
    JIGE_DO(read_additions());
    out_.tokenizer_json = tokenizer_text();
    out_.tokenizer_config_json = dump_json(config_json(), 2) + "\n";
    out_.token_count = static_cast<int64_t>(tokens_.size());
    // What was written has to be what Jige and others can read.
    JIGE_TRY(const auto made,
             text::Tokenizer::from_json(out_.tokenizer_json, keys_.where() + ": tokenizer"));
    static_cast<void>(made);
    return std::move(out_);
  }

 private:
  Status read_tokens() {
    JIGE_TRY(const auto* tokens, keys_.find_texts(kTokensKey));
    if (!tokens || tokens->empty()) {
      return fail(Code::kCorrupt, "{}: key \"{}\" is {}", keys_.where(), kTokensKey,
                  tokens ? "empty" : "missing");
    }
    tokens_ = *tokens;
    if (static_cast<int64_t>(tokens_.size()) > options_.vocab_size) {
      return fail(Code::kCorrupt,
                  "{}: key \"{}\" has {} tokens, but tensor \"token_embd.weight\" has {} rows",
                  keys_.where(), kTokensKey, tokens_.size(), options_.vocab_size);
    }
    JIGE_TRY(auto types, keys_.find_ints("tokenizer.ggml.token_type"));
    types_ = types ? std::move(*types) : std::vector<int64_t>(tokens_.size(), kGgufNormalToken);
    JIGE_DO(same_length("tokenizer.ggml.token_type", types_.size()));
    std::unordered_map<std::string_view, size_t> ids;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (!text::is_valid_utf8(tokens_[id])) {
        return fail(Code::kCorrupt, "{}: token {} of key \"{}\" is not UTF-8", keys_.where(), id,
                    kTokensKey);
      }
      if (left_out(id)) continue;
      const auto [other, is_new] = ids.emplace(tokens_[id], id);
      if (is_new) continue;
      return fail(Code::kCorrupt, "{}: tokens {} and {} of key \"{}\" are both \"{}\"",
                  keys_.where(), other->second, id, kTokensKey, gguf_shown(tokens_[id]));
    }
    return {};
  }

  Status same_length(std::string_view key, size_t count) const {
    if (count == tokens_.size()) return {};
    return fail(Code::kCorrupt, "{}: key \"{}\" has {} elements, but there are {} tokens",
                keys_.where(), key, count, tokens_.size());
  }

  bool left_out(size_t id) const { return types_[id] == kGgufUnusedToken || tokens_[id].empty(); }

  // The id that a key names, made a special token; -1 where there is no such key.
  Result<int32_t> role_id(std::string_view key) {
    JIGE_TRY(const auto id, keys_.find_int(key));
    if (!id || *id == std::numeric_limits<uint32_t>::max() || *id == -1) return -1;
    if (*id < 0 || *id >= static_cast<int64_t>(tokens_.size())) {
      return fail(Code::kCorrupt, "{}: key \"{}\" is {}, but there are {} tokens", keys_.where(),
                  key, *id, tokens_.size());
    }
    const auto known = static_cast<size_t>(*id);
    if (tokens_[known].empty()) {
      return fail(Code::kCorrupt, "{}: key \"{}\" is {}, a token without a text", keys_.where(),
                  key, *id);
    }
    types_[known] = kGgufControlToken;
    return static_cast<int32_t>(*id);
  }

  bool is_control(size_t id) const {
    return id < tokens_.size() && types_[id] == kGgufControlToken;
  }

  Status read_ids() {
    JIGE_TRY(out_.bos_id, role_id("tokenizer.ggml.bos_token_id"));
    JIGE_TRY(eos_id_, role_id("tokenizer.ggml.eos_token_id"));
    JIGE_TRY(out_.pad_id, role_id("tokenizer.ggml.padding_token_id"));
    JIGE_TRY(unk_id_, role_id("tokenizer.ggml.unknown_token_id"));
    // What readers of the format take where SentencePiece files say nothing.
    if (!byte_level_) {
      if (out_.bos_id < 0 && is_control(1)) out_.bos_id = 1;
      if (eos_id_ < 0 && is_control(2)) eos_id_ = 2;
      if (unk_id_ < 0 && types_[0] == kGgufUnknownToken) unk_id_ = 0;
    }
    add_end(eos_id_);
    for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
      JIGE_TRY(const int32_t id, role_id(key));
      add_end(id);
    }
    return {};
  }

  void add_end(int32_t id) {
    const auto known = std::find(out_.eos_ids.begin(), out_.eos_ids.end(), id);
    if (id >= 0 && known == out_.eos_ids.end()) out_.eos_ids.push_back(id);
  }

  Status read_template() {
    JIGE_TRY(const auto source, keys_.find_text("tokenizer.chat_template"));
    if (!source) return {};
    if (!text::is_valid_utf8(*source)) {
      return fail(Code::kCorrupt, "{}: key \"tokenizer.chat_template\" is not UTF-8",
                  keys_.where());
    }
    template_ = *source;
    out_.chat_template = true;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const bool ends =
          std::find(std::begin(kTurnEnds), std::end(kTurnEnds), tokens_[id]) != std::end(kTurnEnds);
      if (ends && is_control(id) && template_.find(tokens_[id]) != std::string::npos) {
        add_end(static_cast<int32_t>(id));
      }
    }
    return {};
  }

  // Key tokenizer.ggml.pre, or what stands for it.
  Result<GgufWords> words() const {
    JIGE_TRY(const auto stored, keys_.find_text("tokenizer.ggml.pre"));
    std::string name =
        options_.pre.empty() ? std::string(stored.value_or("default")) : options_.pre;
    if (name == "default") {
      JIGE_TRY(const std::string_view architecture, keys_.get_text("general.architecture"));
      name = usual_words(architecture);
      log_warn(
          "{}: does not say how its tokenizer cuts words (key \"tokenizer.ggml.pre\"); taken "
          "is {}, as is usual for {}; --pre names another one",
          keys_.where(), name, gguf_shown(architecture));
    }
    if (auto known = find_gguf_words(name)) return std::move(*known);
    if (!options_.pre.empty()) {
      return fail(Code::kInvalidArgument,
                  "--pre: \"{}\" is no way of cutting words that Jige knows; it knows {}",
                  gguf_shown(name), known_gguf_pres());
    }
    return fail(Code::kUnsupported,
                "{}: \"{}\" (key \"tokenizer.ggml.pre\") is no way of cutting words that Jige "
                "knows; it knows {}; where one of them is right, name it with --pre",
                keys_.where(), gguf_shown(name), known_gguf_pres());
  }

  Status read_words() {
    JIGE_TRY(GgufWords known, words());
    adds_bos_ = known.adds_bos;
    ignore_merges_ = known.ignore_merges;
    normalizer_ = std::move(known.normalizer);
    pre_tokenizer_ = std::move(known.pre_tokenizer);
    decoder_ = text::byte_level_decoder_json();
    out_.kind = fmt::format("byte-level BPE, words as {}", known.name);
    JIGE_TRY(const bool listed, read_merges());
    if (listed) return {};
    return fail(Code::kCorrupt, "{}: key \"tokenizer.ggml.merges\" is missing", keys_.where());
  }

  // False where the file lists none.
  Result<bool> read_merges() {
    JIGE_TRY(const auto* list, keys_.find_texts("tokenizer.ggml.merges"));
    if (!list) return false;
    for (size_t i = 0; i < list->size(); ++i) {
      const std::string_view merge = (*list)[i];
      const size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos || space + 1 == merge.size() ||
          merge.find(' ', space + 1) != std::string_view::npos) {
        return fail(Code::kCorrupt,
                    "{}: merge {} of key \"tokenizer.ggml.merges\" is not two tokens with a space "
                    "between them",
                    keys_.where(), i);
      }
      merges_.emplace_back(merge.substr(0, space), merge.substr(space + 1));
    }
    return true;
  }

  Status read_pieces() {
    JIGE_TRY(const auto trims, keys_.find_bool("tokenizer.ggml.remove_extra_whitespaces"));
    if (trims.value_or(false) || keys_.has("tokenizer.ggml.precompiled_charsmap")) {
      return fail(Code::kUnsupported,
                  "{}: the tokenizer changes text before it is cut (key \"tokenizer.ggml.{}\"), "
                  "which Jige does not read from GGUF",
                  keys_.where(),
                  trims.value_or(false) ? "remove_extra_whitespaces" : "precompiled_charsmap");
    }
    JIGE_TRY(const auto stated, keys_.find_bool("tokenizer.ggml.add_space_prefix"));
    const bool adds_space = stated.value_or(true);
    adds_bos_ = true;
    Json steps = Json::array();
    if (adds_space) steps.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}});
    normalizer_ = {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
    Json decoders =
        Json::array({{{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}},
                     {{"type", "ByteFallback"}},
                     {{"type", "Fuse"}}});
    if (adds_space) {
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    decoder_ = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
    out_.kind = "SentencePiece BPE";
    JIGE_TRY(const bool listed, read_merges());
    return listed ? Status() : derive_merges();
  }

  Status derive_merges() {
    JIGE_TRY(const auto scores, keys_.find_floats("tokenizer.ggml.scores"));
    if (!scores) {
      return fail(Code::kCorrupt, "{}: key \"tokenizer.ggml.scores\" is missing", keys_.where());
    }
    JIGE_DO(same_length("tokenizer.ggml.scores", scores->size()));
    std::vector<std::string_view> pieces(tokens_.size());
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (std::isnan((*scores)[id]) || tokens_[id].size() > kPieceBytesMax) {
        return fail(Code::kCorrupt,
                    "{}: token {} has {} bytes and score {}; at most {} bytes are "
                    "read, and the score must be a number",
                    keys_.where(), id, tokens_[id].size(), (*scores)[id], kPieceBytesMax);
      }
      // Only ordinary pieces come of merges, and no text holds a space any more.
      const bool plain = tokens_[id].find(' ') == std::string_view::npos;
      if (types_[id] == kGgufNormalToken && plain) pieces[id] = tokens_[id];
    }
    merges_ = merges_of_scores(pieces, *scores);
    return {};
  }

  Status read_additions() {
    const auto one = [&](int32_t id) {
      text::SpecialTexts list;
      if (id >= 0) list.emplace_back(tokens_[static_cast<size_t>(id)], id);
      return list;
    };
    JIGE_TRY(const auto bos, keys_.find_bool("tokenizer.ggml.add_bos_token"));
    JIGE_TRY(const auto eos, keys_.find_bool("tokenizer.ggml.add_eos_token"));
    adds_bos_ = bos.value_or(adds_bos_) && out_.bos_id >= 0;
    adds_eos_ = eos.value_or(false) && eos_id_ >= 0;
    if (!adds_bos_ && !adds_eos_) return {};
    post_processor_ =
        text::template_json(one(adds_bos_ ? out_.bos_id : -1), one(adds_eos_ ? eos_id_ : -1));
    return {};
  }

  std::string tokenizer_text() const {
    std::vector<std::pair<std::string_view, int64_t>> vocab;
    Json added = Json::array();
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (left_out(id)) continue;
      vocab.emplace_back(tokens_[id], static_cast<int64_t>(id));
      const bool special = types_[id] == kGgufControlToken || types_[id] == kGgufUnknownToken;
      if (!special && types_[id] != kGgufUserDefinedToken) continue;
      Json token = {{"id", id}};
      token.update(text::added_token_json(tokens_[id], special));
      added.push_back(std::move(token));
    }
    Json root = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
    root["added_tokens"] = std::move(added);
    root["normalizer"] = normalizer_;
    root["pre_tokenizer"] = pre_tokenizer_;
    root["post_processor"] = post_processor_;
    root["decoder"] = decoder_;
    return text::tokenizer_json_text(
        root, {.vocab = vocab,
               .merges = merges_,
               .unk_token = byte_level_ ? std::string_view() : text_of(unk_id_),
               .fuse_unk = !byte_level_,
               .byte_fallback = !byte_level_,
               .ignore_merges = ignore_merges_});
  }

  std::string_view text_of(int32_t id) const {
    return id < 0 ? std::string_view() : tokens_[static_cast<size_t>(id)];
  }

  Json config_json() const {
    Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
    for (const auto& [role, id] :
         {std::pair{"bos_token", out_.bos_id}, std::pair{"eos_token", eos_id_},
          std::pair{"pad_token", out_.pad_id}, std::pair{"unk_token", unk_id_}}) {
      if (id >= 0) config[role] = text_of(id);
    }
    config["add_bos_token"] = adds_bos_;
    config["add_eos_token"] = adds_eos_;
    config["clean_up_tokenization_spaces"] = false;
    config["model_input_names"] = {"input_ids", "attention_mask"};
    if (options_.context_tokens > 0) config["model_max_length"] = options_.context_tokens;
    if (out_.chat_template) config["chat_template"] = template_;
    return config;
  }

  const GgufMetadata& keys_;
  const GgufTokenizerOptions& options_;
  GgufTokenizerFiles out_;
  bool byte_level_ = false;
  bool ignore_merges_ = false;
  bool adds_bos_ = false;
  bool adds_eos_ = false;
  int32_t eos_id_ = -1;
  int32_t unk_id_ = -1;
  std::vector<std::string_view> tokens_;
  std::vector<int64_t> types_;
  std::vector<std::pair<std::string, std::string>> merges_;
  Json normalizer_, pre_tokenizer_, post_processor_, decoder_;
  std::string template_;
};

}  // namespace

Result<GgufTokenizerFiles> read_gguf_tokenizer(const GgufMetadata& keys,
                                               const GgufTokenizerOptions& options) {
  return GgufTokenizerReader(keys, options).run();
}

}  // namespace jige::formats
