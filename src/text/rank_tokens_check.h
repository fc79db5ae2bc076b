// What both files of tokens with ranks (rank_tokens.h) are held to.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::text {

// Of one token; published ones have up to some hundreds.
inline constexpr size_t kRankTokenBytesMax = 1024;

// Appends the token of the next rank. Fails with kCorrupt where the text is not base64, or stands
// for no byte or too many.
Status add_rank_token(std::string_view base64, std::string_view where,
                      std::vector<std::string>& tokens);

// Fails with kCorrupt where two tokens have the same bytes or a single byte is none.
Status check_rank_tokens(const std::vector<std::string>& tokens, std::string_view where);

}  // namespace jige::text
