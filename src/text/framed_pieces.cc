// A spm.model: pieces of SentencePiece with the tokens that DeBERTa v2 and v3 put around texts,
// which no file says where there is no tokenizer.json.
#include <algorithm>

#include "text/tokenizer_core.h"

namespace jige::text {
namespace {

constexpr std::string_view kFramedClass = "DebertaV2Tokenizer";

// What is not done, of what a folder may ask of the class.
Status check_framed(const TokenizerConfig& config, std::string_view where) {
  const std::string& name = config.tokenizer_class;
  if (!name.empty() && name != kFramedClass && name != std::string(kFramedClass) + "Fast") {
    return fail(Code::kUnsupported,
                "{}: tokenizer_config.json names the class \"{}\", of which Jige reads no "
                "spm.model; it reads those of {}: take a folder with a tokenizer.json",
                where, name.substr(0, 80), kFramedClass);
  }
  const bool lowers = config.words.lowers.value_or(false);
  if (!lowers && !config.words.splits_punctuation) return {};
  return fail(Code::kUnsupported,
              "{}: \"{}\" of tokenizer_config.json is true, which Jige does not do to texts of a "
              "spm.model; take a folder with a tokenizer.json",
              where, lowers ? "do_lower_case" : "split_by_punct");
}

}  // namespace

Result<TokenizerParts> build_from_framed_pieces(std::string_view bytes,
                                                const TokenizerConfig& config,
                                                std::string_view where) {
  JIGE_DO(check_framed(config, where));
  JIGE_TRY(SentencePieceModel model, SentencePieceModel::create(bytes, where));
  const auto chosen = [](const std::string& token, const char* usual) {
    return token.empty() ? std::string(usual) : token;
  };
  TokenizerConfig framed = config;
  framed.bos_token = chosen(config.words.cls_token, "[CLS]");
  framed.eos_token = chosen(config.words.sep_token, "[SEP]");
  framed.add_bos = framed.add_eos = true;
  // The class has this token, if need be behind the pieces.
  const std::string mask = chosen(config.words.mask_token, "[MASK]");
  const auto pieces = model.pieces();
  const bool known =
      std::ranges::any_of(pieces, [&](const auto& one) { return one.first == mask; });
  if (!known) {
    framed.added.push_back({.content = mask,
                            .id = static_cast<int32_t>(pieces.size()),
                            .special = true,
                            .normalized = false});
  }
  JIGE_TRY(TokenizerParts parts, build_from_pieces(std::move(model), framed, where));
  const SpecialTokens& special = parts.special;
  if (special.bos_id < 0 || special.eos_id < 0) {
    return fail(Code::kCorrupt,
                "{}: has no piece \"{}\" or \"{}\", the tokens that stand around every text; take "
                "the pieces of this model, or name its tokens in tokenizer_config.json",
                where, framed.bos_token, framed.eos_token);
  }
  parts.post_processor.pair = PairFrame{.before = {special.bos_id},
                                        .between = {special.eos_id},
                                        .behind = {special.eos_id},
                                        .second_from = 1};
  return parts;
}

}  // namespace jige::text
