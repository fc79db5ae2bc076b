#include "train/row_gate.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "tensor/cpu_device.h"
#include "train/option_flags.h"
#include "train/step_flops.h"

namespace jige::train {
namespace {

// Longer than Adam's first moment remembers, which alone lets neighbouring steps agree.
constexpr float kKeep = 0.98f;
constexpr float kLossKeep = 0.95f;

void smooth(float& mean, float value, float keep) { mean = keep * mean + (1 - keep) * value; }

}  // namespace

bool may_skip_rows(const model::Architecture& architecture, const model::NamedParam& param) {
  return param.spec->by_rows && param.node > 0 && param.node != architecture.head_node();
}

namespace {

// Those of a run's matrices.
std::vector<model::NamedParam> skipped_params(const model::Architecture& architecture,
                                              const model::WeightsOptions& weights) {
  std::vector<model::NamedParam> params = model::trained_params(architecture, weights);
  std::erase_if(params, [&](const auto& param) { return !may_skip_rows(architecture, param); });
  return params;
}

}  // namespace

Status check_row_gate(const model::Architecture& architecture, const model::WeightsOptions& weights,
                      const TrainOptions& options) {
  if (!options.row_gate || !skipped_params(architecture, weights).empty()) return {};
  return fail(Code::kUnsupported, "{}: this model has no linear layers: leave it out",
              flag_of("skip_converged"));
}

double skipped_share(const model::Architecture& architecture, const model::WeightsOptions& weights,
                     const TrainOptions& options) {
  if (!options.row_gate) return 0;
  double elements = 0;
  for (const model::NamedParam& param : skipped_params(architecture, weights)) {
    elements += static_cast<double>(param.spec->shape.count());
  }
  const double context_mean = static_cast<double>(options.context) / 2;
  return options.row_gate->most * 2 * elements /
         training_flops(architecture, options, 1, context_mean);
}

RowGateMemory row_gate_memory(const model::Architecture& architecture,
                              const model::WeightsOptions& weights, const TrainOptions& options,
                              int threads) {
  if (!options.row_gate) return {};
  RowGateMemory memory;
  for (const model::NamedParam& param : skipped_params(architecture, weights)) {
    const Shape& shape = param.spec->shape;
    for (const ops::RowRange& rows : row_groups(shape[0], options.row_gate->rows)) {
      memory.own_bytes += RowGate::group_bytes();
      const int64_t bytes = ops::linear_backward_weight_thread_scratch_bytes(
          options.compute, options.micro_batch_tokens, rows.count(), shape[1], threads);
      memory.thread_scratch_bytes = std::max(memory.thread_scratch_bytes, bytes);
    }
  }
  memory.thread_scratch_bytes = CpuDevice::scratch_bytes_held(memory.thread_scratch_bytes);
  return memory;
}

std::vector<ops::RowRange> row_groups(int64_t row_count, int64_t group_rows) {
  const int64_t count = std::max<int64_t>(row_count / group_rows, 1);
  std::vector<ops::RowRange> groups;
  for (int64_t g = 0; g < count; ++g) {
    groups.push_back({g * group_rows, g + 1 < count ? (g + 1) * group_rows : row_count});
  }
  return groups;
}

RowGate::RowGate(const RowGateOptions& options, uint64_t seed, model::ModelWeights& weights)
    : options_(options), seed_(seed), weights_(&weights) {
  const auto params = weights.trainable();
  updated_.resize(params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    if (may_skip_rows(weights.architecture(), params[i])) add_matrix(i, seed);
  }
  for (const Matrix& matrix : matrices_) {
    weights_->set_gradient_rows(param_of(matrix), &matrix.computed);
    if (options_.mode == SkipMode::kFreeze) updated_[matrix.param] = &matrix.computed;
  }
}

RowGate::~RowGate() {
  for (const Matrix& matrix : matrices_) weights_->set_gradient_rows(param_of(matrix), nullptr);
}

void RowGate::add_matrix(size_t param, uint64_t seed) {
  const model::NamedParam& named = weights_->trainable()[param];
  const int64_t columns = named.value.columns();
  Matrix matrix{.param = param, .groups = {}, .drift = {}, .computed = {}};
  Rng rng(derive_key(seed, "watched weights", param));
  for (const ops::RowRange& rows : row_groups(named.value.rows(), options_.rows)) {
    Group group{.rows = rows};
    for (int64_t& element : group.watched) {
      element = rows.begin * columns +
                static_cast<int64_t>(rng.below(static_cast<uint64_t>(rows.count() * columns)));
    }
    matrix.groups.push_back(group);
  }
  matrix.drift.resize(matrix.groups.size() * 2 * kWatched);
  matrices_.push_back(std::move(matrix));
}

const model::NamedParam& RowGate::param_of(const Matrix& matrix) const {
  return weights_->trainable()[matrix.param];
}

float RowGate::value_of(const Matrix& matrix, int64_t element) const {
  return param_of(matrix).value.as<float>()[element];
}

double RowGate::skip_probability(const Matrix& matrix, size_t group) const {
  const float* const drift = &matrix.drift[group * 2 * kWatched];
  double straight = 0;
  double moved = 0;
  for (int64_t j = 0; j < kWatched; ++j) {
    straight += std::abs(drift[j]);
    moved += drift[kWatched + j];
  }
  if (moved == 0) return 0;  // nothing is known of it yet
  const double c = straight / moved;
  return std::max(options_.most * (1 - c / options_.below), 0.0);
}

bool RowGate::skips_nothing(int64_t step) const {
  if (step <= options_.warmup || (options_.refresh > 0 && step % options_.refresh == 0)) {
    return true;
  }
  return loss_[1] >= 0 && loss_[0] > loss_[1] * (1 + static_cast<float>(options_.rise));
}

void RowGate::start_step(int64_t step) {
  const bool all = skips_nothing(step);
  Rng rng(derive_key(seed_, "skipped rows", static_cast<uint64_t>(step)));
  double elements = 0;
  use_ = {};
  for (Matrix& matrix : matrices_) {
    const auto columns = static_cast<double>(param_of(matrix).value.columns());
    matrix.computed.clear();
    for (size_t g = 0; g < matrix.groups.size(); ++g) {
      Group& group = matrix.groups[g];
      group.skip = all ? 0 : skip_probability(matrix, g);
      group.computed = rng.uniform() >= group.skip;
      if (group.computed) ops::append_rows(matrix.computed, group.rows);
      const double count = columns * static_cast<double>(group.rows.count());
      elements += count;
      if (!group.computed) use_.skipped_elements += count;
      for (int64_t j = 0; j < kWatched; ++j) {
        group.before[j] = value_of(matrix, group.watched[j]);
      }
    }
  }
  if (elements > 0) use_.share = 1 - use_.skipped_elements / elements;
}

void RowGate::scale_gradients(Stream& stream) {
  if (options_.mode != SkipMode::kScale) return;
  for (const Matrix& matrix : matrices_) {
    for (const Group& group : matrix.groups) {
      if (!group.computed || group.skip == 0) continue;
      const TensorView rows = param_of(matrix).grad.row_range(group.rows.begin, group.rows.end);
      ops::scale(stream, rows, rows, static_cast<float>(1 / (1 - group.skip)));
    }
  }
}

void RowGate::end_step(double loss, bool applied) {
  if (!applied) return;
  if (loss_[0] < 0) loss_[0] = loss_[1] = static_cast<float>(loss);
  smooth(loss_[0], static_cast<float>(loss), kLossKeep);
  loss_[1] = std::min(loss_[0], loss_[1]);
  for (Matrix& matrix : matrices_) {
    for (size_t g = 0; g < matrix.groups.size(); ++g) {
      const Group& group = matrix.groups[g];
      if (!group.computed) continue;
      float* const drift = &matrix.drift[g * 2 * kWatched];
      for (int64_t j = 0; j < kWatched; ++j) {
        const float moved = value_of(matrix, group.watched[j]) - group.before[j];
        smooth(drift[j], moved, kKeep);
        smooth(drift[kWatched + j], std::abs(moved), kKeep);
      }
    }
  }
}

int64_t RowGate::group_bytes() {
  return static_cast<int64_t>(sizeof(Group) + sizeof(ops::RowRange) + 2 * kWatched * sizeof(float));
}

std::vector<RowGate::State> RowGate::state() {
  std::vector<State> all = {{"loss", TensorView::of(loss_, DType::kF32, Shape{2})}};
  for (Matrix& matrix : matrices_) {
    const Shape shape{std::ssize(matrix.groups), 2 * kWatched};
    all.push_back(
        {param_of(matrix).spec->name, TensorView::of(matrix.drift.data(), DType::kF32, shape)});
  }
  return all;
}

Status RowGate::check_state(const std::string& where) const {
  const auto bad = [&](const std::string& name) {
    return fail(Code::kCorrupt, "{}: what is known of the moves of {} is no number, or below 0",
                where, name);
  };
  if (!std::isfinite(loss_[0]) || !std::isfinite(loss_[1])) return bad("the loss");
  for (const Matrix& matrix : matrices_) {
    for (size_t i = 0; i < matrix.drift.size(); ++i) {
      const bool absolute = i % (2 * kWatched) >= kWatched;
      if (!std::isfinite(matrix.drift[i]) || (absolute && matrix.drift[i] < 0)) {
        return bad(param_of(matrix).spec->name);
      }
    }
  }
  return {};
}

}  // namespace jige::train
