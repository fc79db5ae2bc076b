#include "text/merge_list.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "text/component.h"
#include "text/tokenizer_core.h"
#include "text/tokenizer_json.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

constexpr const char* kEndOfText = "<|endoftext|>";

// What classes do differently.
enum class MergeKind { kGpt2, kRoberta, kQwen2 };

struct MergeClass {
  std::string_view name;
  MergeKind kind;
};
constexpr std::array<MergeClass, 8> kMergeClasses = {{{"GPT2Tokenizer", MergeKind::kGpt2},
                                                      {"CodeGenTokenizer", MergeKind::kGpt2},
                                                      {"RobertaTokenizer", MergeKind::kRoberta},
                                                      {"BartTokenizer", MergeKind::kRoberta},
                                                      {"LongformerTokenizer", MergeKind::kRoberta},
                                                      {"LEDTokenizer", MergeKind::kRoberta},
                                                      {"MvpTokenizer", MergeKind::kRoberta},
                                                      {"Qwen2Tokenizer", MergeKind::kQwen2}}};

Result<MergeKind> merge_kind_of(const TokenFiles& files, std::string_view where) {
  const TokenizerClass named = tokenizer_class_of(files);
  if (named.name.empty()) {
    return fail(
        Code::kUnsupported,
        "{}: no file beside it names a tokenizer_class, and for model_type \"{}\" Jige knows "
        "none that is made of these files; take a folder with a tokenizer.json, or name the "
        "class in tokenizer_config.json",
        where, named.model_type.substr(0, 80));
  }
  std::string_view base = named.name;
  if (base.ends_with("Fast")) base.remove_suffix(std::string_view("Fast").size());
  std::string names;
  for (const MergeClass& one : kMergeClasses) {
    if (one.name == base) return one.kind;
    names += (names.empty() ? "" : ", ") + std::string(one.name);
  }
  return fail(Code::kUnsupported,
              "{}: {} stands for the class \"{}\", of which Jige reads no vocab.json; it reads "
              "those of {}: take a folder with a tokenizer.json, as transformers 5 writes one of "
              "this folder",
              where, named.is_by_model ? "config.json" : "tokenizer_config.json",
              named.name.substr(0, 80), names);
}

TokenRules rules_of(MergeKind kind) {
  switch (kind) {
    case MergeKind::kRoberta:
      return {.usual = {.bos = "<s>",
                        .eos = "</s>",
                        .unk = "<unk>",
                        .sep = "</s>",
                        .pad = "<pad>",
                        .cls = "<s>",
                        .mask = "<mask>"}};
    case MergeKind::kQwen2:
      return {.usual = {.bos = {},
                        .eos = kEndOfText,
                        .unk = kEndOfText,
                        .sep = {},
                        .pad = kEndOfText,
                        .cls = {},
                        .mask = {}},
              .flags_are_lost = true};
    case MergeKind::kGpt2:
      break;
  }
  return {.usual = {.bos = kEndOfText,
                    .eos = kEndOfText,
                    .unk = kEndOfText,
                    .sep = {},
                    .pad = {},
                    .cls = {},
                    .mask = {}}};
}

// What an error shows of a line.
std::string_view shown(std::string_view line) {
  constexpr size_t kBytesMax = 80;
  if (line.size() <= kBytesMax) return line;
  return line.substr(0, last_character(line.substr(0, kBytesMax)));
}

// Ids that no other token has, of tokens that stand there once.
Status check_unique(const std::vector<std::pair<std::string, int64_t>>& entries,
                    const Vocabulary& vocabulary, std::string_view where) {
  std::vector<bool> taken(static_cast<size_t>(vocabulary.size()), false);
  for (const auto& [token, id] : entries) {
    if (vocabulary.find(token) != id) {
      return fail(Code::kCorrupt, "{}: token \"{}\" stands there twice, with the ids {} and {}",
                  where, shown(token), id, vocabulary.find(token));
    }
    if (taken[static_cast<size_t>(id)]) {
      return fail(Code::kCorrupt,
                  "{}: id {} is that of \"{}\" and of another token; take the vocab.json of this "
                  "model",
                  where, id, shown(token));
    }
    taken[static_cast<size_t>(id)] = true;
  }
  return {};
}

// A line is two tokens with a space between them; those that begin with "#version" and empty ones
// say nothing.
Result<TextPairs> merges_of(const MergeFiles& files, const Vocabulary& vocabulary) {
  const std::string& where = files.merges_where;
  if (!is_valid_utf8(files.merges)) return fail(Code::kCorrupt, "{}: is not valid UTF-8", where);
  TextPairs merges;
  std::string_view rest = files.merges;
  for (size_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    if (space == 0 || space == line.npos || space + 1 == line.size() ||
        line.find(' ', space + 1) != line.npos) {
      return fail(Code::kCorrupt,
                  "{}: line {}, \"{}\", is not two tokens with a space between them", where, number,
                  shown(line));
    }
    merges.add(line.substr(0, space), line.substr(space + 1));
    const size_t last = merges.size() - 1;
    for (const std::string_view token :
         {merges.left(last), merges.right(last), merges.joined(last)}) {
      if (vocabulary.find(token) >= 0) continue;
      return fail(Code::kCorrupt,
                  "{}: line {} needs the token \"{}\", which {} does not have; take both files of "
                  "one model",
                  where, number, shown(token), files.vocab_where);
    }
  }
  return merges;
}

Result<Json> pre_tokenizer_of(MergeKind kind, const TokenFiles& files) {
  JIGE_TRY(const bool spaces,
           get_bool_or(files.config, "add_prefix_space", false, "tokenizer_config.json"));
  if (kind != MergeKind::kQwen2) {
    Json words = byte_level_json(true);
    words["add_prefix_space"] = spaces;
    return words;
  }
  Json words = split_then_bytes_json(kQwen2Words);
  words["pretokenizers"][1]["add_prefix_space"] = spaces;
  return words;
}

// What stands around texts. REQUIRES: every token with a role was added.
Result<Json> post_processor_of(MergeKind kind, const TokenizerConfig& config,
                               const FolderTokens& tokens, std::string_view where) {
  const auto known = [&](const std::string& text) -> std::pair<std::string, int64_t> {
    return {text, std::ranges::find(tokens.added, text, &AddedToken::content)->id};
  };
  const RoleTexts& roles = tokens.roles;
  if (kind == MergeKind::kRoberta) {
    if (roles.sep.empty() || roles.cls.empty()) {
      return fail(Code::kCorrupt,
                  "{}: tokenizer_config.json takes away sep_token or cls_token, which stand around "
                  "every text of this class; name them there",
                  where);
    }
    const auto [sep, sep_id] = known(roles.sep);
    const auto [cls, cls_id] = known(roles.cls);
    return Json{{"type", "RobertaProcessing"}, {"sep", {sep, sep_id}}, {"cls", {cls, cls_id}}};
  }
  SpecialTexts before;
  SpecialTexts behind;
  if (config.add_bos.value_or(false) && !roles.bos.empty()) before.push_back(known(roles.bos));
  if (config.add_eos.value_or(false) && !roles.eos.empty()) behind.push_back(known(roles.eos));
  return template_json(before, behind);
}

Json added_json(const std::vector<AddedToken>& added) {
  Json list = Json::array();
  for (const AddedToken& token : added) {
    Json object = added_token_json(token.content, token.special);
    object["id"] = token.id;
    object["single_word"] = token.single_word;
    object["lstrip"] = token.lstrip;
    object["rstrip"] = token.rstrip;
    object["normalized"] = token.normalized;
    list.push_back(std::move(object));
  }
  return list;
}

}  // namespace

Result<TokenizerParts> build_from_merges(const MergeFiles& files, const TokenizerConfig& config) {
  const std::string& where = files.vocab_where;
  JIGE_TRY(const MergeKind kind, merge_kind_of(files.tokens, where));
  TokenizerFile file;
  JIGE_TRY(file.vocab, parse_vocabulary_file(files.vocab, where));
  JIGE_TRY(const Vocabulary vocabulary, Vocabulary::create(file.vocab, where));
  JIGE_DO(check_unique(file.vocab, vocabulary, where));
  JIGE_TRY(file.merges, merges_of(files, vocabulary));
  const auto token_count = static_cast<int64_t>(file.vocab.size());
  JIGE_TRY(const FolderTokens tokens,
           find_folder_tokens(files.tokens, rules_of(kind), vocabulary, token_count, where));
  JIGE_TRY(Json pre_tokenizer, pre_tokenizer_of(kind, files.tokens));
  JIGE_TRY(Json post_processor, post_processor_of(kind, config, tokens, where));
  Json normalizer;  // null: none
  if (kind == MergeKind::kQwen2) normalizer = {{"type", "NFC"}};
  file.root = std::make_shared<const Json>(Json{{"added_tokens", added_json(tokens.added)},
                                                {"normalizer", std::move(normalizer)},
                                                {"pre_tokenizer", std::move(pre_tokenizer)},
                                                {"post_processor", std::move(post_processor)},
                                                {"decoder", byte_level_decoder_json()},
                                                {"model", {{"type", "BPE"}}}});
  TokenizerConfig roles = config;
  roles.bos_token = tokens.roles.bos;
  roles.eos_token = tokens.roles.eos;
  roles.pad_token = tokens.roles.pad;
  roles.unk_token = tokens.roles.unk;
  roles.added.clear();
  return build_from_file(std::move(file), roles, where);
}

}  // namespace jige::text
