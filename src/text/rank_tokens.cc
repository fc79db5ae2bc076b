#include "text/rank_tokens.h"

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "base/base64.h"
#include "text/rank_tokens_check.h"
#include "text/vocabulary.h"

namespace jige::text {
namespace {

constexpr size_t kLineBytesMax = 2 * kRankTokenBytesMax;

struct RankLine {
  std::string_view text;  // in base64
  std::string_view rank;
};

// The parts of a line, where it looks like one of a list of ranks.
bool read_line(std::string_view line, RankLine& parts) {
  const size_t space = line.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == line.size()) return false;
  constexpr std::string_view kDigits = "0123456789";
  const auto in_base64 = [&](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '+' || c == '/' || c == '=' ||
           kDigits.find(c) != std::string_view::npos;
  };
  parts = {line.substr(0, space), line.substr(space + 1)};
  return std::all_of(parts.text.begin(), parts.text.end(), in_base64) &&
         parts.rank.find_first_not_of(kDigits) == std::string_view::npos;
}

}  // namespace

Status add_rank_token(std::string_view base64, std::string_view where,
                      std::vector<std::string>& tokens) {
  const size_t rank = tokens.size();
  auto bytes = base64_bytes(base64);
  if (!bytes) return fail(Code::kCorrupt, "{}: token {} is not in base64", where, rank);
  if (bytes->empty() || bytes->size() > kRankTokenBytesMax) {
    return fail(Code::kCorrupt, "{}: token {} has {} bytes, outside 1..{}", where, rank,
                bytes->size(), kRankTokenBytesMax);
  }
  tokens.push_back(std::move(*bytes));
  return {};
}

Status check_rank_tokens(const std::vector<std::string>& tokens, std::string_view where) {
  std::unordered_set<std::string_view> seen;
  seen.reserve(tokens.size());
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    if (seen.insert(tokens[rank]).second) continue;
    return fail(Code::kCorrupt, "{}: token {} has the bytes of one before it", where, rank);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(byte);
    if (seen.contains({&value, 1})) continue;
    return fail(Code::kCorrupt, "{}: no token is the byte {}", where, byte);
  }
  return {};
}

bool is_rank_list(std::string_view bytes) {
  RankLine parts;
  return read_line(bytes.substr(0, std::min(bytes.find('\n'), kLineBytesMax)), parts);
}

Result<RankTokens> parse_rank_list(std::string_view text, std::string_view where) {
  RankTokens ranks;
  size_t line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    RankLine parts;
    size_t rank = 0;
    if (line.size() > kLineBytesMax || !read_line(line, parts) ||
        std::from_chars(parts.rank.begin(), parts.rank.end(), rank).ec != std::errc()) {
      return fail(Code::kCorrupt, "{}: line {} is not a token in base64 and its rank", where,
                  line_number);
    }
    if (rank != ranks.tokens.size()) {
      return fail(Code::kCorrupt, "{}: line {} has the rank {} where {} comes next", where,
                  line_number, rank, ranks.tokens.size());
    }
    if (rank > static_cast<size_t>(kTokenIdMax)) {
      return fail(Code::kCorrupt, "{}: has more than {} tokens", where, kTokenIdMax);
    }
    JIGE_DO(add_rank_token(parts.text, where, ranks.tokens));
  }
  JIGE_DO(check_rank_tokens(ranks.tokens, where));
  return ranks;
}

}  // namespace jige::text
