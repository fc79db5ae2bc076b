#include "train/run_dropout.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <vector>

#include "base/rng.h"
#include "ops/kept_linear.h"
#include "tensor/cpu_device.h"
#include "train/option_flags.h"

namespace jige::train {
namespace {

// Sizes of ranges of rows that scratch is planned for.
constexpr int64_t kRangeSizes = 64;

Status require_share(std::string_view option, double value) {
  if (value >= 0 && value < 1) return {};
  return fail(Code::kInvalidArgument, "{} is {}, but must be at least 0 (off) and below 1",
              flag_of(option), value);
}

Status require_within(std::string_view option, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return {};
  return fail(Code::kInvalidArgument, "{} is {}, but must be between {} and {}", flag_of(option),
              value, min, max);
}

bool drops_by_member(const TrainOptions& options) {
  return options.dropout_pool > 0 || options.ffn_dropout > 0;
}

// The subnetworks of a step's turn.
std::vector<uint64_t> members_of_turn(const TrainOptions& options, int64_t step) {
  const int64_t count = options.dropout_at_once;
  std::vector<uint64_t> keys;
  if (options.dropout_pool == 0) {
    for (int64_t m = 0; m < count; ++m) {
      keys.push_back(derive_key(options.seed, "dropout blocks",
                                static_cast<uint64_t>((step - 1) * count + m)));
    }
    return keys;
  }
  std::vector<uint64_t> order(static_cast<size_t>(options.dropout_pool));
  std::iota(order.begin(), order.end(), uint64_t{0});
  Rng(derive_key(options.seed, "dropout pool order")).shuffle(std::span(order));
  const int64_t turns = options.dropout_pool / count;
  const int64_t turn = (step - 1) * turns / options.schedule.steps_total;
  for (int64_t m = 0; m < count; ++m) {
    const int64_t place = turn * count + (m + step - 1) % count;
    keys.push_back(derive_key(options.seed, "dropout pool", order[static_cast<size_t>(place)]));
  }
  return keys;
}

Status validate_pool(const TrainOptions& options) {
  if (options.dropout_pool == 0) return {};
  const std::string_view flag = flag_of("dropout_pool");
  const std::string_view at_once = flag_of("dropout_at_once");
  JIGE_DO(require_within("dropout_pool", options.dropout_pool, 1, kDropoutPoolMax));
  if (options.dropout == 0 && options.ffn_dropout == 0) {
    return fail(Code::kInvalidArgument, "{} is about what {} and {} drop: give one of them", flag,
                flag_of("dropout"), flag_of("ffn_dropout"));
  }
  if (options.dropout_pool % options.dropout_at_once == 0) return {};
  return fail(Code::kInvalidArgument,
              "{} {} cannot be trained {} at a time: give a multiple of {}, or another {}", flag,
              options.dropout_pool, options.dropout_at_once, options.dropout_at_once, at_once);
}

Status validate_blocks(const TrainOptions& options) {
  if (options.ffn_dropout == 0) return {};
  const std::string_view flag = flag_of("ffn_dropout");
  const int64_t block = options.ffn_dropout_block;
  JIGE_DO(require_within("ffn_dropout_block", block, ops::kKeptStep, 1 << 16));
  if (block % ops::kKeptStep != 0) {
    return fail(Code::kInvalidArgument, "{} is {}, but must be a multiple of {}",
                flag_of("ffn_dropout_block"), block, ops::kKeptStep);
  }
  const std::string_view other = options.on_gpu() ? "--device cuda"
                                 : options.lora   ? flag_of("lora")
                                 : options.grpo   ? flag_of("grpo")
                                 : options.ranks && options.ranks->split_context
                                     ? flag_of("split_context")
                                     : "";
  if (other.empty()) return {};
  return fail(Code::kUnsupported, "{} with {} is not supported yet: give one of them", flag, other);
}

// The layers whose blocks are dropped.
template <typename Body>
void for_dense_parts(const model::Architecture& architecture, Body&& body) {
  for (const auto& layer : architecture.layers()) {
    if (const model::DenseMlp* dense = layer->dense()) body(*dense);
  }
}

}  // namespace

Status validate_dropout(const TrainOptions& options) {
  JIGE_DO(require_share("dropout", options.dropout));
  JIGE_DO(require_share("ffn_dropout", options.ffn_dropout));
  JIGE_DO(require_within("dropout_at_once", options.dropout_at_once, 1, kDropoutAtOnceMax));
  JIGE_DO(validate_blocks(options));
  return validate_pool(options);
}

Status check_block_dropout(const model::Architecture& architecture, const TrainOptions& options) {
  if (options.ffn_dropout == 0) return {};
  const std::string_view flag = flag_of("ffn_dropout");
  const int64_t block = options.ffn_dropout_block;
  if (architecture.config().experts.count > 0) {
    return fail(Code::kUnsupported,
                "{} is of dense feed-forward layers, and this model has experts: leave it out",
                flag);
  }
  int64_t count = 0;
  Status status;
  for_dense_parts(architecture, [&](const model::DenseMlp& dense) {
    if (!status) return;
    ++count;
    const int64_t size = dense.size();
    const int64_t blocks = size / block;
    const int64_t kept =
        size % block == 0 ? model::kept_block_count(options.ffn_dropout, block, size) : 0;
    if (!dense.may_keep()) {
      status = fail(Code::kUnsupported,
                    "{}: feed-forward layers of {} cut, curve or scale what is to be dropped, "
                    "which is not supported: leave it out",
                    flag, formats::family_name(architecture.config().family));
    } else if (size % block != 0) {
      status = fail(Code::kInvalidArgument,
                    "{} {} does not divide the feed-forward width {}: give a multiple of {} that "
                    "does",
                    flag_of("ffn_dropout_block"), block, size, ops::kKeptStep);
    } else if (kept == 0 || kept == blocks) {
      status = fail(Code::kInvalidArgument,
                    "{} {} of {} blocks of {} drops {}: give another part, or another {}", flag,
                    options.ffn_dropout, blocks, block, kept == 0 ? "all" : "none",
                    flag_of("ffn_dropout_block"));
    }
  });
  if (!status || count > 0) return status;
  return fail(Code::kUnsupported, "{}: this model has no feed-forward layers: leave it out", flag);
}

Status check_dropout_turns(const TrainOptions& options, int64_t steps_total) {
  if (options.dropout_pool == 0) return {};
  const int64_t turns = options.dropout_pool / options.dropout_at_once;
  if (steps_total >= turns) return {};
  return fail(Code::kInvalidArgument,
              "{} {}, {} at a time, takes {} steps to train each at all, and the run has {}; give "
              "fewer, or more at once ({})",
              flag_of("dropout_pool"), options.dropout_pool, options.dropout_at_once, turns,
              steps_total, flag_of("dropout_at_once"));
}

int64_t block_scratch_bytes(const model::Architecture& architecture, const TrainOptions& options,
                            int threads) {
  if (options.ffn_dropout == 0) return 0;
  int64_t bytes = 0;
  for_dense_parts(architecture, [&](const model::DenseMlp& dense) {
    const int64_t block = options.ffn_dropout_block;
    ops::KeptSizes sizes = {
        .parts = dense.input().outputs() / dense.size(),
        .width = dense.input().inputs(),
        .kept = model::kept_block_count(options.ffn_dropout, block, dense.size()) * block};
    // Of how many rows a range is nobody knows yet, and fewer may take more.
    for (int64_t part = 1; part <= kRangeSizes; ++part) {
      sizes.token_count = (options.micro_batch_tokens * part + kRangeSizes - 1) / kRangeSizes;
      bytes = std::max(bytes, ops::kept_thread_scratch_bytes(options.compute, sizes, threads));
    }
  });
  return CpuDevice::scratch_bytes_held(bytes);
}

model::StepDropout step_dropout(const TrainOptions& options, int64_t step, int64_t token_count) {
  model::StepDropout dropout{
      .rate = options.dropout,
      .adapter_rate = options.lora ? options.lora->dropout : 0,
      .key = derive_key(options.seed, "dropout", static_cast<uint64_t>(step)),
      .token_count = token_count};
  if (!drops_by_member(options)) return dropout;
  dropout.members = members_of_turn(options, step);
  dropout.pooled = options.dropout_pool > 0;
  dropout.block_rate = options.ffn_dropout;
  dropout.block_size = options.ffn_dropout_block;
  return dropout;
}

void add_dropout_identity(const TrainOptions& options, Json& identity) {
  // Runs without these go on from checkpoints that were made before there were any.
  if (options.dropout > 0) identity["dropout"] = options.dropout;
  if (options.ffn_dropout > 0) {
    identity["ffn_dropout"] = options.ffn_dropout;
    identity["ffn_dropout_block"] = options.ffn_dropout_block;
  }
  if (options.dropout_pool > 0) identity["dropout_pool"] = options.dropout_pool;
  if (drops_by_member(options)) identity["dropout_at_once"] = options.dropout_at_once;
}

double dropped_flops(const model::Architecture& architecture, const TrainOptions& options,
                     double token_count) {
  if (options.ffn_dropout == 0) return 0;
  double flops = 0;
  for_dense_parts(architecture, [&](const model::DenseMlp& dense) {
    const int64_t block = options.ffn_dropout_block;
    const int64_t blocks = dense.size() / block;
    const int64_t dropped =
        blocks - model::kept_block_count(options.ffn_dropout, block, dense.size());
    const double elements =
        static_cast<double>(dense.input().inputs()) * static_cast<double>(dense.input().outputs()) +
        static_cast<double>(dense.output().inputs()) *
            static_cast<double>(dense.output().outputs());
    flops +=
        2 * token_count * elements * static_cast<double>(dropped) / static_cast<double>(blocks);
  });
  return flops;
}

}  // namespace jige::train
