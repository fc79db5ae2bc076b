// The records of `jige score` and what a model makes of them.
//
//   {"text": T}                                  log-probability of every token of T but the first
//   {"prompt": P, "completion": C}               of every token of C behind P
//   {"question": Q, "choices": [C…], "answer": A}  the likeliest choice; A is an index or a choice
//   {"question": Q, "answer": A}                 a greedy reply; right if it holds A as whole
//                                                words; with "kind": K counted by kind as well
// A choice stands behind "Q" and a space, or, with a chat template in use, where the answer begins,
// behind the white space that the template puts there.
// Log-probabilities are natural. Threads: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/loaded_model.h"
#include "serve/generator.h"
#include "serve/scorer.h"
#include "text/chat_template.h"

namespace jige::cli {

struct ScoreSummary {
  int64_t record_count = 0;
  int64_t skipped_count = 0;  // bad lines left out
  int64_t token_count = 0;    // of texts and completions
  double logprob_sum = 0;
  int64_t choice_count = 0;  // questions with choices and an answer
  int64_t right = 0;         // by the sum of log-probabilities
  int64_t right_per_token = 0;
  int64_t right_per_byte = 0;
  int64_t reply_count = 0;  // questions answered freely
  int64_t replies_right = 0;
  struct Kind {
    int64_t count = 0;
    int64_t right = 0;
  };
  std::map<std::string, Kind> kinds;  // the same replies by the record's "kind", where it has one

  Json to_json() const;
  std::string to_text() const;
};

struct ScoreOptions {
  bool chat = false;        // ask questions through the chat template
  int64_t tokens_max = 64;  // of a reply
  bool skip_bad = false;    // leave out and count lines that cannot be scored, instead of failing
};

class RecordScorer {
 public:
  // Fails with kUnsupported when a chat template is wanted and there is none. `loaded` must have
  // been loaded with scores and outlive the scorer.
  static Result<RecordScorer> create(LoadedModel& loaded, const ScoreOptions& options);

  // Scores one record, adds it to the summary and gives its result. `where` names it in errors.
  // Fails with kInvalidArgument on missing fields or types.
  Result<Json> score(const Json& record, const std::string& where);
  // The same of a line, which fails with kCorrupt where it is no JSON. With skip_bad a line that
  // itself is at fault is counted, and gives nothing.
  Result<std::optional<Json>> score_line(std::string_view line, const std::string& where);
  const ScoreSummary& summary() const { return summary_; }

 private:
  RecordScorer(LoadedModel& loaded, const ScoreOptions& options);
  Result<Json> score_text(const std::string& text);
  Result<Json> score_completion(const std::string& prompt, const std::string& completion);
  Result<Json> score_choices(const Json& record, const std::string& where);
  Result<Json> score_reply(const Json& record, const std::string& where);
  Result<std::vector<int32_t>> question_ids(const std::string& question) const;
  Result<serve::ChoiceResult> chat_choices(const std::string& question,
                                           const std::vector<std::string>& choices);

  LoadedModel* loaded_;
  ScoreOptions options_;
  serve::Scorer scorer_;
  serve::Generator generator_;
  std::optional<text::ChatTemplate> chat_;
  ScoreSummary summary_;
};

}  // namespace jige::cli
