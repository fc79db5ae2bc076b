#include "train/answer_words.h"

#include <bit>
#include <cmath>

namespace jige::train {
namespace {

constexpr uint32_t kHalf = 32;

}  // namespace

void add_answer(const DrawnAnswer& answer, double reward, std::vector<int64_t>& words) {
  words.push_back(std::bit_cast<int64_t>(reward));
  words.push_back(std::ssize(answer.tokens));
  words.push_back(answer.cut ? 1 : 0);
  for (size_t k = 0; k < answer.tokens.size(); ++k) {
    const uint64_t upper = uint64_t{std::bit_cast<uint32_t>(answer.logprobs[k])} << kHalf;
    words.push_back(std::bit_cast<int64_t>(upper | std::bit_cast<uint32_t>(answer.tokens[k])));
  }
}

Result<int64_t> AnswerReader::take() {
  if (words_.empty()) return fail(Code::kCorrupt, "a rank says less of its answers than it drew");
  const int64_t word = words_.front();
  words_ = words_.subspan(1);
  return word;
}

Result<double> AnswerReader::take_number() {
  JIGE_TRY(const int64_t word, take());
  return std::bit_cast<double>(word);
}

Status AnswerReader::take_answer(DrawnAnswer& answer, double& reward) {
  JIGE_TRY(reward, take_number());
  JIGE_TRY(const int64_t count, take());
  JIGE_TRY(const int64_t cut, take());
  if (!std::isfinite(reward) || count < 1 || count > std::ssize(words_) || cut < 0 || cut > 1) {
    return fail(
        Code::kCorrupt,
        "a rank says of an answer that its reward is {}, that it has {} tokens of {} words, "
        "and {} of whether it was cut",
        reward, count, words_.size(), cut);
  }
  answer.cut = cut != 0;
  for (int64_t k = 0; k < count; ++k) {
    JIGE_TRY(const int64_t word, take());
    const auto bits = std::bit_cast<uint64_t>(word);
    const auto token = std::bit_cast<int32_t>(static_cast<uint32_t>(bits));
    if (token < 0 || token >= vocab_size_) {
      return fail(Code::kCorrupt, "a rank says that it drew token {} of {}", token, vocab_size_);
    }
    answer.tokens.push_back(token);
    answer.logprobs.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits >> kHalf)));
  }
  return {};
}

}  // namespace jige::train
