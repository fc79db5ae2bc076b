#include "train/run_memory.h"

#include <algorithm>

#include "base/bytes.h"
#include "tensor/cuda_device.h"
#include "train/option_flags.h"
#include "train/process_memory.h"
#include "train/reference_logprobs.h"
#include "train/reference_model.h"
#include "train/row_gate.h"
#include "train/run_dropout.h"
#include "train/staged_gradients.h"

namespace jige::train {
namespace {

// What ranks need besides: the streams between them, and on GPUs a place for gradients to meet.
void add_ranks(RunSetup& setup) {
  if (!setup.options.ranks) return;
  const RankOptions& ranks = *setup.options.ranks;
  setup.plan.rank_count = ranks.size;
  setup.plan.ranks_here = std::max(ranks.local, 1);
  setup.plan.sharded = ranks.shards();
  setup.plan.split_context = ranks.context_ranks() > 1;
  setup.plan.stream_bytes =
      ranks.group
          ? comm::stream_memory_bytes(ranks.group->kind(), ranks.size, ranks.group->plan())
          : comm::stream_memory_bytes("shm", ranks.size, comm::RingPlan::in_rank_order(ranks.size));
  if (!setup.options.on_gpu()) {
    setup.plan.memory_predicted_bytes += setup.plan.stream_bytes;
  } else if (ranks.size > 1) {
    setup.plan.ranks_on_gpu = ranks.on_device;
    setup.plan.pinned_bytes = staged_bytes(setup.memory.weights);
  }
}

// How a run could hold less of its weights and what belongs to them, or of a micro-batch.
std::string less_memory_text(const TrainOptions& options) {
  const bool divides = options.ranks && options.ranks->size > 1 && !options.ranks->shards();
  const bool may_split = options.ranks && options.ranks->size > 1 && !options.dpo &&
                         !options.grpo && !options.ranks->split_context && !options.on_gpu();
  const bool wide = options.optimizer.moments == ops::MomentFormat::kF32;
  std::string text = divides ? fmt::format(", or {}", flag_of("shard_optimizer")) : "";
  if (may_split) text += fmt::format(", or {}", flag_of("split_context"));
  if (wide) text += fmt::format(", or {} q8", flag_of("optimizer.moments"));
  if (options.grpo) text += fmt::format(", or a smaller {}", flag_of("draw_at_once"));
  if (options.images) {
    text += fmt::format(", or smaller images, as files or by {}", flag_of("image_pixels"));
  }
  if (!options.lora) return text + fmt::format(", or {}", flag_of("lora"));
  const bool is_least = options.base_format == ops::WeightFormat::kQ4 ||
                        options.base_format == ops::WeightFormat::kMxfp4;
  if (is_least) return text;
  return text + fmt::format(", or {} q4", flag_of("quantize"));
}

// ", to draw answers 1.2 MiB, the reference 3 MiB" of runs that learn from rewards.
std::string drawing_text(const TrainPlan& plan) {
  if (plan.drawing_bytes == 0) return "";
  const std::string reference =
      plan.reference_bytes > 0 ? ", the reference " + format_bytes(plan.reference_bytes) : "";
  return ", to draw answers " + format_bytes(plan.drawing_bytes) + reference;
}

// ", the index of the data 2.2 GiB" where that is much.
std::string index_text(const TrainPlan& plan) {
  constexpr int64_t kMuch = int64_t{1} << 20;
  return plan.index_bytes < kMuch ? ""
                                  : ", the index of the data " + format_bytes(plan.index_bytes);
}

// ", what reads images 1.3 GiB" where the data has any.
std::string images_text(const TrainPlan& plan) {
  if (plan.image_count == 0) return "";
  return ", what reads images " + format_bytes(plan.memory.images_bytes + plan.image_reading_bytes);
}

// What ranks on GPUs take of the machine.
Status check_host(const TrainPlan& plan) {
  const int64_t machine = machine_memory_bytes();
  const int64_t each = plan.pinned_bytes + plan.stream_bytes;
  if (each <= machine / plan.ranks_here) return {};
  return fail(Code::kExhausted,
              "each of {} ranks here needs {} of the host's memory (gradients, pinned: {}, between "
              "ranks {}), and the machine has {}; start fewer ranks here",
              plan.ranks_here, format_bytes_up(each), format_bytes(plan.pinned_bytes),
              format_bytes(plan.stream_bytes), format_bytes(machine));
}

Status check_limit(const RunSetup& setup) {
  if (setup.plan.pinned_bytes > 0) JIGE_DO(check_host(setup.plan));
  const int64_t limit = setup.plan.memory_limit_bytes;
  const int64_t ranks_here =
      setup.options.on_gpu() ? setup.plan.ranks_on_gpu : setup.plan.ranks_here;
  if (setup.plan.memory_predicted_bytes <= limit / ranks_here) return {};
  const int64_t together =
      std::min(setup.plan.memory_predicted_bytes, INT64_MAX / ranks_here) * ranks_here;
  const auto shown = [](int64_t bytes) { return format_bytes(bytes); };
  return fail(Code::kExhausted,
              "training needs {} (weights {}, gradients {}, {} {}, packed {}, a micro-batch of "
              "{} tokens {}{}{}{}){}, the limit is {}; choose a smaller {} or model{}",
              format_bytes_up(together), shown(setup.memory.weights.values_bytes),
              shown(setup.memory.weights.gradients_bytes),
              setup.memory.masters_bytes > 0 ? "share of moments and masters" : "moments",
              shown(setup.memory.moments_bytes + setup.memory.masters_bytes),
              shown(setup.memory.weights.packed_bytes), setup.options.micro_batch_tokens,
              shown(setup.memory.buffers.total_bytes()), drawing_text(setup.plan),
              index_text(setup.plan), images_text(setup.plan),
              ranks_here > 1 ? fmt::format(" on each of {} ranks {}", ranks_here,
                                           setup.options.on_gpu() ? "on this GPU" : "here")
                             : "",
              shown(limit), flag_of("micro_batch_tokens"), less_memory_text(setup.options));
}

// What stands beside a model that learns from rewards: what draws its answers, and the reference.
Status add_drawing(RunSetup& setup) {
  const TrainOptions& options = setup.options;
  if (!options.grpo) return {};
  const GrpoOptions& grpo = *options.grpo;
  if (grpo.draw.tokens_max >= options.context) {
    return fail(Code::kInvalidArgument,
                "answers may have {} tokens, and the context of {} leaves no room for a prompt "
                "before them; choose a smaller {} or a larger {}",
                grpo.draw.tokens_max, options.context, flag_of("grpo.tokens_max"),
                flag_of("context"));
  }
  JIGE_TRY(
      setup.plan.drawing_bytes,
      grpo.source->memory_bytes(*setup.architecture, setup.weights_options, draw_sizes(options)));
  if (grpo.loss.kl == 0) return {};
  JIGE_TRY(setup.plan.reference_bytes, ReferenceModel::memory_bytes(options));
  return {};
}

}  // namespace

Status check_memory(RunSetup& setup) {
  const TrainOptions& options = setup.options;
  int64_t limit = options.memory_limit_bytes;
  if (limit == 0 && options.on_gpu()) {
    JIGE_TRY(limit, cuda_free_bytes(options.gpus.front()));
  } else if (limit == 0) {
    limit = machine_memory_bytes();
  }
  setup.plan.memory_limit_bytes = limit;
  JIGE_DO(add_drawing(setup));
  setup.plan.memory_predicted_bytes =
      setup.memory.total_bytes() + setup.plan.drawing_bytes + setup.plan.reference_bytes;
  if (!options.on_gpu()) {  // else it is the GPU's memory that counts
    const RowGateMemory gate =
        row_gate_memory(*setup.architecture, setup.weights_options, options, setup.threads);
    setup.plan.memory_predicted_bytes += gate.own_bytes;
    setup.plan.memory_predicted_bytes += process_overhead_bytes(
        *setup.architecture, setup.weights_options.compute,
        {.of_each = setup.threads,
         .micro_batch_tokens = setup.memory.buffers.row_count,
         .scratch_bytes = std::max(block_scratch_bytes(*setup.architecture, options, setup.threads),
                                   gate.thread_scratch_bytes)});
  }
  add_ranks(setup);
  return check_limit(setup);
}

Status check_read_memory(RunSetup& setup) {
  TrainPlan& plan = setup.plan;
  const Dataset& dataset = setup.dataset;
  plan.index_bytes = dataset.index_bytes();
  if (setup.options.pipeline) return {};  // which is yet to be planned
  if (!setup.options.on_gpu()) plan.memory_predicted_bytes += plan.index_bytes;
  if (setup.options.grpo) {
    plan.prompt_bytes = dataset.prompts.byte_count() + dataset.eval_prompts.byte_count();
    plan.memory_predicted_bytes += plan.prompt_bytes;
  }
  if (setup.options.dpo) {
    const int64_t pairs = std::ssize(dataset.training) + std::ssize(dataset.held_out);
    plan.reference_bytes = pairs * static_cast<int64_t>(sizeof(ReferencePair));
    plan.memory_predicted_bytes += plan.reference_bytes;
  }
  return check_limit(setup);
}

}  // namespace jige::train
