#include "train/option_flags.h"

namespace jige::train {
namespace {

constexpr OptionFlag kFlags[] = {
    {"model", "--from, --config or --size"},
    {"lora", "--lora"},
    {"lora.rank", "--lora-rank"},
    {"lora.alpha", "--lora-alpha"},
    {"lora.target_modules", "--lora-target"},
    {"lora.dora", "--dora"},
    {"lora.rs", "--lora-rs"},
    {"lora.dropout", "--lora-dropout"},
    {"lora.b_rate", "--lora-plus"},
    {"quantize", "--quantize"},
    {"dpo", "--dpo"},
    {"dpo.beta", "--dpo-beta"},
    {"dpo.label_smoothing", "--dpo-label-smoothing"},
    {"dpo.sft_weight", "--dpo-sft-weight"},
    {"grpo", "--grpo"},
    {"grpo.prompts_per_step", "--prompts-per-step"},
    {"grpo.group", "--group"},
    {"grpo.temperature", "--temperature"},
    {"grpo.top_p", "--top-p"},
    {"grpo.tokens_max", "--max-new-tokens"},
    {"grpo.advantage", "--advantage"},
    {"grpo.overlong", "--overlong"},
    {"grpo.overlong.masks", "--overlong"},
    {"grpo.overlong.penalty", "--overlong-penalty"},
    {"grpo.overlong.margin", "--overlong-margin"},
    {"grpo.clip_low", "--clip-low"},
    {"grpo.clip_high", "--clip-high"},
    {"grpo.kl", "--kl"},
    {"grpo.updates", "--updates-per-step"},
    {"grpo.reward", "--reward"},
    {"grpo.reward_command", "--reward-command"},
    {"grpo.reward_timeout", "--reward-timeout"},
    {"draw_at_once", "--draw-at-once"},
    {"init_folder", "--from"},
    {"tokenizer_folder", "--tokenizer"},
    {"data.files", "--data"},
    {"data.eval_files", "--eval-data"},
    {"data.eval_fraction", "--eval-share"},
    {"data.split", "--split"},
    {"data.separator", "--separator"},
    {"data.text_field", "--text-field"},
    {"data.append_eos", "--no-eos"},
    {"data.skip_bad", "--skip-bad"},
    {"data.packing", "--packing"},
    {"data.token_layout", "--token-layout"},
    {"optimizer.beta1", "--beta1"},
    {"optimizer.beta2", "--beta2"},
    {"optimizer.weight_decay", "--weight-decay"},
    {"optimizer.clip_norm", "--clip"},
    {"optimizer.moments", "--moments"},
    {"schedule.kind", "--schedule"},
    {"schedule.learning_rate", "--lr"},
    {"schedule.min_lr_ratio", "--min-lr-ratio"},
    {"schedule.decay_share", "--decay-share"},
    {"schedule.warmup_steps", "--warmup"},
    {"compute", "--dtype"},
    {"context", "--context"},
    {"image_pixels", "--image-pixels"},
    {"micro_batch_tokens", "--micro-batch-tokens"},
    {"step_tokens", "--batch-tokens"},
    {"steps", "--steps"},
    {"epochs", "--epochs"},
    {"dropout", "--dropout"},
    {"ffn_dropout", "--ffn-dropout"},
    {"ffn_dropout_block", "--ffn-dropout-block"},
    {"dropout_pool", "--dropout-pool"},
    {"dropout_at_once", "--dropout-at-once"},
    {"skip_converged", "--skip-converged"},
    {"skip_converged.most", "--skip-converged"},
    {"skip_converged.mode", "--skip-mode"},
    {"skip_converged.below", "--skip-below"},
    {"skip_converged.rows", "--skip-rows"},
    {"skip_converged.warmup", "--skip-warmup"},
    {"skip_converged.refresh", "--skip-refresh"},
    {"skip_converged.rise", "--skip-rise"},
    {"expert_balance", "--expert-balance"},
    {"expert_bias_rate", "--expert-bias-rate"},
    {"seed", "--seed"},
    {"eval_every_steps", "--eval-every"},
    {"eval_tokens_max", "--eval-tokens"},
    {"checkpoint_every_steps", "--save-every"},
    {"checkpoint_every_seconds", "--save-minutes"},
    {"checkpoints_kept", "--keep"},
    {"keep_best", "--keep-best"},
    {"patience", "--patience"},
    {"export_dtype", "--export-dtype"},
    {"threads", "--threads"},
    {"memory_limit_bytes", "--memory-limit"},
    {"ranks", "--ranks"},
    {"shard_optimizer", "--shard-optimizer"},
    {"split_context", "--split-context"},
    {"out_folder", "--out"},
};

}  // namespace

std::span<const OptionFlag> option_flags() { return kFlags; }

std::string_view flag_of(std::string_view option) {
  for (std::string_view group = option;;) {
    for (const OptionFlag& known : kFlags) {
      if (known.option == group) return known.flag;
    }
    const size_t dot = group.rfind('.');
    if (dot == std::string_view::npos) return option;
    group = group.substr(0, dot);
  }
}

}  // namespace jige::train
