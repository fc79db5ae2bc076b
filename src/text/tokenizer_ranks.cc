#include "text/rank_tokens.h"
#include "text/tokenizer_core.h"

namespace jige::text {
namespace {

// Of Moonshot's models (Moonlight, Kimi K2 and later): Chinese characters by themselves, then words
// as of GPT-4o without them. Their folders have the pattern as Python code alone.
constexpr std::string_view kMoonshotWords =
    R"([\p{Han}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr int32_t kMoonshotReserved = 256;  // special tokens behind the ranks

void set_default(std::string& role, std::string_view token) {
  if (role.empty()) role = token;
}

}  // namespace

Result<TokenizerParts> build_from_tekken(std::string_view text, const TokenizerConfig& config,
                                         std::string_view where) {
  JIGE_TRY(const RankTokens ranks, parse_tekken(text, where));
  TokenizerConfig roles = config;
  set_default(roles.bos_token, "<s>");
  set_default(roles.eos_token, "</s>");
  set_default(roles.pad_token, "<pad>");
  set_default(roles.unk_token, "<unk>");
  // The custom of the models that come with one.
  if (!roles.add_bos) roles.add_bos = true;
  return build_from_ranks(ranks, roles, where);
}

Result<TokenizerParts> build_from_rank_list(std::string_view text, const TokenizerConfig& config,
                                            std::string_view where) {
  if (config.tokenizer_code != "tokenization_kimi.TikTokenTokenizer" &&
      config.tokenizer_code != "tokenization_moonshot.TikTokenTokenizer") {
    return fail(Code::kUnsupported,
                "{}: is a list of tokens and ranks, which does not say how text is cut into words; "
                "Jige knows it where tokenizer_config.json names Moonshot's TikTokenTokenizer; for "
                "others it reads a tokenizer.json",
                where);
  }
  JIGE_TRY(RankTokens ranks, parse_rank_list(text, where));
  ranks.pattern = kMoonshotWords;
  const auto count = static_cast<int32_t>(ranks.tokens.size());
  for (int32_t id = count; id < count + kMoonshotReserved; ++id) {
    ranks.special.push_back({.content = fmt::format("<|reserved_token_{}|>", id),
                             .id = id,
                             .special = true,
                             .normalized = false});
  }
  // Encoding adds nothing, whatever the folder says.
  TokenizerConfig roles = config;
  roles.add_bos = roles.add_eos = std::nullopt;
  return build_from_ranks(ranks, roles, where);
}

}  // namespace jige::text
