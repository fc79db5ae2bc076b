// Tokens that merge by their ranks, as tiktoken reads them: the tekken.json of Mistral, and lists
// of ranks (tiktoken.model).
//
// tekken.json is an object with
//
//   config          pattern, default_vocab_size, default_num_special_tokens, version
//   vocab           [{"rank": 0, 1, 2 …, "token_bytes": base64, "token_str": …}, …]
//   special_tokens  [{"rank": …, "token_str": …, "is_control": …}, …]; up to version v7 it may be
//                   missing, and twenty tokens that are always the same are meant
//
// and members that are passed over (image, audio …). The first default_num_special_tokens ids are
// special tokens; those that have no name are <SPECIAL_n>. The ids behind them are the ranks, so
// many that there are default_vocab_size ids; the rest of the list is left out.
//
// A list of ranks has a line for every token: its bytes in base64, a space, its rank, which is its
// id. It does not say how texts are cut into words.
//
// In both the ranks are 0, 1, 2 … without gap, no bytes stand twice, and each single byte is a
// token.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"

namespace jige::text {

struct RankTokens {
  std::vector<std::string> tokens;  // their bytes, by rank
  int32_t first_id = 0;             // of rank 0
  std::string pattern;              // of words; what it does not match is left out
  std::vector<AddedToken> special;
};

// Each fails with kCorrupt naming the place, parse_tekken with kUnsupported on a version that is
// not known.
Result<RankTokens> parse_tekken(std::string_view text, std::string_view where);
Result<RankTokens> parse_rank_list(std::string_view text, std::string_view where);

// Whether the first line is one of a list of ranks.
bool is_rank_list(std::string_view bytes);

}  // namespace jige::text
