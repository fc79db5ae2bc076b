// A vocab.txt: the tokens of BERT's tokenizers, one a line, whose ids are the numbers of their
// lines. What else there is to know stands in tokenizer_config.json, or is always the same.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "text/tokenizer_core.h"
#include "text/tokenizer_json.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

// What differs between classes that have such a list.
struct VocabClass {
  std::string_view name;
  std::string_view cls, sep, pad, mask;
  bool frames_as_roberta;  // pairs
};
constexpr std::array<VocabClass, 3> kVocabClasses = {
    {{"BertTokenizer", "[CLS]", "[SEP]", "[PAD]", "[MASK]", false},
     {"DistilBertTokenizer", "[CLS]", "[SEP]", "[PAD]", "[MASK]", false},
     {"MPNetTokenizer", "<s>", "</s>", "<pad>", "<mask>", true}}};
constexpr std::string_view kUnknown = "[UNK]";

// Of a folder that names no class: BERT's.
Result<VocabClass> class_of(std::string_view name, std::string_view where) {
  if (name.empty()) return kVocabClasses.front();
  std::string_view base = name;
  if (base.ends_with("Fast")) base.remove_suffix(std::string_view("Fast").size());
  for (const VocabClass& one : kVocabClasses) {
    if (one.name == base) return one;
  }
  return fail(Code::kUnsupported,
              "{}: tokenizer_config.json names the class \"{}\", of which Jige reads no vocab.txt; "
              "it reads those of BertTokenizer, DistilBertTokenizer and MPNetTokenizer: take a "
              "folder with a tokenizer.json",
              where, name.substr(0, 80));
}

// Without white space at its end.
std::string_view trimmed(std::string_view line) {
  while (!line.empty()) {
    const size_t at = last_character(line);
    if (!is_white_space(decode_utf8(line.substr(at)).code_point)) break;
    line = line.substr(0, at);
  }
  return line;
}

std::vector<std::pair<std::string, int64_t>> tokens_of(std::string_view text) {
  std::vector<std::pair<std::string, int64_t>> tokens;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    tokens.emplace_back(trimmed(text.substr(0, end)), static_cast<int64_t>(tokens.size()));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return tokens;
}

// The id of a token that every text has around it. Of a token given twice the last counts.
Result<int64_t> id_of(const TokenizerFile& file, std::string_view token, std::string_view where) {
  for (auto entry = file.vocab.rbegin(); entry != file.vocab.rend(); ++entry) {
    if (entry->first == token) return entry->second;
  }
  return fail(Code::kCorrupt,
              "{}: has no line \"{}\", the token that stands around every text; take the "
              "vocabulary of this model, or name its tokens in tokenizer_config.json",
              where, token);
}

std::string chosen(const std::string& token, std::string_view usual) {
  return token.empty() ? std::string(usual) : token;
}

// Everything of a tokenizer.json but the vocabulary.
Result<Json> root_of(const TokenizerFile& file, const TokenizerConfig& config,
                     const VocabClass& kind, std::string_view where) {
  const WordListConfig& words = config.words;
  const std::string cls = chosen(words.cls_token, kind.cls);
  const std::string sep = chosen(words.sep_token, kind.sep);
  const std::string unknown = chosen(config.unk_token, kUnknown);
  JIGE_TRY(const int64_t cls_id, id_of(file, cls, where));
  JIGE_TRY(const int64_t sep_id, id_of(file, sep, where));
  Json added = Json::array();
  const auto add = [&](const std::string& token, bool takes_space) {
    const auto found = std::find_if(file.vocab.begin(), file.vocab.end(),
                                    [&](const auto& entry) { return entry.first == token; });
    if (found == file.vocab.end()) return;
    Json object = added_token_json(token, true);
    object["id"] = found->second;
    object["lstrip"] = takes_space;
    added.push_back(std::move(object));
  };
  for (const std::string& token : {cls, sep, unknown, chosen(config.pad_token, kind.pad),
                                   config.bos_token, config.eos_token}) {
    if (!token.empty()) add(token, false);
  }
  add(chosen(words.mask_token, kind.mask), kind.frames_as_roberta);
  Json strips;  // null: as small letters say
  if (words.strips_accents) strips = *words.strips_accents;
  return Json{{"added_tokens", std::move(added)},
              {"normalizer",
               {{"type", "BertNormalizer"},
                {"clean_text", true},
                {"handle_chinese_chars", words.spaces_chinese},
                {"strip_accents", std::move(strips)},
                {"lowercase", words.lowers.value_or(true)}}},
              {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
              {"post_processor",
               {{"type", kind.frames_as_roberta ? "RobertaProcessing" : "BertProcessing"},
                {"sep", {sep, sep_id}},
                {"cls", {cls, cls_id}}}},
              {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
              {"model", {{"type", "WordPiece"}, {"unk_token", unknown}}}};
}

}  // namespace

Result<TokenizerParts> build_from_vocab(std::string_view text, const TokenizerConfig& config,
                                        std::string_view where) {
  JIGE_TRY(const VocabClass kind, class_of(config.tokenizer_class, where));
  if (!is_valid_utf8(text)) return fail(Code::kCorrupt, "{}: is not valid UTF-8", where);
  TokenizerFile file;
  file.vocab = tokens_of(text);
  JIGE_TRY(Json root, root_of(file, config, kind, where));
  file.root = std::make_shared<const Json>(std::move(root));
  return build_from_file(std::move(file), config, where);
}

}  // namespace jige::text
