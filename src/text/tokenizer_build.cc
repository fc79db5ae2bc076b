#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "text/byte_level.h"
#include "text/component.h"
#include "text/tokenizer_core.h"
#include "text/tokenizer_json.h"

namespace jige::text {
namespace {

// Whether a tokenizer of this class adds its tokens by itself, whatever its file says, up to
// transformers 4. From 5 on it does not, but folders such as DeepSeek's count on it.
bool adds_by_itself(std::string_view tokenizer_class) {
  constexpr std::array<std::string_view, 5> kClasses = {"Llama", "CodeLlama", "Gemma", "Cohere",
                                                        "GPTNeoX"};
  return std::any_of(kClasses.begin(), kClasses.end(), [&](std::string_view family) {
    const std::string name = std::string(family) + "Tokenizer";
    return tokenizer_class == name || tokenizer_class == name + "Fast";
  });
}

Result<std::string> model_type(const TokenizerFile& file, const Json& model) {
  if (const Json* type = find_field(model, "type"); type && type->is_string()) {
    return type->get<std::string>();
  }
  // Files of early days name no type.
  if (file.vocab_is_list) return std::string("Unigram");
  return std::string(!file.merges.empty() ? "BPE" : "of unknown type");
}

Result<BpeOptions> bpe_options(const Json& model, bool byte_level, const std::string& where) {
  BpeOptions options;
  options.byte_level = byte_level;
  JIGE_TRY(options.byte_fallback, get_bool_or(model, "byte_fallback", false, where));
  JIGE_TRY(options.fuse_unk, get_bool_or(model, "fuse_unk", false, where));
  JIGE_TRY(options.ignore_merges, get_bool_or(model, "ignore_merges", false, where));
  JIGE_TRY(options.unk_token, get_string_or(model, "unk_token", "", where));
  for (const char* field : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    JIGE_TRY(const std::string affix, get_string_or(model, field, "", where));
    if (!affix.empty()) {
      return fail(Code::kUnsupported, "{}: \"{}\" = \"{}\" is not supported", where, field, affix);
    }
  }
  return options;
}

Result<UnigramOptions> unigram_options(const Json& model, bool byte_level,
                                       const std::string& where) {
  UnigramOptions options;
  options.byte_level = byte_level;
  JIGE_TRY(options.byte_fallback, get_bool_or(model, "byte_fallback", false, where));
  JIGE_TRY(const int64_t unk, get_int_or(model, "unk_id", -1, where));
  if (unk < -1 || unk > kTokenIdMax || (unk < 0 && find_field(model, "unk_id"))) {
    return fail(Code::kCorrupt, "{}: \"unk_id\" is {}, not an id", where, unk);
  }
  options.unk_id = static_cast<int32_t>(unk);
  return options;
}

Result<WordPieceOptions> word_piece_options(const Json& model, bool byte_level,
                                            const std::string& where) {
  WordPieceOptions options;
  options.byte_level = byte_level;
  JIGE_TRY(options.unk_token, get_string_or(model, "unk_token", options.unk_token, where));
  JIGE_TRY(options.prefix,
           get_string_or(model, "continuing_subword_prefix", options.prefix, where));
  JIGE_TRY(options.characters_max,
           get_int_or(model, "max_input_chars_per_word", options.characters_max, where));
  return options;
}

// The vocabulary's way to cut words into tokens.
using WordModel = decltype(TokenizerParts::model);
Result<WordModel> word_model(const std::string& type, const TokenizerFile& file,
                             const std::shared_ptr<const Vocabulary>& vocabulary, bool byte_level,
                             const std::string& where) {
  const Json& model = *find_field(*file.root, "model");
  if (type == "Unigram") {
    JIGE_TRY(const UnigramOptions options, unigram_options(model, byte_level, where));
    JIGE_TRY(UnigramModel unigram, UnigramModel::create(vocabulary, file.scores, options, where));
    return WordModel(std::move(unigram));
  }
  if (type == "WordPiece") {
    JIGE_TRY(WordPieceOptions options, word_piece_options(model, byte_level, where));
    JIGE_TRY(WordPieceModel pieces, WordPieceModel::create(vocabulary, std::move(options), where));
    return WordModel(std::move(pieces));
  }
  JIGE_TRY(BpeOptions options, bpe_options(model, byte_level, where));
  JIGE_TRY(BpeModel bpe, BpeModel::create(vocabulary, file.merges, std::move(options), where));
  return WordModel(std::move(bpe));
}

// No plain text becomes a special token.
void forbid_special(TokenizerParts& parts) {
  for (const AddedToken* token : parts.added.all()) {
    if (!token->special) continue;
    std::visit([&](auto& model) { model.forbid(token->id); }, parts.model);
  }
}

Status read_added_tokens(const Json& root, const Vocabulary& vocabulary, std::string_view where,
                         AddedTokens& added) {
  const Json* list = find_field(root, "added_tokens");
  if (!list) return {};
  const std::string place = fmt::format("{}: added_tokens", where);
  if (!list->is_array()) return fail(Code::kCorrupt, "{}: must be a list", place);
  for (const Json& entry : *list) {
    AddedToken token;
    JIGE_TRY(token.content, get_string(entry, "content", place));
    JIGE_TRY(const int64_t id, get_int(entry, "id", place));
    JIGE_TRY(token.special, get_bool_or(entry, "special", false, place));
    JIGE_TRY(token.single_word, get_bool_or(entry, "single_word", false, place));
    JIGE_TRY(token.lstrip, get_bool_or(entry, "lstrip", false, place));
    JIGE_TRY(token.rstrip, get_bool_or(entry, "rstrip", false, place));
    JIGE_TRY(token.normalized, get_bool_or(entry, "normalized", !token.special, place));
    // A token that the model has too keeps the model's id.
    const int32_t known = vocabulary.find(token.content);
    token.id =
        known >= 0 ? known : static_cast<int32_t>(std::clamp<int64_t>(id, -1, kTokenIdMax + 1));
    JIGE_DO(added.add(std::move(token), place));
  }
  return {};
}

// The texts of the roles become special tokens, and the ids of the roles are looked up.
Status resolve_roles(const TokenizerConfig& config, std::string_view where, TokenizerParts& parts) {
  SpecialTokens& special = parts.special;
  const auto resolve = [&](const std::string& text, std::string& token, int32_t& id) -> Status {
    if (text.empty()) return {};
    const AddedToken* added = parts.added.find(text);
    const int32_t found = added ? added->id : parts.vocabulary->find(text);
    if (found < 0) return {};
    token = text;
    id = found;
    AddedToken flags = added ? *added : AddedToken{.content = text, .normalized = false};
    flags.id = found;
    flags.special = true;
    return parts.added.add(std::move(flags), where);
  };
  JIGE_DO(resolve(config.bos_token, special.bos_token, special.bos_id));
  JIGE_DO(resolve(config.eos_token, special.eos_token, special.eos_id));
  JIGE_DO(resolve(config.pad_token, special.pad_token, special.pad_id));
  return resolve(config.unk_token, special.unk_token, special.unk_id);
}

// Ids that every part agrees exist: those of the post-processor, the roles and the ends of answers.
Status finish(const TokenizerConfig& config, std::string_view where, TokenizerParts& parts) {
  for (const AddedToken& token : config.added) JIGE_DO(parts.added.add(token, where));
  JIGE_DO(resolve_roles(config, where, parts));
  JIGE_DO(parts.added.freeze(parts.normalizer));
  SpecialTokens& special = parts.special;
  if (!parts.post_processor.decides) {
    if (config.add_bos.value_or(false) && special.bos_id >= 0) {
      parts.post_processor.prefix = {special.bos_id};
    }
    if (config.add_eos.value_or(false) && special.eos_id >= 0) {
      parts.post_processor.suffix = {special.eos_id};
    }
  }
  const int32_t size = std::max(parts.vocabulary->size(), parts.added.size());
  const PostProcessor& post = parts.post_processor;
  const PairFrame pair = post.pair.value_or(PairFrame{});
  for (const std::span<const int32_t> ids :
       {std::span(post.prefix), std::span(post.suffix), std::span(pair.before),
        std::span(pair.between), std::span(pair.behind)}) {
    for (const int32_t id : ids) {
      if (id < size) continue;
      return fail(Code::kCorrupt,
                  "{}: the post-processor adds token {}, outside the vocabulary of {}", where, id,
                  size);
    }
  }
  if (special.eos_id >= 0) special.eos_ids.push_back(special.eos_id);
  for (const int64_t id : config.generation_eos_ids) {
    // Some folders list ends that their tokenizer does not have; those can never be produced.
    if (id < 0 || id >= size) continue;
    const auto known = static_cast<int32_t>(id);
    if (std::find(special.eos_ids.begin(), special.eos_ids.end(), known) == special.eos_ids.end()) {
      special.eos_ids.push_back(known);
    }
  }
  parts.chat_template = config.chat_template;
  return {};
}

}  // namespace

Result<TokenizerParts> build_from_file(TokenizerFile file, const TokenizerConfig& config,
                                       std::string_view where) {
  const Json& root = *file.root;
  const Json* model = find_field(root, "model");
  if (!model || !model->is_object()) {
    return fail(Code::kCorrupt, "{}: field \"model\" is missing", where);
  }
  const std::string place = fmt::format("{}: model", where);
  JIGE_TRY(const std::string type, model_type(file, *model));
  if (type != "BPE" && type != "Unigram" && type != "WordPiece") {
    return fail(Code::kUnsupported,
                "{}: the model \"{}\" is not supported, only BPE, Unigram and WordPiece are", where,
                type);
  }
  if (file.vocab_is_list != (type == "Unigram")) {
    return fail(Code::kCorrupt, "{}: the vocabulary of {} must be {}", place, type,
                file.vocab_is_list ? "an object" : "a list of pieces");
  }
  JIGE_TRY(Vocabulary vocabulary, Vocabulary::create(std::move(file.vocab), place));
  if (vocabulary.size() == 0) return fail(Code::kCorrupt, "{}: the vocabulary is empty", place);
  auto shared = std::make_shared<const Vocabulary>(std::move(vocabulary));

  AddedTokens added;
  JIGE_DO(read_added_tokens(root, *shared, where, added));
  JIGE_TRY(Normalizer normalizer, Normalizer::from_json(find_field(root, "normalizer"), where));
  JIGE_TRY(PreTokenizer pre_tokenizer,
           PreTokenizer::from_json(find_field(root, "pre_tokenizer"), where));
  JIGE_TRY(PostProcessor post_processor,
           PostProcessor::from_json(find_field(root, "post_processor"), where));
  JIGE_TRY(Decoder decoder, Decoder::from_json(find_field(root, "decoder"), where));
  JIGE_TRY(WordModel words, word_model(type, file, shared, pre_tokenizer.leaves_bytes(), place));

  TokenizerParts parts{shared,
                       std::move(added),
                       std::move(normalizer),
                       std::move(pre_tokenizer),
                       std::move(words),
                       std::move(post_processor),
                       std::move(decoder),
                       {},
                       {}};
  TokenizerConfig heard = config;
  if (!adds_by_itself(config.tokenizer_class)) heard.add_bos = heard.add_eos = std::nullopt;
  JIGE_DO(finish(heard, where, parts));
  forbid_special(parts);
  return parts;
}

Result<TokenizerParts> build_from_pieces(SentencePieceModel model, const TokenizerConfig& config,
                                         std::string_view where) {
  JIGE_TRY(Vocabulary vocabulary, Vocabulary::create(model.pieces(), where));
  auto shared = std::make_shared<const Vocabulary>(std::move(vocabulary));

  TokenizerConfig roles = config;
  AddedTokens added;
  for (int32_t id = 0; id < shared->size(); ++id) {
    if (!model.is_special(id)) continue;
    JIGE_DO(added.add(
        {.content = shared->token(id), .id = id, .special = true, .normalized = false}, where));
  }
  const auto name = [&](int32_t id, std::string& token) {
    if (token.empty() && shared->contains(id)) token = shared->token(id);
  };
  name(model.bos_id(), roles.bos_token);
  name(model.eos_id(), roles.eos_token);
  name(model.pad_id(), roles.pad_token);
  name(model.unk_id(), roles.unk_token);
  // The custom of the model families that come as a tokenizer.model.
  if (!roles.add_bos) roles.add_bos = true;

  const bool adds_space = model.adds_space();
  TokenizerParts parts{shared,
                       std::move(added),
                       {},
                       {},
                       std::move(model),
                       {},
                       Decoder::for_sentencepiece(adds_space),
                       {},
                       {}};
  JIGE_DO(finish(roles, where, parts));
  forbid_special(parts);
  return parts;
}

Result<TokenizerParts> build_from_sentencepiece(std::string_view bytes,
                                                const TokenizerConfig& config,
                                                std::string_view where) {
  JIGE_TRY(SentencePieceModel model, SentencePieceModel::create(bytes, where));
  return build_from_pieces(std::move(model), config, where);
}

Result<TokenizerParts> build_from_ranks(const RankTokens& ranks, const TokenizerConfig& config,
                                        std::string_view where) {
  std::vector<std::pair<std::string, int64_t>> entries;
  entries.reserve(ranks.tokens.size());
  for (const std::string& token : ranks.tokens) {
    std::string spelled;
    append_byte_level(spelled, token);
    entries.emplace_back(std::move(spelled), ranks.first_id + static_cast<int64_t>(entries.size()));
  }
  JIGE_TRY(Vocabulary vocabulary, Vocabulary::create(std::move(entries), where));
  auto shared = std::make_shared<const Vocabulary>(std::move(vocabulary));
  AddedTokens added;
  for (const AddedToken& token : ranks.special) JIGE_DO(added.add(token, where));
  const Json words = matches_then_bytes_json(ranks.pattern);
  const Json spelling = byte_level_decoder_json();
  JIGE_TRY(PreTokenizer pre_tokenizer, PreTokenizer::from_json(&words, where));
  JIGE_TRY(Decoder decoder, Decoder::from_json(&spelling, where));
  BpeModel bpe = BpeModel::create_from_ranks(shared, where);
  TokenizerParts parts{shared,
                       std::move(added),
                       {},
                       std::move(pre_tokenizer),
                       std::move(bpe),
                       {},
                       std::move(decoder),
                       {},
                       {}};
  JIGE_DO(finish(config, where, parts));
  forbid_special(parts);
  return parts;
}

}  // namespace jige::text
