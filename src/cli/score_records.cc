#include "cli/score_records.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "cli/interrupt.h"
#include "serve/reply_batch.h"

namespace jige::cli {
namespace {

// Lines whose results are not there, at most: of those without texts, too.
constexpr size_t kPendingMax = size_t{1} << 16;
// Of those, questions: so many that few steps run with less than all rows.
constexpr int64_t kQuestionsMax = 512;

}  // namespace

bool RecordScorer::Pending::complete() const {
  return error || (read && texts_scored == texts_taken && (replied || !asks()));
}

RecordScorer::RecordScorer(LoadedModel& loaded, const ScoreOptions& options, RecordReader reader,
                           ResultTaker take)
    : loaded_(&loaded),
      options_(options),
      reader_(std::move(reader)),
      take_(std::move(take)),
      scorer_(*loaded.model, loaded.adapter) {}

Result<RecordScorer> RecordScorer::create(LoadedModel& loaded, const ScoreOptions& options,
                                          ResultTaker take) {
  JIGE_TRY(RecordReader reader, RecordReader::create(loaded.tokenizer, loaded.folder, options.chat,
                                                     options.images, options.data_folder));
  return RecordScorer(loaded, options, std::move(reader), std::move(take));
}

Status RecordScorer::add(std::string_view line, int64_t number, const std::string& where) {
  pending_.push_back({.line = number, .where = where});
  Pending& pending = pending_.back();
  const Result<Json> json = parse_json(line, where);
  const Status read = json ? reader_.read(*json, where, pending.record,
                                          [&](serve::ScoredText text) {
                                            return take_text(pending, std::move(text));
                                          })
                           : Status(tl::unexpected<Error>(json.error()));
  if (failed_) return tl::unexpected<Error>(*failed_);
  pending.read = true;
  if (!read) set_error(pending, read.error(), json.has_value());
  if (!pending.error && pending.asks()) ++questions_;
  const bool full = tokens_ >= options_.window_tokens ||
                    rows_bytes_ >= options_.image_rows_bytes_max || questions_ >= kQuestionsMax ||
                    pending_.size() >= kPendingMax;
  const bool fails = pending.error && !pending.skipped;
  return full || fails ? flush() : Status();
}

// Runs what was gathered before, so that texts of one line may be more than a window.
Status RecordScorer::take_text(Pending& pending, serve::ScoredText text) {
  JIGE_DO(scorer_.check(text));
  if (tokens_ >= options_.window_tokens) {
    const Status scored = score_texts();
    if (!scored) {
      failed_ = scored.error();
      return scored;
    }
  }
  tokens_ += std::ssize(text.tokens);
  for (const serve::GivenRowsRef& rows : text.given) {
    if (texts_.empty() || std::ranges::find(texts_.back().given, rows) == texts_.back().given.end())
      rows_bytes_ += std::ssize(rows->values) * static_cast<int64_t>(sizeof(float));
  }
  texts_.push_back(std::move(text));
  const int64_t last = first_pending_ + std::ssize(pending_) - 1;
  owners_.push_back({.pending = last, .text = pending.texts_taken++});
  return {};
}

void RecordScorer::set_error(Pending& pending, Error error, bool is_json) {
  const Code code = error.code;
  Result<Json> told = tl::unexpected(std::move(error));
  if (is_json) told = loaded_->named(std::move(told));
  if (!told.error().message.starts_with(pending.where)) {
    told = with_context(std::move(told.error()), "{}", pending.where);
  }
  pending.error = std::move(told.error());
  const bool at_fault = !is_json || code == Code::kInvalidArgument || code == Code::kNotFound ||
                        code == Code::kUnsupported;
  pending.skipped = at_fault && options_.skip_bad;
}

Status RecordScorer::score_texts() {
  const auto keep = [&](size_t index, Result<std::vector<float>> logprobs) -> Status {
    const Owner& owner = owners_[index];
    if (owner.pending < first_pending_) return {};  // its line has failed and is gone
    Pending& pending = pending_[static_cast<size_t>(owner.pending - first_pending_)];
    ++pending.texts_scored;
    if (pending.error) return {};
    if (!logprobs) {
      set_error(pending, std::move(logprobs.error()), true);
    } else {
      keep_scores(pending.record, owner.text, texts_[index], std::move(*logprobs));
    }
    return give_results();
  };
  Status scored = scorer_.score_all(texts_, keep, &interrupt_flag());
  JIGE_DO(where_cancelled(std::move(scored)));
  texts_.clear();
  owners_.clear();
  tokens_ = 0;
  rows_bytes_ = 0;
  return {};
}

Status RecordScorer::flush() {
  JIGE_DO(score_texts());
  JIGE_DO(give_results());
  return questions_ > 0 ? make_replies() : Status();
}

Status RecordScorer::give_results() {
  summary_.text_tokens = scorer_.counts().text_tokens;
  summary_.computed_tokens = scorer_.counts().computed_tokens;
  for (; !pending_.empty() && pending_.front().complete(); pending_.pop_front(), ++first_pending_) {
    Pending& pending = pending_.front();
    Result<Json> result = Json();
    if (!pending.error) {
      result = record_result(pending.record, pending.where, summary_);
      if (!result) set_error(pending, std::move(result.error()), true);
    }
    if (!pending.error) {
      ++summary_.record_count;
      JIGE_DO(take_(pending.line, *result));
    } else if (pending.skipped) {
      log_debug("left out: {}", pending.error->message);
      ++summary_.skipped_count;
    } else {
      return tl::unexpected<Error>(*pending.error);
    }
  }
  return {};
}

// Answers the questions of all lines, whose other texts have been scored.
Status RecordScorer::make_replies() {
  std::vector<int64_t> askers;  // as Owner::pending
  std::vector<std::vector<int32_t>> prompts;
  for (size_t i = 0; i < pending_.size(); ++i) {
    if (pending_[i].error || !pending_[i].asks()) continue;
    askers.push_back(first_pending_ + static_cast<int64_t>(i));
    prompts.push_back(std::move(pending_[i].record.prompt));
  }
  const auto take = [&](size_t prompt, Result<std::string> text) -> Status {
    Pending& pending = pending_[static_cast<size_t>(askers[prompt] - first_pending_)];
    if (text) {
      pending.record.reply = std::move(*text);
      pending.replied = true;
    } else {
      set_error(pending, std::move(text.error()), true);
    }
    return give_results();
  };
  questions_ = 0;
  Status made = serve::reply_to_all(*loaded_->model, loaded_->tokenizer, prompts,
                                    {.tokens_max = options_.tokens_max,
                                     .adapter = loaded_->adapter,
                                     .team = &loaded_->devices.team(),
                                     .cancelled = &interrupt_flag()},
                                    take);
  return where_cancelled(std::move(made));
}

Status RecordScorer::where_cancelled(Status status) const {
  // What runs may belong to lines that have failed and are gone.
  if (status || status.error().code != Code::kCancelled || pending_.empty()) return status;
  return fail(Code::kCancelled, "{}, at {}", status.error().message, pending_.front().where);
}

}  // namespace jige::cli
