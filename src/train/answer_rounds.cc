#include "train/answer_rounds.h"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/rng.h"
#include "train/answer_words.h"
#include "train/rank_exchange.h"

namespace jige::train {

AnswerRounds::AnswerRounds(const TrainOptions& options, int64_t vocab_size)
    : grpo_(*options.grpo), vocab_size_(vocab_size), scorer_(options.grpo->reward) {
  if (options.ranks && options.ranks->size > 1) group_ = options.ranks->group.get();
}

bool AnswerRounds::is_own(size_t prompt) const {
  if (group_ == nullptr) return true;
  return static_cast<int>(prompt % static_cast<size_t>(group_->size())) == group_->rank();
}

Status AnswerRounds::draw_and_score(const RoundOrder& order, const GoOn& go_on,
                                    AnswerRound& round) {
  const StopWatch draw_watch;
  std::vector<DrawRequest> requests;
  std::vector<size_t> own;
  for (size_t i = 0; i < order.prompts.size(); ++i) {
    if (!is_own(i)) continue;
    own.push_back(i);
    requests.push_back({.prompt = order.prompts[i]->ids,
                        .continues_text = !order.prompts[i]->chat,
                        .seed = derive_key(order.key, "prompt", i),
                        .count = static_cast<int32_t>(order.group),
                        .options = order.draw});
  }
  JIGE_TRY(std::vector<AnswerGroup> groups, grpo_.source->draw(requests, go_on));
  round.draw_seconds = draw_watch.seconds();
  const StopWatch score_watch;
  std::vector<AnswerToScore> answers;
  for (size_t k = 0; k < own.size(); ++k) {
    for (const DrawnAnswer& answer : groups[k]) {
      answers.push_back({order.prompts[own[k]], answer.text});
    }
  }
  JIGE_TRY(const std::vector<double> rewards, scorer_.score(answers, order.step, go_on));
  round.score_seconds = score_watch.seconds();
  const auto each = static_cast<size_t>(order.group);
  for (size_t k = 0; k < own.size(); ++k) {
    std::ranges::copy(std::span(rewards).subspan(k * each, each),
                      round.rewards.begin() + static_cast<std::ptrdiff_t>(own[k] * each));
    round.groups[own[k]] = std::move(groups[k]);
  }
  return {};
}

Result<bool> AnswerRounds::make_own(const RoundOrder& order, AnswerRound& round) {
  bool left = false;
  const GoOn go_on = [&]() -> Status {
    left = left || (order.should_leave && order.should_leave());
    if (left) return fail(Code::kCancelled, "answers were left in the midst");
    return group_ != nullptr ? group_->health() : Status();
  };
  const Status made = draw_and_score(order, go_on, round);
  if (!made && !left) return tl::unexpected<Error>(made.error());
  return !left;
}

Result<bool> AnswerRounds::share(bool stays, AnswerRound& round) {
  if (group_ == nullptr) return stays;
  const StopWatch watch;
  const size_t each = round.rewards.size() / round.groups.size();
  std::vector<int64_t> words = {stays ? 1 : 0, std::bit_cast<int64_t>(round.draw_seconds),
                                std::bit_cast<int64_t>(round.score_seconds)};
  for (size_t i = 0; stays && i < round.groups.size(); ++i) {
    for (size_t k = 0; k < each && is_own(i); ++k) {
      add_answer(round.groups[i][k], round.rewards[i * each + k], words);
    }
  }
  JIGE_TRY(const auto all, gather_uneven(*group_, words));
  round.wait_seconds = watch.seconds();
  std::vector<AnswerReader> readers;
  for (const std::vector<int64_t>& said : all) {
    AnswerReader& reader = readers.emplace_back(said, vocab_size_);
    JIGE_TRY(const int64_t other_stays, reader.take());
    stays = stays && other_stays != 0;
    JIGE_TRY(const double draw_seconds, reader.take_number());
    JIGE_TRY(const double score_seconds, reader.take_number());
    round.draw_seconds = std::max(round.draw_seconds, draw_seconds);
    round.score_seconds = std::max(round.score_seconds, score_seconds);
  }
  for (size_t i = 0; stays && i < round.groups.size(); ++i) {
    if (is_own(i)) continue;
    round.groups[i].resize(each);
    for (size_t k = 0; k < each; ++k) {
      JIGE_DO(
          readers[i % readers.size()].take_answer(round.groups[i][k], round.rewards[i * each + k]));
    }
  }
  return stays;
}

Result<std::optional<AnswerRound>> AnswerRounds::run(const RoundOrder& order) {
  AnswerRound round;
  round.groups.resize(order.prompts.size());
  round.rewards.resize(order.prompts.size() * static_cast<size_t>(order.group));
  JIGE_TRY(const bool made, make_own(order, round));
  JIGE_TRY(const bool stays, share(made, round));
  if (!stays) return std::optional<AnswerRound>();
  return std::optional(std::move(round));
}

}  // namespace jige::train
