#include "formats/gguf_tokenizer_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "formats/gguf_tokenizer.h"
#include "formats/gguf_words.h"
#include "text/tokenizer.h"
#include "text/tokenizer_core.h"
#include "text/tokenizer_file.h"

namespace jige::formats {
namespace {

constexpr size_t kTokenizerJsonBytesMax = size_t{256} << 20;
constexpr const char* kMark = "\u2581";

// How SentencePiece text begins.
struct PieceStartRule {
  bool adds_space = false;
  bool everywhere = true;  // behind special tokens, too
};

// What the normalizer and the pre-tokenizer of a SentencePiece BPE come to; nothing where GGUF has
// no words for it.
std::optional<PieceStartRule> piece_start_rule(const Json& normalizer, const Json& pre_tokenizer) {
  const Json prepend = {{"type", "Prepend"}, {"prepend", kMark}};
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kMark}};
  if (pre_tokenizer.is_null()) {
    const Json both = {{"type", "Sequence"}, {"normalizers", Json::array({prepend, replace})}};
    const Json one = {{"type", "Sequence"}, {"normalizers", Json::array({replace})}};
    if (normalizer == both) return PieceStartRule{.adds_space = true};
    if (normalizer == replace || normalizer == one) return PieceStartRule{};
    return std::nullopt;
  }
  if (!normalizer.is_null() || pre_tokenizer.value("type", Json()) != "Metaspace" ||
      pre_tokenizer.value("replacement", Json(kMark)) != kMark) {
    return std::nullopt;
  }
  const bool prefix = pre_tokenizer.value("add_prefix_space", Json(true)) == true;
  const Json scheme = pre_tokenizer.value("prepend_scheme", Json(prefix ? "always" : "never"));
  return PieceStartRule{.adds_space = scheme != "never", .everywhere = scheme != "first"};
}

class GgufTokenizerWriter {
 public:
  GgufTokenizerWriter(const text::Tokenizer& tokenizer, text::TokenizerFile file, std::string where,
                      GgufKeys& keys)
      : tokenizer_(tokenizer), file_(std::move(file)), where_(std::move(where)), keys_(keys) {}

  Result<GgufTokenizerSummary> run(int64_t rows) {
    JIGE_DO(look_at_added_tokens());
    JIGE_DO(list_tokens(rows));
    const Json& model = file_.root->at("model");
    if (std::holds_alternative<text::UnigramModel>(tokenizer_.core().parts().model)) {
      return fail(Code::kUnsupported,
                  "{}: the model \"Unigram\" cannot be written as GGUF, only BPE can", where_);
    }
    const bool pieces = model.value("byte_fallback", Json()) == true;
    keys_.text("tokenizer.ggml.model", pieces ? "llama" : "gpt2");
    JIGE_DO(pieces ? add_pieces() : add_words(model));
    keys_.texts("tokenizer.ggml.tokens", tokens_);
    keys_.ints("tokenizer.ggml.token_type", types_);
    add_roles();
    JIGE_DO(add_additions());
    out_.chat_template = !tokenizer_.chat_template().empty();
    if (out_.chat_template) keys_.text("tokenizer.chat_template", tokenizer_.chat_template());
    return std::move(out_);
  }

 private:
  Json component(const char* name) const { return file_.root->value(name, Json()); }

  Status look_at_added_tokens() {
    const Json list = component("added_tokens");
    for (const Json& token : list) {
      for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
        if (token.value(flag, Json()) != true) continue;
        log_warn(
            "{}: token {} has \"{}\", which a GGUF file cannot say; its readers take the token "
            "as it stands",
            where_, dump_json(token.value("content", Json())), flag);
      }
      added_.emplace(token.value("content", Json("")).get<std::string>(), true);
    }
    return {};
  }

  Status list_tokens(int64_t rows) {
    if (tokenizer_.vocab_size() > rows) {
      return fail(Code::kCorrupt,
                  "{}: has tokens up to number {}, but the model has {} rows for them", where_,
                  tokenizer_.vocab_size() - 1, rows);
    }
    out_.token_count = rows;
    for (int32_t id = 0; id < rows; ++id) {
      const auto token = tokenizer_.id_to_token(id);
      tokens_.push_back(token && !token->empty() ? *token : unused_name(id));
      types_.push_back(!token || token->empty()    ? kGgufUnusedToken
                       : tokenizer_.is_special(id) ? kGgufControlToken
                       : added_.contains(*token)   ? kGgufUserDefinedToken
                                                   : kGgufNormalToken);
    }
    return {};
  }

  std::string unused_name(int32_t id) const {
    std::string name = fmt::format("[PAD{}]", id);
    while (tokenizer_.token_to_id(name)) name += "]";
    return name;
  }

  tl::unexpected<Error> other_words(std::string_view part) const {
    return fail(Code::kUnsupported,
                "{}: \"{}\" cuts text in a way that GGUF files have no name for, or that Jige does "
                "not know; it knows {}, and SentencePiece BPE",
                where_, part, known_gguf_pres());
  }

  Status add_words(const Json& model) {
    const bool ignore_merges = model.value("ignore_merges", Json()) == true;
    const Json normalizer = component("normalizer"), pre_tokenizer = component("pre_tokenizer");
    auto name = gguf_words_name(normalizer, pre_tokenizer, ignore_merges);
    if (!name) {
      name = gguf_words_name(normalizer, pre_tokenizer, !ignore_merges);
      if (!name) return other_words("pre_tokenizer");
      JIGE_TRY(const bool same, merges_make_every_token(!ignore_merges));
      if (!same) return other_words("model.ignore_merges");
    }
    out_.kind = "byte-level BPE, words as " + *name;
    keys_.text("tokenizer.ggml.pre", *name);
    std::vector<std::string> merges;
    merges.reserve(file_.merges.size());
    for (size_t i = 0; i < file_.merges.size(); ++i) {
      merges.push_back(fmt::format("{} {}", file_.merges.left(i), file_.merges.right(i)));
    }
    keys_.texts("tokenizer.ggml.merges", merges);
    return {};
  }

  // Whether tokens that are words come out the same with this "ignore_merges".
  Result<bool> merges_make_every_token(bool ignore_merges) const {
    Json root = *file_.root;
    root["model"]["ignore_merges"] = ignore_merges;
    text::TokenizerFile other = file_;
    other.root = std::make_shared<const Json>(std::move(root));
    JIGE_TRY(text::TokenizerParts parts, text::build_from_file(std::move(other), {}, where_));
    const text::TokenizerCore changed(std::move(parts));
    const text::EncodeOptions options{.add_special = false, .allow_special = false};
    for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
      JIGE_TRY(const std::string word, tokenizer_.decode(std::span(&id, 1), {}));
      JIGE_TRY(const std::vector<int32_t> ids, tokenizer_.encode(word, options));
      JIGE_TRY(const std::vector<int32_t> changed_ids, changed.encode(word, options));
      if (ids != changed_ids) return false;
    }
    return true;
  }

  Status add_pieces() {
    const auto start = piece_start_rule(component("normalizer"), component("pre_tokenizer"));
    if (!start)
      return other_words(component("pre_tokenizer").is_null() ? "normalizer" : "pre_tokenizer");
    if (start->adds_space && !start->everywhere) {
      log_warn(
          "{}: puts a space in front of a text, but not behind a special token; readers of GGUF "
          "files put one there, too",
          where_);
    }
    out_.kind = "SentencePiece BPE";
    keys_.text("tokenizer.ggml.pre", "default");
    std::vector<float> scores;
    JIGE_TRY(scores, scores_of_merges());
    keys_.reals("tokenizer.ggml.scores", scores);
    keys_.flag("tokenizer.ggml.add_space_prefix", start->adds_space);
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const std::string& token = tokens_[id];
      const bool is_byte = token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
      if (is_byte && types_[id] == kGgufNormalToken) types_[id] = kGgufByteToken;
    }
    const int32_t unknown = tokenizer_.special().unk_id;
    if (unknown >= 0) types_[static_cast<size_t>(unknown)] = kGgufUnknownToken;
    return {};
  }

  // A piece is worth the more, the earlier its first merge comes. The merges that follow from such
  // scores have to be those of the file.
  Result<std::vector<float>> scores_of_merges() const {
    std::unordered_map<std::string_view, size_t> first;
    for (size_t i = 0; i < file_.merges.size(); ++i) first.emplace(file_.merges.joined(i), i);
    std::vector<float> scores;
    std::vector<std::string_view> pieces;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const auto merge = first.find(tokens_[id]);
      const size_t rank = merge == first.end() ? file_.merges.size() : merge->second;
      scores.push_back(-static_cast<float>(rank));
      pieces.push_back(types_[id] == kGgufNormalToken ? std::string_view(tokens_[id])
                                                      : std::string_view());
    }
    text::TextPairs derived;
    for (const auto& [left, right] : merges_of_scores(pieces, scores)) derived.add(left, right);
    if (file_.merges.size() >= (size_t{1} << 24) || derived != file_.merges) {
      return fail(Code::kUnsupported,
                  "{}: its merges do not follow from an order of its pieces, as those of "
                  "SentencePiece do, and GGUF files hold nothing else for such a tokenizer",
                  where_);
    }
    return scores;
  }

  void add_role(const char* key, int32_t id) {
    if (id >= 0) keys_.number(key, static_cast<uint32_t>(id));
  }

  void add_roles() {
    const text::SpecialTokens& roles = tokenizer_.special();
    add_role("tokenizer.ggml.bos_token_id", roles.bos_id);
    add_role("tokenizer.ggml.eos_token_id", roles.eos_id);
    add_role("tokenizer.ggml.padding_token_id", roles.pad_id);
    add_role("tokenizer.ggml.unknown_token_id", roles.unk_id);
    // Other ends of answers: the file has room for two.
    std::vector<int32_t> more = roles.eos_ids;
    std::erase(more, roles.eos_id);
    if (!more.empty()) add_role("tokenizer.ggml.eot_token_id", more[0]);
    if (more.size() > 1) add_role("tokenizer.ggml.eom_token_id", more[1]);
    if (more.size() > 2) {
      log_warn("{}: has {} tokens that end an answer; a GGUF file names three of them", where_,
               more.size() + 1);
    }
  }

  // Tokens that encoding puts around every text.
  Status add_additions() {
    const text::SpecialTokens& roles = tokenizer_.special();
    JIGE_TRY(std::vector<int32_t> added, tokenizer_.encode("", {}));
    const auto before = tokenizer_.prefix_ids();
    const std::vector<int32_t> behind(added.begin() + static_cast<std::ptrdiff_t>(before.size()),
                                      added.end());
    const auto is_one = [](std::span<const int32_t> ids, int32_t id) {
      return ids.size() == 1 && ids[0] == id;
    };
    if ((!before.empty() && !is_one(before, roles.bos_id)) ||
        (!behind.empty() && !is_one(behind, roles.eos_id))) {
      return fail(
          Code::kUnsupported,
          "{}: \"post_processor\" puts other tokens around a text than the beginning and the "
          "end token, which GGUF files cannot say",
          where_);
    }
    keys_.flag("tokenizer.ggml.add_bos_token", !before.empty());
    keys_.flag("tokenizer.ggml.add_eos_token", !behind.empty());
    return {};
  }

  const text::Tokenizer& tokenizer_;
  text::TokenizerFile file_;
  std::string where_;
  GgufKeys& keys_;
  GgufTokenizerSummary out_;
  std::unordered_map<std::string, bool> added_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
};

}  // namespace

Result<GgufTokenizerSummary> add_gguf_tokenizer(const std::string& folder,
                                                const ModelConfig& config, GgufKeys& keys) {
  JIGE_TRY(const text::Tokenizer tokenizer, text::Tokenizer::load(folder));
  const std::string path = folder + "/tokenizer.json";
  auto bytes = read_file(path, kTokenizerJsonBytesMax);
  if (!bytes && bytes.error().code == Code::kNotFound) {
    return fail(Code::kUnsupported,
                "{}: has no tokenizer.json; let transformers write one "
                "(AutoTokenizer.from_pretrained(folder).save_pretrained(folder))",
                folder);
  }
  if (!bytes) return tl::unexpected<Error>(std::move(bytes.error()));
  JIGE_TRY(text::TokenizerFile file, text::parse_tokenizer_file(*bytes, path));
  return GgufTokenizerWriter(tokenizer, std::move(file), path, keys).run(config.vocab_size);
}

}  // namespace jige::formats
