// The records of `jige score` (score_record.h) by the line, many at once.
//
// What lines ask about is gathered and scored together (serve/scorer.h), in windows that bound the
// memory of any file; beginnings that the texts of a window share are run once. Results are given
// in the order of the lines, each as soon as it and those before it are there. Replies are made
// many at once behind them (serve/reply_batch.h). Which lines make a window changes no result.
// Threads: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/loaded_model.h"
#include "cli/score_record.h"
#include "cli/score_summary.h"
#include "serve/scorer.h"

namespace jige::cli {

struct ScoreOptions {
  bool chat = false;        // ask questions through the chat template
  int64_t tokens_max = 64;  // of a reply
  bool skip_bad = false;    // leave out and count lines that cannot be scored, instead of failing
  int64_t window_tokens = int64_t{1} << 17;           // that are scored together, or a text more
  std::string data_folder = {};                       // in which paths of images begin
  ImageSource images = {};                            // what reads them; empty: nothing does
  int64_t image_rows_bytes_max = int64_t{128} << 20;  // of images that wait to be scored
};

class RecordScorer {
 public:
  // Takes the result of a line.
  using ResultTaker = std::function<Status(int64_t line, const Json& result)>;

  // Fails as RecordReader::create() does. `loaded` must have been loaded with scores and outlive
  // the scorer.
  static Result<RecordScorer> create(LoadedModel& loaded, const ScoreOptions& options,
                                     ResultTaker take);

  // Takes a line, whose number and name in errors are given. It may be scored later; a line that is
  // at fault fails, behind those before it, or with skip_bad is counted. Fails with kCorrupt on
  // what is no JSON, and as RecordReader, Scorer, reply_to_all() and the taker of results do.
  Status add(std::string_view line, int64_t number, const std::string& where);
  // Scores all that has been taken, and gives its results. Fails as add() does.
  Status flush();

  const ScoreSummary& summary() const { return summary_; }

 private:
  // A line whose result has not been given.
  struct Pending {
    int64_t line = 0;
    std::string where;
    ScoreRecord record;
    size_t texts_taken = 0;
    size_t texts_scored = 0;
    bool read = false;           // to its end
    bool replied = false;        // of one that asks for a reply
    std::optional<Error> error;  // in place of a result
    bool skipped = false;        // where there is one: the line is at fault and left out
    bool asks() const { return record.kind == ScoreRecord::Kind::kReply; }
    bool complete() const;
  };
  // Whose text it is: the line's number among all that were taken, and the text's in the line.
  struct Owner {
    int64_t pending = 0;
    size_t text = 0;
  };

  RecordScorer(LoadedModel& loaded, const ScoreOptions& options, RecordReader reader,
               ResultTaker take);
  Status take_text(Pending& pending, serve::ScoredText text);
  void set_error(Pending& pending, Error error, bool is_json);
  Status score_texts();
  Status give_results();
  Status make_replies();
  // Names the first line whose result was not given, where work was cancelled.
  Status where_cancelled(Status status) const;

  LoadedModel* loaded_;
  ScoreOptions options_;
  RecordReader reader_;
  ResultTaker take_;
  serve::Scorer scorer_;
  std::deque<Pending> pending_;
  int64_t first_pending_ = 0;  // number of pending_[0] among all
  std::vector<serve::ScoredText> texts_;
  std::vector<Owner> owners_;    // of texts_
  int64_t tokens_ = 0;           // of texts_
  int64_t rows_bytes_ = 0;       // of their images, those of neighbours once
  int64_t questions_ = 0;        // that wait for replies
  std::optional<Error> failed_;  // running failed, which is no line's fault
  ScoreSummary summary_;
};

}  // namespace jige::cli
