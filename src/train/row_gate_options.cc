#include "train/row_gate_options.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "train/option_flags.h"
#include "train/options.h"

namespace jige::train {
namespace {

constexpr std::string_view kModeNames[] = {"freeze", "scale"};
constexpr int64_t kGroupStep = 32;  // rows of which whole blocks are packed (ops/adamw.h)
constexpr int64_t kGroupRowsMax = 1 << 16;

template <typename T>
Status require_skip(bool holds, std::string_view option, const T& value, std::string_view range) {
  if (holds) return {};
  return fail(Code::kInvalidArgument, "{} is {}, but must be {}", flag_of(option), value, range);
}

}  // namespace

std::vector<std::string> skip_mode_names() {
  return {std::begin(kModeNames), std::end(kModeNames)};
}

Result<SkipMode> parse_skip_mode(std::string_view name) {
  for (size_t i = 0; i < std::size(kModeNames); ++i) {
    if (name == kModeNames[i]) return static_cast<SkipMode>(i);
  }
  return fail(Code::kInvalidArgument, "\"{}\" is no way to skip; there are {}", name,
              fmt::join(kModeNames, ", "));
}

Json identity_json(const RowGateOptions& options) {
  return {{"most", options.most},     {"mode", kModeNames[static_cast<size_t>(options.mode)]},
          {"below", options.below},   {"rows", options.rows},
          {"warmup", options.warmup}, {"refresh", options.refresh},
          {"rise", options.rise}};
}

Status validate_row_gate(const TrainOptions& options) {
  if (!options.row_gate) return {};
  const RowGateOptions& gate = *options.row_gate;
  JIGE_DO(require_skip(gate.most > 0 && gate.most < 1, "skip_converged.most", gate.most,
                       "above 0 and below 1"));
  JIGE_DO(require_skip(gate.below > 0 && std::isfinite(gate.below), "skip_converged.below",
                       gate.below, "above 0"));
  JIGE_DO(require_skip(
      gate.rows >= kGroupStep && gate.rows <= kGroupRowsMax && gate.rows % kGroupStep == 0,
      "skip_converged.rows", gate.rows, "a multiple of 32 up to 65536"));
  JIGE_DO(require_skip(gate.warmup >= 0, "skip_converged.warmup", gate.warmup, "0 or more"));
  JIGE_DO(
      require_skip(gate.refresh >= 0, "skip_converged.refresh", gate.refresh, "0 (never) or more"));
  JIGE_DO(require_skip(gate.rise > 0 && std::isfinite(gate.rise), "skip_converged.rise", gate.rise,
                       "above 0"));
  const bool narrow = options.optimizer.moments != ops::MomentFormat::kF32;
  const std::string other = options.on_gpu()          ? "--device cuda"
                            : options.pipeline        ? "a pipeline of devices (--devices, --plan)"
                            : options.ranks           ? std::string(flag_of("ranks"))
                            : options.lora            ? std::string(flag_of("lora"))
                            : options.dpo             ? std::string(flag_of("dpo"))
                            : options.grpo            ? std::string(flag_of("grpo"))
                            : options.ffn_dropout > 0 ? std::string(flag_of("ffn_dropout"))
                            : narrow ? fmt::format("{} q8", flag_of("optimizer.moments"))
                                     : "";
  if (other.empty()) return {};
  return fail(Code::kUnsupported, "{} with {} is not supported yet: give one of them",
              flag_of("skip_converged"), other);
}

}  // namespace jige::train
