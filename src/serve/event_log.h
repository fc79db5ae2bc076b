// EventLog: every event and decision of a scheduler as a line of JSON, so that a run can be
// replayed exactly (event_replay.h).
//
//   {"event":"start", …the scheduler's options…}
//   {"event":"arrive","id":1,"prompt":[5,6],"new_tokens":9,"forks":0,"priority":0,"tenant":0,
//    "salt":0,"cached_max":2147483647,"adapter":-1}
//   {"event":"draft","id":1,"tokens":[8,9]}
//   {"event":"batch","id":1,"items":[[1,0,2]],"copies":0,"preempted":[],"digest":"…"}
//   {"event":"complete","batch":1,"sampled":[[1,7,false,[],0]],"over":[]}
//   {"event":"lose","batch":2}
//   {"event":"lose_caches"}
//   {"event":"cancel","id":1,"over":[]}
//   {"event":"discard","id":1}
//   {"event":"change","settings":{"policy":"orca","max_batch":8}}
//
// A draft whose first tokens are certain to come has "certain", as many.
// The adapter is that of plan::RequestSpec; logs from before there were adapters have none.
// A prompt of which tokens see one another has "whole_runs", [first, end) of each run.
// With states the start has a "state_count", and a batch that copies some "state_copies", as many;
// where some are kept the start has a "kept_state_count" and a "kept_margin" too.
// Where prompts run whole under the chunked policy the start has "whole_prompt_tokens".
// With the policy "rounds" the start has "round_prompts" and "round_steps".
// An item is request, first position, token count; what was sampled is request, token, whether it
// is finished, forks, drafted tokens that came true. The digest covers all of the batch: tokens,
// blocks, states and copies as well. A "batch" without "id" means that none could start.
// The log holds the tokens of prompts and answers: it is written for its owner's eyes only. After a
// failed write it says so once and records no more; serving goes on.
// Threads: one at a time.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "plan/serve_scheduler.h"
#include "plan/serve_settings.h"

namespace jige::serve {

class EventLog {
 public:
  // Replaces the file. Fails with kIo where it cannot be opened.
  static Result<std::unique_ptr<EventLog>> create(const std::string& path);

  void start(const plan::ServeSchedulerOptions& options);
  void arrive(const plan::RequestSpec& spec);
  void draft(plan::RequestId request, std::span<const int32_t> tokens, int32_t certain_count);
  void batch(const std::optional<plan::Batch>& batch);
  void complete(plan::BatchId batch, std::span<const plan::SampledNext> sampled,
                std::span<const plan::RequestId> over);
  void lose(plan::BatchId batch);
  void lose_caches();
  void cancel(plan::RequestId request, std::span<const plan::RequestId> over);
  void discard(plan::RequestId request);
  void change(const plan::ServeSettings& settings);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  EventLog(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  void write(const Json& line);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

// A batch as the log shows it.
Json batch_line(const std::optional<plan::Batch>& batch);

}  // namespace jige::serve
