// The log of a training run (train/step_log.h) as a reader of the whole run wants it: curves, and
// the facts of its first and last records.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/line_chart.h"

namespace jige::cli {

// What preference tuning says of its pairs, by step.
struct PreferenceCurves {
  std::vector<ChartPoint> margin;
  std::vector<ChartPoint> accuracy;
  std::vector<ChartPoint> chosen_logprob, rejected_logprob;
};

// What answers that were drawn are worth, by step.
struct RewardCurves {
  std::vector<ChartPoint> reward, full_share, silent_share, cut_share;  // shares in %
  std::vector<ChartPoint> answer_tokens;
  std::vector<ChartPoint> length_reward;  // what lengths add to rewards, where they do
  std::vector<ChartPoint> kl, clipped_share, logprob_gap;
  std::vector<ChartPoint> draw_s, score_s, learn_s;
};

// How experts were used, by step: the busiest one's tokens over those of equal use.
struct ExpertCurves {
  std::vector<ChartPoint> busiest, busiest_mean;  // of the layer where that is most, and of all
  std::vector<ChartPoint> balance_loss;
};

// Zero or empty where the log does not say.
struct RunLog {
  std::vector<ChartPoint> training;      // loss by step; NaN where it has none
  std::vector<ChartPoint> held_out;      // loss by step
  std::vector<ChartPoint> tokens_per_s;  // by step
  PreferenceCurves preference, preference_held_out;
  RewardCurves rewards, rewards_held_out;
  ExpertCurves experts;
  // With several ranks, by step: what rank 0 and the slowest one waited for the others.
  std::vector<ChartPoint> wait_s, wait_max_s;
  double wait_total_s = 0;
  double wait_max_total_s = 0;
  double sent_bytes = 0;      // by rank 0
  int64_t ranks = 1;          // in the last step
  bool last_skipped = false;  // the last step, as its gradients were not finite
  bool last_learned = true;   // something, in the last step
  double tokens = 0;
  double seconds = 0;
  std::string version, cpu;
  int64_t threads = 0;
  int64_t parameters = 0;
  int64_t steps_planned = 0;
  int64_t memory_predicted_bytes = 0;  // of the process
  int64_t memory_limit_bytes = 0;
  int64_t memory_peak_bytes = 0;  // of the process; known when a run has ended
  int64_t arena_predicted_bytes = 0;
  int64_t arena_peak_bytes = 0;
  bool ended = false;
  int64_t model_step = 0;  // whose weights the model has; known when a run has ended
};

// A last line that is half-written is left out with a warning. Fails with kNotFound or kIo, with
// kCorrupt naming the line, and when there is no step with a loss.
Result<RunLog> read_run_log(const std::string& path);

// Means over about a fortieth of the curve, which show the trend through the noise of single steps.
std::vector<ChartPoint> smoothed(const std::vector<ChartPoint>& points);

// Loss in training and on held-out data.
LineChart loss_chart(const RunLog& log, const std::string& title);
// Of a run with pairs: their margins, the part of them that is right, and the log-probabilities of
// both answers.
std::vector<LineChart> preference_charts(const RunLog& log);
// Of a run that learns from rewards: rewards, lengths, where its time goes, and what keeps it near
// the model it began with.
std::vector<LineChart> reward_charts(const RunLog& log);
// Of a run with experts: how busy the busiest are.
LineChart expert_chart(const RunLog& log);

}  // namespace jige::cli
