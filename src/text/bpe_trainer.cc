#include "text/bpe_trainer.h"

#include <algorithm>
#include <deque>
#include <string>
#include <unordered_map>

#include "text/added_tokens.h"
#include "text/bpe_merger.h"
#include "text/hash.h"
#include "text/regex.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

namespace jige::text {
namespace {

constexpr size_t kSliceBytes = size_t{1} << 20;
constexpr int32_t kMergesPerCall = 64;
constexpr int32_t kBytes = 256;

std::string split_pattern(DigitGroups digits) {
  return fmt::format(
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{}|)"
      R"( ?[^\s\p{{L}}\p{{N}}]+[\r\n]*)"
      R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
      digits == DigitGroups::kSingle ? R"(\p{N})" : R"(\p{N}{1,3})");
}

// Where a slice of at least kSliceBytes may end: between a newline and a character that is no white
// space, where the pattern always ends a word.
size_t slice_end(std::string_view text) {
  for (size_t at = text.find('\n', std::min(kSliceBytes, text.size())); at != text.npos;
       at = text.find('\n', at + 1)) {
    if (at + 1 < text.size() && !is_white_space(decode_utf8(text.substr(at + 1)).code_point)) {
      return at + 1;
    }
  }
  return text.size();
}

struct HashView {
  size_t operator()(std::string_view text) const { return hash_bytes(text); }
};

}  // namespace

struct BpeTrainer::State {
  BpeTrainerOptions options;
  std::string pattern;
  Result<Regex> words;
  RegexScratch scratch;
  std::vector<Range> ranges;
  AddedTokens specials;
  Status specials_status;
  std::deque<std::string> texts;
  std::unordered_map<std::string_view, int64_t, HashView> counts;

  explicit State(BpeTrainerOptions chosen)
      : options(std::move(chosen)),
        pattern(split_pattern(options.digits)),
        words(Regex::compile(pattern, "the trainer's split pattern")) {
    specials_status = add_specials();
  }

  Status add_specials() {
    for (size_t i = 0; i < options.special_tokens.size(); ++i) {
      const std::string& token = options.special_tokens[i];
      if (token.empty() || !is_valid_utf8(token)) {
        return fail(Code::kInvalidArgument, "special token {} is empty or not valid UTF-8", i);
      }
      if (specials.find(token)) {
        return fail(Code::kInvalidArgument, "special token \"{}\" is listed twice", token);
      }
      JIGE_DO(specials.add(
          {.content = token, .id = static_cast<int32_t>(i), .special = true, .normalized = false},
          "special_tokens"));
    }
    return specials.freeze(Normalizer());
  }

  void count(std::string_view word) {
    if (word.size() > static_cast<size_t>(options.word_bytes_max)) return;
    if (const auto it = counts.find(word); it != counts.end()) {
      ++it->second;
      return;
    }
    counts.emplace(texts.emplace_back(word), 1);
  }

  Status feed(std::string_view text) {
    while (!text.empty()) {
      const std::string_view slice = text.substr(0, slice_end(text));
      text.remove_prefix(slice.size());
      std::vector<Section> sections;
      specials.split_raw(slice, {}, sections);
      for (const Section& section : sections) {
        if (section.id >= 0) continue;
        const std::string_view part = slice.substr(section.begin, section.end - section.begin);
        ranges.clear();
        JIGE_DO(words->find_all(part, scratch, ranges));
        for (const Range& range : ranges) count(part.substr(range.begin, range.end - range.begin));
      }
    }
    return {};
  }
};

BpeTrainer::BpeTrainer(BpeTrainerOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
BpeTrainer::BpeTrainer(BpeTrainer&&) noexcept = default;
BpeTrainer& BpeTrainer::operator=(BpeTrainer&&) noexcept = default;
BpeTrainer::~BpeTrainer() = default;

Status BpeTrainer::feed(std::string_view text) {
  if (!state_->words) return tl::unexpected<Error>(state_->words.error());
  JIGE_DO(Status(state_->specials_status));
  if (is_valid_utf8(text)) return state_->feed(text);
  return state_->feed(replace_invalid_utf8(text));
}

Result<TrainedBpe> BpeTrainer::train(
    const std::function<bool(int32_t done, int32_t total)>& progress) {
  const BpeTrainerOptions& options = state_->options;
  JIGE_DO(Status(state_->specials_status));
  const int64_t fixed = kBytes + static_cast<int64_t>(options.special_tokens.size());
  if (options.vocab_size < fixed || options.vocab_size > kTokenIdMax) {
    return fail(
        Code::kInvalidArgument,
        "vocab_size = {} must be at least {} (256 bytes and {} special tokens) and at most {}",
        options.vocab_size, fixed, options.special_tokens.size(), kTokenIdMax);
  }
  if (state_->counts.empty()) {
    return fail(Code::kInvalidArgument, "there is no text to train the tokenizer on");
  }
  BpeMerger merger;
  for (const std::string& word : state_->texts) merger.add_word(word, state_->counts.at(word));
  merger.count_pairs();
  const auto total = static_cast<int32_t>(options.vocab_size - fixed);
  const auto tokens_max = static_cast<size_t>(kBytes + total);
  const int64_t count_min = std::max<int64_t>(1, options.pair_count_min);
  while (merger.tokens().size() < tokens_max && merger.merge_next(count_min)) {
    const auto done = static_cast<int32_t>(merger.tokens().size()) - kBytes;
    if (progress && done % kMergesPerCall == 0 && !progress(done, total)) {
      return fail(Code::kCancelled, "tokenizer training was stopped after {} merges", done);
    }
  }
  TrainedBpe trained;
  trained.tokens = merger.tokens();
  for (const BpeMerger::Pair& pair : merger.merges()) {
    trained.merges.emplace_back(trained.tokens[static_cast<size_t>(pair.left)],
                                trained.tokens[static_cast<size_t>(pair.right)]);
  }
  trained.tokens.insert(trained.tokens.end(), options.special_tokens.begin(),
                        options.special_tokens.end());
  trained.special_tokens = options.special_tokens;
  trained.split_pattern = state_->pattern;
  if (progress) progress(total, total);
  return trained;
}

}  // namespace jige::text
