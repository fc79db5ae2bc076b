#include "formats/lora_patterns.h"

#include <cstddef>
#include <string>
#include <utility>

namespace jige::formats {
namespace {

template <typename Value>
Result<std::vector<text::Regex>> compile_patterns(
    const std::vector<std::pair<std::string, Value>>& patterns, const char* field,
    std::string_view where) {
  std::vector<text::Regex> compiled;
  for (const auto& [expression, value] : patterns) {
    JIGE_TRY(text::Regex regex,
             text::Regex::compile(fmt::format(R"(\A(.*\.)?({})\z)", expression),
                                  fmt::format("{}: field \"{}\"", where, field)));
    compiled.push_back(std::move(regex));
  }
  return compiled;
}

// That of the first pattern that matches, else `fallback`.
template <typename Value>
Result<Value> first_match(const std::vector<text::Regex>& compiled,
                          const std::vector<std::pair<std::string, Value>>& patterns,
                          std::string_view module, Value fallback) {
  text::RegexScratch scratch;
  for (size_t i = 0; i < compiled.size(); ++i) {
    text::Range match;
    text::Regex::Scan scan(compiled[i], module, scratch);
    JIGE_TRY(const bool found, scan.next(match));
    if (found) return patterns[i].second;
  }
  return fallback;
}

}  // namespace

Result<LoraPatterns> LoraPatterns::create(const LoraConfig& config, std::string_view where) {
  LoraPatterns made(config);
  JIGE_TRY(made.ranks_, compile_patterns(config.rank_pattern, "rank_pattern", where));
  JIGE_TRY(made.alphas_, compile_patterns(config.alpha_pattern, "alpha_pattern", where));
  return made;
}

Result<LoraModule> LoraPatterns::of(std::string_view module) const {
  JIGE_TRY(const int64_t rank, first_match(ranks_, config_.rank_pattern, module, config_.rank));
  JIGE_TRY(const double alpha, first_match(alphas_, config_.alpha_pattern, module, config_.alpha));
  return LoraModule{.rank = rank, .scale = config_.scale(rank, alpha)};
}

}  // namespace jige::formats
