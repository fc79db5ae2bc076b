#include "cli/train_flags.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "cli/bad_lines.h"
#include "cli/chat_defaults.h"
#include "cli/device_flags.h"
#include "cli/flags.h"
#include "cli/image_model.h"
#include "cli/input.h"
#include "train/record_reader.h"
#include "train/run_dropout.h"

namespace jige::cli {
namespace {

constexpr const char* kShapeFlags[] = {"--size",  "--width",    "--layers",
                                       "--heads", "--kv-heads", "--ffn"};

void declare_model(TrainFlags& to, Flags& flags) {
  flags.section("Model (from nothing, unless --from names one)");
  flags.choice("--size NAME", to.shape.size, model_size_names(), "a Llama of this size");
  flags.integer("--width N", to.shape.width, {.min = 0, .max = formats::kHiddenMax},
                "hidden size; 0 takes the "
                "size's own, here and below");
  flags.integer("--layers N", to.shape.layers, {.min = 0, .max = formats::kLayersMax},
                "transformer layers");
  flags.integer("--heads N", to.shape.heads, {.min = 0, .max = formats::kHeadsMax}, "query heads");
  flags.integer("--kv-heads N", to.shape.kv_heads, {.min = 0, .max = formats::kHeadsMax},
                "key/value heads; 0: one for each query head");
  flags.integer("--ffn N", to.shape.ffn, {.min = 0, .max = formats::kFfnMax}, "feed-forward width");
  flags.text("--config FILE", to.config_file, "a Hugging Face config.json instead of a size");
  flags.text("--tokenizer FOLDER", to.tokenizer_folder,
             "tokenizer to use; without it one is trained from the data, or taken from --from");
  flags.integer("--vocab-size N", to.vocab_size, {.min = 0, .max = 1'000'000},
                "tokens of the tokenizer that is trained; 0: the size's own");
  flags.section("Fine-tuning");
  flags.text("--from FOLDER", to.from_folder, "start from this model, or from that of a run");
  flags.toggle("--lora", to.lora, "train a small adapter instead of all weights");
  flags.integer("--lora-rank N", to.lora_options.rank, {.min = 1, .max = 65536}, "its rank");
  flags.number("--lora-alpha A", to.lora_options.alpha, {.min = 0, .above_min = true},
               "its strength is alpha / rank");
  flags.toggle("--lora-rs", to.lora_options.use_rslora,
               "its strength is alpha / sqrt(rank): a high rank then changes as much as a low one");
  flags.toggle("--dora", to.lora_options.use_dora,
               "lengths of its own for the rows of what it adapts (DoRA); each step multiplies by "
               "the base once "
               "more");
  flags.number("--lora-dropout P", to.lora_options.dropout, {.max = 1, .below_max = true},
               "part of what the adapter reads that a step drops; 0: off");
  flags.number(
      "--lora-plus X", to.options.optimizer.lora_b_rate, {.min = 0, .above_min = true},
      "times --lr: the learning rate of its second matrices, B (LoRA+); usual are 2 to 16");
  flags.texts(
      "--lora-target NAME", to.lora_options.target_modules,
      "a linear layer to adapt, such as q_proj; may be given several times. Without it, all "
      "of every block");
  flags.choice(
      "--quantize NAME", to.quantize, weight_format_names(),
      "with --lora: hold the weights it starts from in 8.5 (q8) or 4.5 (q4, the head q8) "
      "bits a number, or experts in 4.5 and all else in 8.5 (mxfp4); the adapter learns on "
      "those numbers");
  flags.toggle("--no-merge", to.no_merge, "write the adapter only, not the merged model");
}

void declare_preference(TrainFlags& to, Flags& flags) {
  flags.section("Preference tuning (with --from)");
  flags.toggle("--dpo", to.dpo,
               "learn from pairs of answers, {\"prompt\", \"chosen\", \"rejected\"} in JSONL, by "
               "direct preference optimization against the model it starts from; --lr is 1e-6 "
               "then, with --lora 1e-5, unless given");
  flags.number("--dpo-beta X", to.dpo_options.beta, {.min = 0, .above_min = true},
               "how closely it keeps to that model");
  flags.number("--dpo-label-smoothing X", to.dpo_options.label_smoothing,
               {.max = 0.5, .below_max = true},
               "part of the pairs that may be the wrong way round");
  flags.number("--dpo-sft-weight X", to.dpo_options.sft_weight, {},
               "weight of the chosen answer's own loss, a token's mean, beside it");
}

void declare_data(TrainFlags& to, Flags& flags) {
  train::DataOptions& data = to.options.data;
  flags.section("Data");
  flags.texts("--data FILE...", data.files,
              "text, JSONL ({\"text\"}, {\"messages\"}, {\"conversations\"} or {\"prompt\", "
              "\"completion\"}; with --dpo pairs, with --grpo prompts) or token files (.bin); "
              "messages may have images, where --from names a model that reads them");
  flags.texts("--eval-data FILE...", data.eval_files,
              "data to measure on; without it a part of --data is held out");
  flags.number("--eval-share X", data.eval_fraction, {.min = 0, .max = 0.5},
               "part of the documents that is held out");
  flags.choice("--split HOW", to.split, {"file", "blank-lines", "separator"},
               "where documents of a text file end");
  flags.text("--separator LINE", data.separator, "the line between documents of a text file");
  flags.text("--text-field NAME", data.text_field, "the JSONL field that holds plain text");
  flags.choice("--token-layout HOW", to.token_layout, {"header", "raw-u16", "raw-u32"},
               "what token files begin with: llm.c's header, or at once tokens of 2 or 4 bytes, as "
               "nanoGPT writes them");
  flags.choice("--packing HOW", to.packing, {"documents", "stream"},
               "every document on its own, or all as one stream");
  flags.toggle("--no-eos", to.no_eos, "no end-of-text token behind plain documents");
  declare_image_pixels(flags, to.options.image_pixels_max);
  declare_skip_bad(flags, data.skip_bad);
}

void declare_learning(TrainFlags& to, Flags& flags) {
  train::TrainOptions& options = to.options;
  flags.section("Learning");
  flags.integer("--steps N", options.steps, {.min = 0}, "optimizer steps");
  flags.number("--epochs X", options.epochs, {.min = 0, .max = 1e6},
               "passes over the data, instead of --steps; 1 if neither is given");
  flags.integer("--batch-tokens N", options.step_tokens, {.min = 1, .max = int64_t{1} << 36},
                "tokens of a step");
  flags.integer("--micro-batch-tokens N", options.micro_batch_tokens, {.min = 1, .max = 1 << 24},
                "tokens that run at once: less takes less memory");
  flags.integer("--context N", options.context, {.min = 0},
                "tokens of a sequence at most; 0: the model's context, or what a micro-batch "
                "holds if that is less");
  flags.number("--lr X", options.schedule.peak, {.above_min = true}, "highest learning rate");
  flags.choice("--schedule NAME", to.schedule, {"constant", "cosine", "linear", "wsd"},
               "how the rate falls");
  flags.integer("--warmup N", options.schedule.warmup_steps, {}, "steps until the highest rate");
  flags.number("--min-lr-ratio X", options.schedule.min_ratio, {.min = 0, .max = 1},
               "last rate as a part of the highest");
  flags.number("--decay-share X", options.schedule.decay_share, {.min = 0, .max = 1},
               "part of the steps in which wsd falls");
  flags.number("--weight-decay X", options.optimizer.weight_decay, {}, "pull towards zero");
  flags.number("--clip X", options.optimizer.clip_norm, {}, "largest gradient norm; 0: off");
  flags.number("--beta1 X", options.optimizer.beta1, {.max = 1, .below_max = true}, "of AdamW");
  flags.number("--beta2 X", options.optimizer.beta2, {.max = 1, .below_max = true}, "of AdamW");
  flags.choice("--moments NAME", to.moments, ops::moment_format_names(),
               "how AdamW's two moments of matrices are kept: f32, 8 bytes a parameter, or q8, "
               "codes of 8 bits, 2.06 bytes");
  flags.number("--dropout P", options.dropout, {.max = 1, .below_max = true},
               "part of the embedding's and each layer's two outputs that a step drops; 0: off, "
               "whatever the model's config.json says");
  flags.number("--ffn-dropout P", options.ffn_dropout, {.max = 1, .below_max = true},
               "part of the feed-forward layers' hidden width that a step leaves out, block by "
               "block, and does not compute; 0: off");
  flags.integer("--ffn-dropout-block N", options.ffn_dropout_block, {.min = 32, .max = 1 << 16},
                "with --ffn-dropout: neighbours that are left out together, a multiple of 32");
  flags.integer(
      "--dropout-pool N", options.dropout_pool, {.min = 0, .max = train::kDropoutPoolMax},
      "with --dropout or --ffn-dropout: what is dropped is the same again and again, that "
      "of N subnetworks, each trained in its turn (gyro dropout); 0: new in each step");
  flags.integer("--dropout-at-once N", options.dropout_at_once,
                {.min = 1, .max = train::kDropoutAtOnceMax},
                "with --dropout-pool or --ffn-dropout: subnetworks that share each step's "
                "sequences");
  flags.number("--expert-balance X", to.expert_balance, {},
               "weight of a loss for unequal use of experts, of each sequence and layer; usual are "
               "0.0001 to 0.01; 0: none, whatever the model's config.json says");
  flags.number(
      "--expert-bias-rate U", options.expert_bias_rate, {},
      "by how much each step moves the biases for the choice of experts towards equal use, "
      "where routers have them; usual is 0.001; 0: they stay");
  flags.integer("--seed N", to.seed, {}, "of weights, data order and dropout");
}

void declare_skipping(TrainFlags& to, Flags& flags) {
  train::RowGateOptions& gate = to.row_gate;
  flags.section("Skipped weight gradients");
  flags.number("--skip-converged P", to.skip_converged, {.max = 1, .below_max = true},
               "skip the gradients of rows of weights that hardly move on any more, each group of "
               "rows in up to this part of the steps; 0: off");
  flags.choice("--skip-mode NAME", to.skip_mode, train::skip_mode_names(),
               "freeze: what is skipped stays as it is; scale: its gradient is zero, and larger in "
               "the other steps, so that the mean stays");
  flags.number("--skip-below C", gate.below, {.min = 0, .above_min = true},
               "how straight the weights of a group move where it is no longer skipped: 1 is all "
               "in one direction");
  flags.integer("--skip-rows N", gate.rows, {.min = 32, .max = 1 << 16},
                "rows of a group, a multiple of 32");
  flags.integer("--skip-warmup N", gate.warmup, {}, "first steps that skip nothing");
  flags.integer("--skip-refresh N", gate.refresh, {},
                "every so many steps one skips nothing; 0: never");
  flags.number("--skip-rise X", gate.rise, {.min = 0, .above_min = true},
               "nothing is skipped while the smoothed loss is by this part above its lowest");
}

void declare_run(TrainFlags& to, Flags& flags) {
  train::TrainOptions& options = to.options;
  flags.section("Run");
  flags.text("-o,--out FOLDER", options.out_folder,
             "the run: checkpoints, log.jsonl, and in the end the model");
  flags.toggle("--resume", to.must_resume, "fail where there is no checkpoint to continue");
  flags.toggle("--fresh", to.fresh, "fail where there is one; without both, continue if possible");
  flags.integer("--save-every N", options.checkpoint_every_steps, {},
                "steps between checkpoints; 0: by time only");
  flags.number("--save-minutes X", to.save_minutes, {},
               "minutes between checkpoints; 0: by steps "
               "only");
  flags.integer("--keep N", options.checkpoints_kept, {.min = 1}, "checkpoints that are kept");
  flags.integer("--eval-every N", options.eval_every_steps, {},
                "steps between measurements on held-out data; 0: at the end only");
  flags.integer("--eval-tokens N", options.eval_tokens_max, {.min = 1}, "held-out tokens a time");
  flags.toggle("--keep-best", options.keep_best,
               "the model is that of the best measurement on held-out data, not the last; its "
               "checkpoint is kept besides");
  flags.integer("--patience N", options.patience, {},
                "end behind so many measurements in a row that were no better than the best, "
                "whose model it is then, as with --keep-best; 0: never");
  flags.choice(
      "--dtype NAME", to.dtype, {"auto", "f32", "bf16"},
      "type of the matrix products; auto: bf16 where the processor has instructions for it");
  flags.choice("--export-dtype NAME", to.export_dtype, {"f32", "bf16", "f16"},
               "type of the weights that are written");
}

}  // namespace

void TrainFlags::declare(Flags& flags) {
  declare_model(*this, flags);
  declare_preference(*this, flags);
  rewards.declare(flags);
  declare_data(*this, flags);
  declare_learning(*this, flags);
  declare_skipping(*this, flags);
  declare_run(*this, flags);
  pipeline.declare(flags);
}

Status TrainFlags::check_flags(const Flags& flags) const {
  const auto contradiction = [](const char* one, const char* other) -> Status {
    return fail(Code::kInvalidArgument, "{} and {} exclude each other; give one of them", one,
                other);
  };
  if (options.data.files.empty()) {
    return fail(Code::kInvalidArgument, "--data is missing: name at least one text or JSONL file");
  }
  if (options.out_folder.empty()) {
    return fail(Code::kInvalidArgument, "--out is missing: name the folder of the run");
  }
  if (!from_folder.empty() && !config_file.empty()) return contradiction("--from", "--config");
  if (must_resume && fresh) return contradiction("--resume", "--fresh");
  if (options.steps > 0 && options.epochs > 0) return contradiction("--steps", "--epochs");
  if (lora && from_folder.empty()) {
    return fail(Code::kInvalidArgument, "--lora adapts a trained model: name it with --from");
  }
  if (split == "separator" && options.data.separator.empty()) {
    return fail(Code::kInvalidArgument, "--split separator needs --separator LINE");
  }
  if (split != "separator" && flags.given("--split") && !options.data.separator.empty()) {
    return fail(Code::kInvalidArgument, "--separator goes with --split separator, not with {}",
                split);
  }
  if (from_folder.empty()) {
    JIGE_DO(flags.refuse({"--image-pixels"},
                         "is about images, which new models do not read: leave it out, or name a "
                         "model by --from"));
  }
  if (!lora) {
    JIGE_DO(flags.refuse({"--lora-rank", "--lora-alpha", "--lora-target", "--lora-rs", "--dora",
                          "--lora-dropout", "--lora-plus", "--no-merge"},
                         "is about adapters: add --lora, or leave it out to train all weights"));
  }
  if (!lora && quantize != "none") {
    return fail(Code::kInvalidArgument,
                "--quantize {} is for weights under an adapter, since those of few bits cannot be "
                "trained: add --lora, or leave it out to train all weights",
                quantize);
  }
  for (const char* name : kShapeFlags) {
    if (!flags.given(name)) continue;
    if (!from_folder.empty()) return contradiction("--from", name);
    if (!config_file.empty()) return contradiction("--config", name);
  }
  const int64_t tokens_least = 256 + std::ssize(default_special_tokens());
  if (vocab_size != 0 && vocab_size < tokens_least) {
    return fail(
        Code::kInvalidArgument,
        "--vocab-size: {} is out of range; it must be at least {}: the bytes and {} special "
        "tokens",
        vocab_size, tokens_least, tokens_least - 256);
  }
  if (!flags.given("--vocab-size")) return {};
  if (!from_folder.empty()) return contradiction("--from", "--vocab-size");
  return tokenizer_folder.empty() ? Status{} : contradiction("--tokenizer", "--vocab-size");
}

Status TrainFlags::check_preference(const Flags& flags) const {
  if (!dpo) {
    return flags.refuse({"--dpo-beta", "--dpo-label-smoothing", "--dpo-sft-weight"},
                        "is about preference tuning: add --dpo, or leave it out");
  }
  return flags.refuse({"--split", "--separator", "--text-field", "--token-layout", "--packing"},
                      "is not about pairs of answers: leave it out with --dpo");
}

Status TrainFlags::check_sources(const Flags& flags) const {
  const auto refuse_without = [&](train::SourceKind kind,
                                  std::initializer_list<std::string_view> names,
                                  std::string_view why) -> Status {
    for (const auto* files : {&options.data.files, &options.data.eval_files}) {
      for (const std::string& file : *files) {
        JIGE_TRY(const train::SourceKind of_file, train::source_kind(file));
        if (of_file == kind) return {};
      }
    }
    return flags.refuse(names, why);
  };
  using enum train::SourceKind;
  JIGE_DO(refuse_without(kText, {"--split", "--separator"},
                         "is about text files, and no file of the data is one: leave it out"));
  JIGE_DO(refuse_without(kJsonl, {"--text-field"},
                         "is about JSONL, and no file of the data is named .jsonl or .ndjson: "
                         "leave it out"));
  return refuse_without(kTokens, {"--token-layout"},
                        "is about token files, and no file of the data is named .bin: leave it "
                        "out");
}

Status TrainFlags::check_learning(const Flags& flags) const {
  if (options.ffn_dropout == 0) {
    JIGE_DO(flags.refuse({"--ffn-dropout-block"},
                         "is about blocks that are dropped: give --ffn-dropout, or leave it out"));
    if (options.dropout_pool == 0) {
      JIGE_DO(
          flags.refuse({"--dropout-at-once"},
                       "is about subnetworks: give --dropout-pool or --ffn-dropout, or leave it "
                       "out"));
    }
  }
  if (schedule != "wsd") {
    JIGE_DO(flags.refuse({"--decay-share"}, "is of --schedule wsd: choose that, or leave it out"));
  }
  if (schedule == "constant") {
    JIGE_DO(flags.refuse({"--min-lr-ratio"},
                         "is of rates that fall, and --schedule constant does not: leave it out"));
  }
  if (options.data.eval_files.empty()) return {};
  return flags.refuse({"--eval-share"},
                      "is of what is held out where --eval-data is not there: leave one out");
}

Status TrainFlags::check_skipping(const Flags& flags) const {
  if (skip_converged > 0) return {};
  return flags.refuse({"--skip-mode", "--skip-below", "--skip-rows", "--skip-warmup",
                       "--skip-refresh", "--skip-rise"},
                      "is about gradients that are skipped: give --skip-converged, or leave it "
                      "out");
}

bool TrainFlags::names_model(const Flags& flags) const {
  const auto given = [&](const char* name) { return flags.given(name); };
  return std::ranges::any_of(kShapeFlags, given) || given("--from") || given("--config") ||
         given("--vocab-size");
}

Result<train::TrainOptions> TrainFlags::to_options(const Flags& flags,
                                                   const std::vector<int>& gpus) const {
  JIGE_DO(check_flags(flags));
  JIGE_DO(check_preference(flags));
  JIGE_DO(check_sources(flags));
  JIGE_DO(check_learning(flags));
  JIGE_DO(check_skipping(flags));
  train::TrainOptions made = options;
  if (dpo) made.dpo = dpo_options;
  JIGE_TRY(made.grpo, rewards.to_options(flags));
  if (dpo && !flags.given("--lr")) {
    made.schedule.peak = lora ? kDpoLoraRateDefault : kDpoRateDefault;
  }
  if (made.grpo && !flags.given("--lr")) {
    made.schedule.peak = lora ? kGrpoLoraRateDefault : kGrpoRateDefault;
  }
  if (!from_folder.empty()) {
    JIGE_TRY(made.init_folder, find_model_folder(from_folder));
  }
  if (lora) made.lora = lora_options;
  if (skip_converged > 0) {
    made.row_gate = row_gate;
    made.row_gate->most = skip_converged;
    JIGE_TRY(made.row_gate->mode, train::parse_skip_mode(skip_mode));
  }
  if (flags.given("--expert-balance")) made.expert_balance = expert_balance;
  made.base_format = read_weight_format(quantize);
  if (made.steps == 0 && made.epochs == 0) made.epochs = 1;
  JIGE_TRY(made.schedule.kind, train::parse_schedule(schedule));
  JIGE_TRY(const std::optional<DType> compute, read_compute_dtype(dtype));
  made.compute = compute.value_or(default_training_dtype(!gpus.empty()));
  JIGE_TRY(made.export_dtype, parse_dtype(export_dtype));
  JIGE_TRY(made.optimizer.moments, ops::parse_moment_format(moments));
  made.data.packing = packing == "stream" ? train::Packing::kStream : train::Packing::kDocuments;
  const bool separated = split == "separator" || !made.data.separator.empty();
  made.data.split = separated                ? train::TextSplit::kSeparator
                    : split == "blank-lines" ? train::TextSplit::kBlankLines
                                             : train::TextSplit::kFile;
  JIGE_TRY(made.data.token_layout, formats::parse_token_layout(token_layout));
  made.data.append_eos = !no_eos;
  made.checkpoint_every_seconds = 60 * save_minutes;
  made.resume = must_resume ? train::ResumeMode::kRequired
                : fresh     ? train::ResumeMode::kNever
                            : train::ResumeMode::kAuto;
  made.merge_lora = !no_merge;
  made.gpus = gpus;
  JIGE_TRY(made.pipeline, pipeline.options(gpus));
  if (!made.pipeline) {
    JIGE_DO(
        flags.refuse({"--times"}, "is of plans for a pipeline: give --devices, or leave it out"));
  }
  made.seed = static_cast<uint64_t>(seed);
  return made;
}

}  // namespace jige::cli
