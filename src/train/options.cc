#include "train/options.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/cpu.h"
#include "train/option_flags.h"
#include "train/run_dropout.h"
#include "train/run_gpus.h"

namespace jige::train {
namespace {

template <typename T>
Status require(bool holds, std::string_view option, const T& value, std::string_view range) {
  if (holds) return {};
  return fail(Code::kInvalidArgument, "{} is {}, but must be {}", flag_of(option), value, range);
}

Status validate_data(const DataOptions& data) {
  if (data.files.empty()) {
    return fail(Code::kInvalidArgument, "no training data: name at least one file");
  }
  JIGE_DO(require(data.eval_fraction >= 0 && data.eval_fraction <= 0.5, "data.eval_fraction",
                  data.eval_fraction, "between 0 and 0.5"));
  if (data.split == TextSplit::kSeparator && data.separator.empty()) {
    return fail(Code::kInvalidArgument,
                "documents are to be split at a separator line, but the separator is empty");
  }
  return {};
}

Status validate_optimizer(const OptimizerOptions& optimizer) {
  const auto share = [](double value) { return value >= 0 && value < 1; };
  constexpr const char* kShares = "at least 0 and below 1";
  JIGE_DO(require(share(optimizer.beta1), "optimizer.beta1", optimizer.beta1, kShares));
  JIGE_DO(require(share(optimizer.beta2), "optimizer.beta2", optimizer.beta2, kShares));
  JIGE_DO(require(optimizer.epsilon > 0 && std::isfinite(optimizer.epsilon), "epsilon",
                  optimizer.epsilon, "above 0"));
  JIGE_DO(require(optimizer.weight_decay >= 0 && std::isfinite(optimizer.weight_decay),
                  "optimizer.weight_decay", optimizer.weight_decay, "0 or more"));
  JIGE_DO(require(optimizer.clip_norm >= 0 && std::isfinite(optimizer.clip_norm),
                  "optimizer.clip_norm", optimizer.clip_norm, "0 (off) or more"));
  return require(optimizer.bad_steps_in_row_max >= 1, "bad_steps_in_row_max",
                 optimizer.bad_steps_in_row_max, "at least 1");
}

Status validate_base_format(const TrainOptions& options) {
  if (options.base_format == ops::WeightFormat::kCompute) return {};
  const std::string_view name = ops::weight_format_name(options.base_format);
  if (!options.lora) {
    return fail(Code::kInvalidArgument,
                "{} {} keeps weights in few bits, which cannot be trained; add {} to train an "
                "adapter on them, or leave it out to train all weights",
                flag_of("quantize"), name, flag_of("lora"));
  }
  if (!options.pipeline) return {};
  return fail(Code::kUnsupported,
              "{} {} with a pipeline of devices is not supported yet: give one of them",
              flag_of("quantize"), name);
}

Status validate_moments(const TrainOptions& options) {
  if (options.optimizer.moments == ops::MomentFormat::kF32 || !options.pipeline) return {};
  const std::string_view flag = flag_of("optimizer.moments");
  return fail(Code::kUnsupported,
              "{} {} with a pipeline of devices (--devices, --plan) is not supported yet: give one "
              "of them, or {} {}",
              flag, ops::moment_format_name(options.optimizer.moments), flag,
              ops::moment_format_name(ops::MomentFormat::kF32));
}

Status validate_dora(const TrainOptions& options) {
  if (!options.lora->use_dora) return {};
  const std::string_view other = options.base_format != ops::WeightFormat::kCompute
                                     ? flag_of("quantize")
                                 : options.lora->dropout > 0 ? flag_of("lora.dropout")
                                 : options.pipeline          ? "--devices"
                                 : options.on_gpu()          ? "--device cuda"
                                 : options.grpo              ? flag_of("grpo")
                                                             : "";
  if (other.empty()) return {};
  return fail(Code::kUnsupported, "{} with {} is not supported yet: give one of them",
              flag_of("lora.dora"), other);
}

Status validate_model(const TrainOptions& options) {
  if (options.init_folder.empty() == !options.config.has_value()) {
    return fail(Code::kInvalidArgument,
                "give either a model folder to start from or the configuration of a new model");
  }
  if (options.config && options.tokenizer_folder.empty()) {
    return fail(Code::kInvalidArgument, "a new model needs the folder of its tokenizer");
  }
  if (options.out_folder.empty()) return fail(Code::kInvalidArgument, "no output folder is given");
  JIGE_DO(validate_base_format(options));
  if (!options.lora) return {};
  if (options.init_folder.empty()) {
    return fail(Code::kInvalidArgument, "LoRA adapts a trained model: give its folder");
  }
  JIGE_DO(require(options.lora->rank >= 1 && options.lora->rank <= formats::kLoraRankMax,
                  "lora.rank", options.lora->rank, "between 1 and 65536"));
  JIGE_DO(require(options.lora->alpha > 0 && std::isfinite(options.lora->alpha), "lora.alpha",
                  options.lora->alpha, "above 0"));
  JIGE_DO(require(options.lora->dropout >= 0 && options.lora->dropout < 1, "lora.dropout",
                  options.lora->dropout, "at least 0 (off) and below 1"));
  JIGE_DO(validate_dora(options));
  const double rate = options.optimizer.lora_b_rate;
  return require(rate > 0 && std::isfinite(rate), "lora.b_rate", rate, "above 0");
}

Status validate_sizes(const TrainOptions& options) {
  JIGE_DO(require(options.compute == DType::kF32 || options.compute == DType::kBF16, "compute",
                  dtype_info(options.compute).name, "f32 or bf16"));
  JIGE_DO(require(options.export_dtype == DType::kF32 || options.export_dtype == DType::kBF16 ||
                      options.export_dtype == DType::kF16,
                  "export_dtype", dtype_info(options.export_dtype).name, "f32, bf16 or f16"));
  JIGE_DO(require(options.context >= 0, "context", options.context, "0 (the model's) or more"));
  JIGE_DO(require(options.image_pixels_max >= 0, "image_pixels", options.image_pixels_max,
                  "0 (as many as the model's folder says) or more"));
  JIGE_DO(require(options.micro_batch_tokens >= 1 && options.micro_batch_tokens <= (1 << 24),
                  "micro_batch_tokens", options.micro_batch_tokens, "between 1 and 16777216"));
  JIGE_DO(require(options.step_tokens >= 1 && options.step_tokens <= (int64_t{1} << 36),
                  "step_tokens", options.step_tokens, "between 1 and 68719476736"));
  if ((options.steps > 0) == (options.epochs > 0)) {
    return fail(Code::kInvalidArgument, "give either {} or {} (got {} and {})", flag_of("steps"),
                flag_of("epochs"), options.steps, options.epochs);
  }
  JIGE_DO(require(options.steps >= 0, "steps", options.steps, "0 or more"));
  return require(options.epochs >= 0 && options.epochs <= 1e6, "epochs", options.epochs,
                 "between 0 and 1000000");
}

bool balances(const TrainOptions& options) { return options.expert_balance.value_or(0) > 0; }

Status validate_experts(const TrainOptions& options) {
  const auto check = [](const char* option, double value) {
    return require(value >= 0 && std::isfinite(value), option, value, "0 (off) or more");
  };
  JIGE_DO(check("expert_balance", options.expert_balance.value_or(0)));
  JIGE_DO(check("expert_bias_rate", options.expert_bias_rate));
  if (!balances(options) && options.expert_bias_rate == 0) return {};
  const std::string_view flag = flag_of(balances(options) ? "expert_balance" : "expert_bias_rate");
  if (options.lora) {
    return fail(
        Code::kInvalidArgument,
        "{} trains routers, which stay as they are under an adapter: leave it out, or train "
        "all weights without {}",
        flag, flag_of("lora"));
  }
  if (!options.dpo && !options.grpo) return {};
  return fail(Code::kUnsupported, "{} with {} is not supported: give one of them", flag,
              flag_of(options.dpo ? "dpo" : "grpo"));
}

Status validate_habits(const TrainOptions& options) {
  JIGE_DO(require(options.eval_every_steps >= 0, "eval_every_steps", options.eval_every_steps,
                  "0 or more"));
  JIGE_DO(require(options.eval_tokens_max >= 1, "eval_tokens_max", options.eval_tokens_max,
                  "at least 1"));
  JIGE_DO(require(options.checkpoint_every_steps >= 0, "checkpoint_every_steps",
                  options.checkpoint_every_steps, "0 or more"));
  JIGE_DO(require(options.checkpoint_every_seconds >= 0, "checkpoint_every_seconds",
                  options.checkpoint_every_seconds, "0 or more"));
  JIGE_DO(require(options.checkpoints_kept >= 1, "checkpoints_kept", options.checkpoints_kept,
                  "at least 1"));
  JIGE_DO(require(options.patience >= 0, "patience", options.patience, "0 or more"));
  if (options.keeps_best() && options.eval_every_steps == 0) {
    return fail(Code::kInvalidArgument,
                "{} chooses among measurements of held-out data: let {} be more than 0, or leave "
                "it out",
                flag_of(options.patience > 0 ? "patience" : "keep_best"),
                flag_of("eval_every_steps"));
  }
  JIGE_DO(require(options.thread_count >= 0 && options.thread_count <= 4096, "threads",
                  options.thread_count, "between 0 and 4096"));
  return require(options.memory_limit_bytes >= 0, "memory_limit_bytes", options.memory_limit_bytes,
                 "0 (no limit) or more");
}

// Files to evaluate on count as far as no part of the training data is held out then.
Json data_identity(const DataOptions& data) {
  const bool all_is_trained_on = !data.eval_files.empty() && data.eval_fraction > 0;
  return {{"eval_fraction", data.eval_fraction}, {"eval_files", all_is_trained_on},
          {"split", split_name(data.split)},     {"separator", data.separator},
          {"text_field", data.text_field},       {"append_eos", data.append_eos},
          {"skip_bad", data.skip_bad},           {"packing", packing_name(data.packing)}};
}

Json optimizer_identity(const OptimizerOptions& optimizer) {
  Json json = {{"beta1", optimizer.beta1},
               {"beta2", optimizer.beta2},
               {"epsilon", optimizer.epsilon},
               {"weight_decay", optimizer.weight_decay},
               {"clip_norm", optimizer.clip_norm}};
  // None: f32, as in checkpoints that were made before there was another.
  if (optimizer.moments != ops::MomentFormat::kF32) {
    json["moments"] = ops::moment_format_name(optimizer.moments);
  }
  return json;
}

// The error where moments are kept otherwise than in the checkpoint; an identity without the field
// has f32.
Status refuse_moments(const Json& saved, const Json& wanted, const std::string& where) {
  const auto name_of = [](const Json& identity) {
    const Json& optimizer = identity.at("optimizer");
    const auto found = optimizer.find("moments");
    return found == optimizer.end() ? std::string(ops::moment_format_name(ops::MomentFormat::kF32))
                                    : found->get<std::string>();
  };
  const std::string_view flag = flag_of("optimizer.moments");
  return fail(Code::kInvalidArgument,
              "{}: was made with {} {}, this run has {} {}; continue with {} {}, or start anew in "
              "another folder, from the weights of this one by {}",
              where, flag, name_of(saved), flag, name_of(wanted), flag, name_of(saved),
              flag_of("init_folder"));
}

Json schedule_identity(const LrSchedule& schedule) {
  return {{"kind", schedule_name(schedule.kind)},
          {"learning_rate", schedule.peak},
          {"min_lr_ratio", schedule.min_ratio},
          {"decay_share", schedule.decay_share},
          {"warmup_steps", schedule.warmup_steps}};
}

// The first place where two values differ, depth first; empty when they are equal. A value that is
// not there is empty.
struct Difference {
  std::string path;
  std::string saved;
  std::string wanted;
};

Difference first_difference(const Json& saved, const Json& wanted, const std::string& path) {
  if (saved == wanted) return {};
  if (!saved.is_object() || !wanted.is_object()) {
    return {path, dump_json(saved), dump_json(wanted)};
  }
  const auto child = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  for (const auto& [key, value] : wanted.items()) {
    const auto it = saved.find(key);
    if (it == saved.end()) return {child(key), "", dump_json(value)};
    Difference difference = first_difference(*it, value, child(key));
    if (!difference.path.empty()) return difference;
  }
  for (const auto& [key, value] : saved.items()) {
    if (!wanted.contains(key)) return {child(key), dump_json(value), ""};
  }
  return {path, dump_json(saved), dump_json(wanted)};  // the same fields in another order
}

}  // namespace

int optimizer_threads(const TrainOptions& options) {
  if (!options.on_gpu()) return 1;
  if (options.thread_count > 0) return options.thread_count;
  return optimizer_threads_beside_gpu(options.pipeline->devices);
}

int optimizer_threads_beside_gpu(int devices) {
  constexpr int kOfQueues = 2;  // which wait for the GPU
  return std::max((cpu_features().logical_count - kOfQueues) / devices, 1);
}

int64_t even_parts(const TrainOptions& options) {
  const bool evenly = options.ranks && !options.ranks->split_context &&
                      options.compute == DType::kF32 && !options.on_gpu();
  return evenly ? options.ranks->size : 1;
}

std::string_view packing_name(Packing packing) {
  return packing == Packing::kStream ? "stream" : "documents";
}

std::string_view gradient_sum_name(GradientSum sum) {
  return sum == GradientSum::kRelay ? "relay" : "rings";
}

std::string_view split_name(TextSplit split) {
  switch (split) {
    case TextSplit::kFile:
      return "file";
    case TextSplit::kBlankLines:
      return "blank-lines";
    case TextSplit::kSeparator:
      return "separator";
  }
  return "file";
}

namespace {

Status validate_split_context(const TrainOptions& options) {
  const std::string_view flag = flag_of("split_context");
  if (options.ranks->sum == GradientSum::kRings) {
    return fail(Code::kInvalidArgument,
                "{} passes gradients on from chunk to chunk of a sequence: leave --gradient-sum {} "
                "out",
                flag, gradient_sum_name(GradientSum::kRings));
  }
  const bool drops_lora = options.lora && options.lora->dropout > 0;
  const bool dora = options.lora && options.lora->use_dora;
  const std::string_view other = options.on_gpu()      ? "--device cuda"
                                 : options.pipeline    ? "--devices"
                                 : options.dpo         ? flag_of("dpo")
                                 : options.grpo        ? flag_of("grpo")
                                 : options.dropout > 0 ? flag_of("dropout")
                                 : drops_lora          ? flag_of("lora.dropout")
                                 : dora                ? flag_of("lora.dora")
                                                       : "";
  if (other.empty()) return {};
  return fail(Code::kUnsupported, "{} with {} is not supported yet: give one of them", flag, other);
}

}  // namespace

Status validate_ranks(const TrainOptions& options) {
  if (!options.ranks) return {};
  const RankOptions& ranks = *options.ranks;
  JIGE_DO(require(ranks.size >= 1 && ranks.size <= kRanksMax, "ranks", ranks.size,
                  "between 1 and 4096"));
  JIGE_DO(require(ranks.rank >= 0 && ranks.rank < ranks.size, "rank", ranks.rank,
                  "at least 0 and below the number of ranks"));
  if (ranks.split_context) JIGE_DO(validate_split_context(options));
  if (!options.pipeline) return {};
  return fail(Code::kUnsupported,
              "several ranks, each with a pipeline of devices, are not supported yet: give ranks "
              "or devices");
}

Status validate_preference(const TrainOptions& options) {
  if (!options.dpo) return {};
  const DpoOptions& dpo = *options.dpo;
  if (options.init_folder.empty()) {
    return fail(Code::kInvalidArgument,
                "{} tunes a trained model, which it is measured against: name its folder with {}",
                flag_of("dpo"), flag_of("init_folder"));
  }
  JIGE_DO(require(dpo.beta > 0 && std::isfinite(dpo.beta), "dpo.beta", dpo.beta, "above 0"));
  JIGE_DO(require(dpo.label_smoothing >= 0 && dpo.label_smoothing < 0.5, "dpo.label_smoothing",
                  dpo.label_smoothing, "at least 0 and below 0.5"));
  JIGE_DO(require(dpo.sft_weight >= 0 && std::isfinite(dpo.sft_weight), "dpo.sft_weight",
                  dpo.sft_weight, "0 or more"));
  if (options.data.packing == Packing::kStream) {
    return fail(Code::kInvalidArgument,
                "{} stream would part the answers of a pair: leave it out with {}",
                flag_of("data.packing"), flag_of("dpo"));
  }
  if (!options.pipeline) return {};
  return fail(Code::kUnsupported,
              "{} with a pipeline of devices is not supported yet: give one of them",
              flag_of("dpo"));
}

Status validate(const TrainOptions& options) {
  JIGE_DO(validate_ranks(options));
  JIGE_DO(validate_model(options));
  JIGE_DO(validate_preference(options));
  JIGE_DO(validate_grpo(options));
  JIGE_DO(validate_data(options.data));
  JIGE_DO(validate_optimizer(options.optimizer));
  JIGE_DO(validate_moments(options));
  JIGE_DO(validate_gpus(options));
  JIGE_DO(validate_sizes(options));
  JIGE_DO(validate_dropout(options));
  JIGE_DO(validate_row_gate(options));
  JIGE_DO(validate_experts(options));
  return validate_habits(options);
}

Json identity_json(const TrainOptions& options) {
  Json json = {{"data", data_identity(options.data)},
               {"optimizer", optimizer_identity(options.optimizer)},
               {"schedule", schedule_identity(options.schedule)},
               {"compute", dtype_info(options.compute).name},
               {"context", options.context},
               {"step_tokens", options.step_tokens},
               {"steps", options.steps},
               {"epochs", options.epochs},
               {"seed", options.seed}};
  add_dropout_identity(options, json);
  // Runs without these go on from checkpoints that were made before there were any.
  if (balances(options)) json["expert_balance"] = *options.expert_balance;
  if (options.expert_bias_rate > 0) json["expert_bias_rate"] = options.expert_bias_rate;
  if (options.data.token_layout != formats::TokenLayout::kHeader) {
    json["data"]["token_layout"] = formats::token_layout_name(options.data.token_layout);
  }
  if (options.image_pixels_max > 0) json["image_pixels"] = options.image_pixels_max;
  if (options.config) json["model"] = formats::to_hf_config(*options.config);
  if (options.lora) {
    json["lora"] = {{"rank", options.lora->rank},
                    {"alpha", options.lora->alpha},
                    {"target_modules", options.lora->target_modules}};
    // Runs without these, too, go on from checkpoints of before.
    if (options.lora->use_dora) json["lora"]["dora"] = true;
    if (options.lora->use_rslora) json["lora"]["rs"] = true;
    if (options.lora->dropout > 0) json["lora"]["dropout"] = options.lora->dropout;
    if (options.optimizer.lora_b_rate != 1) json["lora"]["b_rate"] = options.optimizer.lora_b_rate;
  }
  if (options.dpo) {
    json["dpo"] = {{"beta", options.dpo->beta},
                   {"label_smoothing", options.dpo->label_smoothing},
                   {"sft_weight", options.dpo->sft_weight}};
  }
  if (options.row_gate) json["skip_converged"] = identity_json(*options.row_gate);
  if (options.grpo) json["grpo"] = identity_json(*options.grpo);
  if (options.base_format != ops::WeightFormat::kCompute) {
    json["quantize"] = ops::weight_format_name(options.base_format);
  }
  // Before, all levels of q4 were even.
  if (options.base_format == ops::WeightFormat::kQ4) json["quantize_levels"] = "by matrix";
  return json;
}

Json options_json(const TrainOptions& options) {
  Json json = identity_json(options);
  json["init_folder"] = options.init_folder;
  json["tokenizer_folder"] = options.tokenizer_folder;
  json["out_folder"] = options.out_folder;
  json["data"]["files"] = options.data.files;
  json["data"]["eval_files"] = options.data.eval_files;
  json["optimizer"]["bad_steps_in_row_max"] = options.optimizer.bad_steps_in_row_max;
  json["micro_batch_tokens"] = options.micro_batch_tokens;
  json["eval_every_steps"] = options.eval_every_steps;
  json["eval_tokens_max"] = options.eval_tokens_max;
  json["checkpoint_every_steps"] = options.checkpoint_every_steps;
  json["checkpoint_every_seconds"] = options.checkpoint_every_seconds;
  json["checkpoints_kept"] = options.checkpoints_kept;
  json["keep_best"] = options.keeps_best();
  json["patience"] = options.patience;
  json["export_dtype"] = dtype_info(options.export_dtype).name;
  json["threads"] = options.thread_count;
  if (options.grpo) json["draw_at_once"] = options.grpo->answers_max;
  json["memory_limit_bytes"] = options.memory_limit_bytes;
  if (options.ranks) {
    json["ranks"] = {{"count", options.ranks->size},
                     {"sum", gradient_sum_name(options.ranks->sum)},
                     {"overlap", options.ranks->overlap},
                     {"split_context", options.ranks->split_context},
                     {"shard_optimizer", options.ranks->shard_optimizer}};
  }
  return json;
}

Status check_same_identity(const Json& saved, const Json& wanted, const std::string& where) {
  Json comparable = wanted;
  // Checkpoints made before this field was kept go on with either.
  if (const auto data = saved.find("data"); data != saved.end() && !data->contains("eval_files")) {
    comparable["data"].erase("eval_files");
  }
  const Difference difference = first_difference(saved, comparable, "");
  if (difference.path.empty()) return {};
  if (difference.path == "optimizer.moments") return refuse_moments(saved, wanted, where);
  if (difference.path == "data.content") {
    return fail(Code::kInvalidArgument,
                "{}: was made with other data, another tokenizer or, of images, another {} "
                "(data.content is {} there and {} here); continue with the old ones, or start anew "
                "in another folder",
                where, flag_of("image_pixels"), difference.saved, difference.wanted);
  }
  if (difference.path == "quantize_levels") {
    return fail(
        Code::kInvalidArgument,
        "{}: was made by another build, which keeps the base in other numbers with {} q4; go "
        "on with that build, or start anew in another folder",
        where, flag_of("quantize"));
  }
  if (difference.path == "data.eval_files") {
    const bool had_files = difference.saved == "true";
    return fail(Code::kInvalidArgument,
                "{}: was made {} --eval-data, this run is {} it, and trains on {} of the data; "
                "continue {} it, or start anew in another folder",
                where, had_files ? "with" : "without", had_files ? "without" : "with",
                had_files ? "a part" : "all", had_files ? "with" : "without");
  }
  const std::string& path = difference.path;
  const std::string_view flag = flag_of(path);
  const std::string had = difference.saved.empty()
                              ? fmt::format("without {}", path)
                              : fmt::format("with {} = {}", path, difference.saved);
  const std::string has = difference.wanted.empty() ? "none" : difference.wanted;
  const std::string remedy = difference.saved.empty() ? fmt::format("without {}", flag)
                             : flag == path           ? "with the old value"
                                            : fmt::format("with the old value of {}", flag);
  const bool longer = path == "steps" || path == "epochs";
  return fail(Code::kInvalidArgument,
              "{}: was made {}, this run has {}; continue {}, or start anew in another folder{}",
              where, had, has, remedy, longer ? ", from the weights of this one by --from" : "");
}

}  // namespace jige::train
