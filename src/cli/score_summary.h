// What `jige score` says of all records together.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/json.h"

namespace jige::cli {

struct ScoreSummary {
  int64_t record_count = 0;
  int64_t skipped_count = 0;  // bad lines left out
  int64_t token_count = 0;    // of texts and completions
  double logprob_sum = 0;
  // Of texts, completions and choices: what the model would read if each were run by itself, and
  // what it has read.
  int64_t text_tokens = 0;
  int64_t computed_tokens = 0;
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

}  // namespace jige::cli
