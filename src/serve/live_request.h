// LiveRequest: a request in the engine: its answers, its clock and its sink.
//
// Choice i is the scheduler's request id() + i. Each choice is *done* when its answer is complete
// and *over* when the scheduler has let go of it too, which under the static policy is later; the
// sink hears of it then. After fail() the sink hears nothing more.
// Threads: the engine's; draw() on others too.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/serve_scheduler.h"
#include "serve/answer.h"
#include "serve/batch_runner.h"
#include "serve/draft_finder.h"
#include "serve/engine_request.h"
#include "serve/engine_status.h"
#include "serve/given_rows.h"
#include "serve/inbox.h"

namespace jige::serve {

class LiveRequest {
 public:
  // `eos_ids` end an answer unless the request ignores them. Tokenizer and histograms must outlive
  // the request.
  LiveRequest(Submission submission, const text::Tokenizer& tokenizer,
              std::span<const int32_t> eos_ids, int64_t context_max, EngineHistograms& histograms);
  LiveRequest(const LiveRequest&) = delete;
  LiveRequest& operator=(const LiveRequest&) = delete;

  RequestId id() const { return id_; }
  int32_t choice_count() const { return request_.choice_count; }
  int64_t submit_ns() const { return submit_ns_; }
  int64_t prompt_tokens() const { return static_cast<int64_t>(request_.prompt.size()); }
  // What the scheduler is to know.
  plan::RequestSpec spec() const;
  // For the live view; without age.
  RequestRow row() const;

  // Its first batch is about to run.
  void begin(int64_t cached_tokens, int64_t now_ns);
  bool begun() const { return begin_ns_ > 0; }
  // A batch with choice `choice` has run up to `computed_tokens`.
  void computed(int32_t choice, int64_t computed_tokens);
  void preempted();
  // Which tokens of a work item, whose first is at `context_count`, have a next token in the prompt
  // that is to be scored and was not yet, or a row that a vector is made of, likewise: [begin,
  // end).
  BatchRunner::RowRange wanted_range(const plan::WorkItem& item) const;
  // Of the prompt, as of ops::SequenceSpan.
  int32_t second_begin() const {
    return request_.vector ? request_.vector->second_begin : ops::kFirstTypeAlone;
  }
  // What stands in the prompt in place of tokens.
  const std::shared_ptr<const GivenTable>& given() const { return given_; }
  // Scores the token behind `position` from the logits there; positions may do so on several
  // threads at once. REQUIRES: wanted_range() has it.
  void score(int64_t position, std::span<const float> logits);
  // Takes in what score() has found, position by position. Fails with kCorrupt where the logits
  // could not be used. REQUIRES: score(position), and all before it were taken.
  Status take_score(int64_t position);
  // Takes a row for the vector. REQUIRES: wanted_range() has it; ascending positions.
  void pool(int64_t position, std::span<const float> row);
  // Tells the vector, all rows of which were taken. Fails as RowPooler::finish does.
  Status finish_vector(int64_t now_ns);
  // A step has run `count` guesses for one of its choices; so many came true.
  void drafted(int64_t count, int64_t accepted);

  // Chooses a choice's next token; choices may do so on several threads at once. REQUIRES: the
  // choice is not done.
  void draw(int32_t choice, std::span<const float> logits);
  // draw() of a choice whose token was found on the device (Answer::row_draw).
  void take_drawn(int32_t choice, int32_t token, float logprob);
  // Takes what a choice has drawn and tells the sink. An error is the request's own: fail() is to
  // follow. REQUIRES: draw(choice), the choice is not done.
  Status take(int32_t choice, int64_t now_ns);
  const Answer& answer(int32_t choice) const;
  // With a token for each given row.
  TokenSequence tokens(int32_t choice) const;
  uint64_t cache_salt() const { return request_.cache_salt; }
  // That a choice may still get.
  int64_t tokens_left(int32_t choice) const;
  bool got_first_token() const { return first_token_ns_ > 0; }

  // Ends the choices that are not done as cancelled.
  void cancel();
  // The scheduler has let go of a choice: tells the sink. REQUIRES: the choice is done.
  void end_choice(int32_t choice);
  bool all_over() const { return over_count_ == choice_count(); }
  bool is_over(int32_t choice) const { return choices_[static_cast<size_t>(choice)].over; }
  // The last word to the sink. REQUIRES: all_over().
  void finish(int64_t now_ns);
  // The reason of the choice that ended last.
  FinishReason finish_reason() const { return finish_; }

  // Keeps the first error; the sink is told by fail().
  void set_error(Error error);
  bool has_error() const { return error_.has_value(); }
  // REQUIRES: has_error().
  void fail();

 private:
  struct Choice {
    Answer answer;
    bool over = false;
    int64_t last_token_ns = 0;
  };

  // The prompt with a token for each given row.
  std::span<const int32_t> prompt() const { return given_ ? tokens_ : request_.prompt; }
  RequestReport report(int64_t now_ns) const;
  void tell_prompt();
  void mark_first_result(int64_t now_ns);

  const RequestId id_;
  const EngineRequest request_;
  const std::shared_ptr<RequestSink> sink_;
  const int64_t submit_ns_;
  const int64_t context_max_;
  EngineHistograms& histograms_;
  const std::shared_ptr<const GivenTable> given_;  // null: the prompt is tokens alone
  const std::vector<int32_t> tokens_;              // of a prompt with rows
  std::vector<Choice> choices_;
  int32_t over_count_ = 0;
  int64_t begin_ns_ = 0;
  int64_t first_token_ns_ = 0;
  int64_t cached_tokens_ = 0;
  int64_t computed_tokens_ = 0;
  int64_t iterations_ = 0;
  int32_t preemptions_ = 0;
  int64_t drafted_tokens_ = 0;
  int64_t accepted_tokens_ = 0;
  std::vector<ops::TokenScore> prompt_scores_;  // of all tokens but the first
  int64_t scored_count_ = 0;                    // of those: taken
  std::optional<RowPooler> pooler_;             // where a vector is wanted
  int64_t pooled_end_ = 0;                      // rows in front of it were taken, or do not count
  bool is_preempted_ = false;
  FinishReason finish_ = FinishReason::kCancelled;
  std::optional<Error> error_;
};

}  // namespace jige::serve
