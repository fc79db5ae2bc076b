// What a training run is asked to do, and the part of it that decides the results.
//
// Two runs whose identities agree (identity_json) give the same bits on the same machine, step for
// step; a run may only be continued under its own identity. Everything else may change between
// parts of a run: threads, memory limit, when to evaluate, save and log. The micro-batch size is
// among the free ones: with f32 compute it changes no bit, with bf16 it may change the last ones.
// So are the ranks: with GradientSum::kRelay they change no bit, with kRings the last ones.
// Threads: values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "formats/lora_config.h"
#include "formats/model_config.h"
#include "formats/token_bin.h"
#include "ops/linear.h"
#include "ops/moments.h"
#include "tensor/dtype.h"
#include "train/grpo_options.h"
#include "train/image_training.h"
#include "train/lr_schedule.h"
#include "train/pipeline_plan.h"
#include "train/preference.h"
#include "train/rank_options.h"
#include "train/record_reader.h"
#include "train/row_gate_options.h"
#include "train/run_lock.h"

namespace jige::train {

// How documents become sequences.
enum class Packing {
  kDocuments,  // every document on its own, cut where it is longer than the context
  kStream,     // documents one behind the other as one text, cut into pieces of the context
};

struct DataOptions {
  std::vector<std::string> files;       // text, JSONL or token files, see record_reader.h
  std::vector<std::string> eval_files;  // empty: a part of `files` is held out
  double eval_fraction = 0.01;          // of the documents; 0: nothing is held out
  TextSplit split = TextSplit::kFile;
  std::string separator;            // for TextSplit::kSeparator
  std::string text_field = "text";  // of JSONL
  bool append_eos = true;
  bool skip_bad = false;  // leave out bad lines and count them instead of failing
  Packing packing = Packing::kDocuments;
  formats::TokenLayout token_layout = formats::TokenLayout::kHeader;  // of .bin files
  std::string cache_folder;  // of tokenised files; empty: OUT/cache
};

struct OptimizerOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;  // global gradient norm; 0: off
  double lora_b_rate = 1;  // times the learning rate: that of B of adapters (LoRA+)
  ops::MomentFormat moments = ops::MomentFormat::kF32;
  int64_t bad_steps_in_row_max = 8;  // steps with gradients that are not finite, then the run ends
};

enum class ResumeMode {
  kAuto,      // continue where OUT has a checkpoint, else start
  kRequired,  // fail where there is none
  kNever,     // fail where there is one
};

struct TrainOptions {
  // The model: a folder to fine-tune, or a configuration and a folder with its tokenizer.
  std::string init_folder;
  std::optional<formats::ModelConfig> config;
  std::string tokenizer_folder;             // empty: init_folder
  std::optional<formats::LoraConfig> lora;  // trains adapters only; needs init_folder
  // Of the base's matrices under adapters: whole, or quantised.
  ops::WeightFormat base_format = ops::WeightFormat::kCompute;
  // Preference tuning: data holds pairs of answers; needs init_folder, whose model is the
  // reference.
  std::optional<DpoOptions> dpo;
  // Learning from rewards: data holds prompts (prompts.h), whose answers are drawn and scored;
  // needs init_folder.
  std::optional<GrpoOptions> grpo;
  std::string out_folder;

  DataOptions data;
  OptimizerOptions optimizer;
  LrSchedule schedule;  // steps_total is filled from steps or epochs
  DType compute = DType::kF32;
  // Tokens of a sequence at most; 0: the model's context, or what a micro-batch holds if that is
  // less.
  int64_t context = 0;
  int64_t image_pixels_max = 0;  // of an image, for the model; 0: as many as its folder says
  int64_t micro_batch_tokens = 2048;
  int64_t step_tokens = 8192;
  int64_t steps = 0;   // 0: as many as `epochs` take
  double epochs = 0;   // 0: `steps` counts; exactly one of the two is given
  double dropout = 0;  // probability, on the embedding and both outputs of every layer; 0: off
  // Of the hidden blocks of feed-forward layers, which are left out together; 0: off. Columns of
  // one.
  double ffn_dropout = 0;
  int64_t ffn_dropout_block = 64;
  // Subnetworks that the masks of both are of (run_dropout.h), 0: new ones in each step; and how
  // many of them a step has, where it has any.
  int64_t dropout_pool = 0;
  int64_t dropout_at_once = 8;
  std::optional<RowGateOptions> row_gate;  // none: each step computes all weight gradients
  // Weight of the loss for unequal use of experts (ops/expert_balance.h) of each layer; 0: none,
  // also where the model's configuration asks for one. Not given: none, and such a model is
  // refused.
  std::optional<double> expert_balance;
  // By how much a step moves each expert's bias for the choice (expert_bias.h); 0: it stays.
  double expert_bias_rate = 0;
  uint64_t seed = 1;

  int64_t eval_every_steps = 100;  // 0: only at the end
  int64_t eval_tokens_max = 65536;
  int64_t checkpoint_every_steps = 0;     // 0: by time only
  double checkpoint_every_seconds = 300;  // 0: by steps only
  int64_t checkpoints_kept = 2;
  // The result is the weights of the best measurement of held-out data, not the last ones; their
  // checkpoint is kept besides.
  bool keep_best = false;
  int64_t patience = 0;  // ends behind so many measurements that were no better; 0: never
  std::vector<int64_t> checkpoint_steps;  // there is one behind each of these, too
  ResumeMode resume = ResumeMode::kAuto;
  DType export_dtype = DType::kF32;  // of the model written at the end
  bool merge_lora = true;            // also write base and adapter as one model

  // What reads the images of the data; prepare_run() fills it in where there are any.
  std::optional<ImageTraining> images;

  std::optional<PipelineOptions> pipeline;  // none: one device that holds everything
  std::optional<RankOptions> ranks;         // none: this process alone

  // The GPU that trains and holds everything; or those of which a pipeline's devices are parts in
  // turns: device d of the dth, modulo their number. None: the CPU.
  std::vector<int> gpus;
  int thread_count = 0;            // 0: as many as the process may use; of each pipeline device
  int64_t memory_limit_bytes = 0;  // 0: what the machine has, or the GPU
  std::string log_path;            // empty: OUT/log.jsonl
  double gemm_flops_per_s = 0;     // measured rate of matrix products; 0: no share is reported
  std::string program_version;     // for the log
  std::shared_ptr<RunLock> lock;  // on out_folder, where the caller took it; none: the trainer does

  bool on_gpu() const { return !gpus.empty(); }
  bool keeps_best() const { return keep_best || patience > 0; }
};

// Checks ranges and contradictions. Fails with kInvalidArgument naming the option, its value and
// what is allowed.
Status validate(const TrainOptions& options);
// The parts of it that are about ranks, preference tuning, rewards, dropout and skipped rows.
Status validate_ranks(const TrainOptions& options);
Status validate_preference(const TrainOptions& options);
Status validate_grpo(const TrainOptions& options);
Status validate_dropout(const TrainOptions& options);
Status validate_row_gate(const TrainOptions& options);

// What each rank draws at once. REQUIRES: grpo, and the context.
DrawSizes draw_sizes(const TrainOptions& options);

// Every option, for the log.
Json options_json(const TrainOptions& options);

// The options that decide results; data enters by the hashes of its files, added by the trainer.
Json identity_json(const TrainOptions& options);

// Fails with kInvalidArgument naming the first option in which two identities differ, both values,
// and what to do. `where` is the checkpoint's folder.
Status check_same_identity(const Json& saved, const Json& wanted, const std::string& where);

// Threads that update the parameters of each device of a pipeline. Where devices are the CPU's, one
// beside those that compute; a GPU leaves all to them. REQUIRES: a pipeline.
int optimizer_threads(const TrainOptions& options);
// What that is on this machine where no number is given, for so many parts of a GPU.
int optimizer_threads_beside_gpu(int devices);

// Into as many equal parts a step is cut, one or more for each rank, where that changes no bit; 1:
// it is cut as it comes.
int64_t even_parts(const TrainOptions& options);

std::string_view packing_name(Packing packing);
std::string_view split_name(TextSplit split);

}  // namespace jige::train
