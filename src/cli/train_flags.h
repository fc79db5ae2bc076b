// The flags of `jige train` and what they ask for.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/model_sizes.h"
#include "cli/train_pipeline_flags.h"
#include "cli/train_reward_flags.h"
#include "train/options.h"

namespace jige::cli {

class Flags;

inline constexpr int64_t kLoraRankDefault = 8;

// Learning rates of preference tuning where none is given: of all weights, and of an adapter.
inline constexpr double kDpoRateDefault = 1e-6;
inline constexpr double kDpoLoraRateDefault = 1e-5;

struct TrainFlags {
  ModelShape shape;
  std::string config_file;
  std::string from_folder;
  std::string tokenizer_folder;
  int64_t vocab_size = 0;  // of a tokenizer trained here; 0: the size's own
  bool lora = false;
  std::string quantize = "none";
  formats::LoraConfig lora_options = {.rank = kLoraRankDefault, .alpha = 16};
  std::string schedule = "cosine", packing = "documents", split = "file";
  std::string token_layout = "header";
  std::string dtype = "auto", export_dtype = "f32", moments = "f32";
  int64_t seed = 1;
  double expert_balance = 0;
  double skip_converged = 0;
  std::string skip_mode = "freeze";
  train::RowGateOptions row_gate;  // with it
  double save_minutes = 5;
  bool no_eos = false, must_resume = false, fresh = false, no_merge = false;
  bool dpo = false;
  train::DpoOptions dpo_options;
  TrainRewardFlags rewards;
  TrainPipelineFlags pipeline;
  train::TrainOptions options;  // targets of the remaining flags

  void declare(Flags& flags);

  // Everything but the model's configuration and its tokenizer, which may have to be made first.
  // Fails with kInvalidArgument naming the flags that contradict each other, would do nothing, or
  // are missing, and as reading a plan does. `flags` are those it was declared on; `gpus` compute,
  // or none: the processor.
  Result<train::TrainOptions> to_options(const Flags& flags,
                                         const std::vector<int>& gpus = {}) const;

  // Whether the user says which model to train, new or not.
  bool names_model(const Flags& flags) const;

 private:
  Status check_flags(const Flags& flags) const;
  Status check_preference(const Flags& flags) const;
  Status check_sources(const Flags& flags) const;
  Status check_learning(const Flags& flags) const;
  Status check_skipping(const Flags& flags) const;
};

}  // namespace jige::cli
