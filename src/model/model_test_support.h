// What the tests of this folder share: folders of fixtures and a plain runner of training steps
// over a chain of blocks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "base/test_path.h"
#include "model/architecture.h"
#include "model/init.h"
#include "model/memory_plan.h"
#include "model/tiny_config_test_support.h"
#include "model/weights.h"
#include "tensor/arena.h"
#include "tensor/cpu_device.h"

namespace jige::model::testing {

inline std::string fixture(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/" + name;
}

// A folder that is removed at the end of the test.
class TempFolder {
 public:
  TempFolder() {
    path_ = temporary_pattern(test_root() + "jige_model_");
    if (!mkdtemp(path_.data())) ADD_FAILURE() << "no folder at " << path_;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Unwraps a Result that the test relies on.
template <typename T>
T value_of(Result<T> result) {
  if (!result) ADD_FAILURE() << result.error().message;
  return std::move(result.value());
}
inline void succeed(const Status& status) {
  ASSERT_TRUE(status.has_value()) << status.error().message;
}

// The configuration of a fixture, read once.
inline const formats::ModelConfig& fixture_config(const std::string& name) {
  static std::map<std::string, formats::ModelConfig> read;
  const auto at = read.find(name);
  if (at != read.end()) return at->second;
  return read[name] = value_of(formats::load_model_config(fixture(name)));
}

using Sequence = std::vector<int32_t>;

inline std::vector<Sequence> random_sequences(const std::vector<int>& lengths, int64_t vocab_size,
                                              uint64_t seed) {
  Rng rng(derive_key(seed, "test sequences"));
  std::vector<Sequence> sequences;
  for (const int length : lengths) {
    sequences.emplace_back();
    for (int i = 0; i < length; ++i) {
      sequences.back().push_back(
          static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab_size))));
    }
  }
  return sequences;
}

// Normal numbers of a deviation of 0.3 for a parameter. They depend on seed, name and place alone:
// tests draw them once.
inline std::span<const float> normal_numbers(const ParamSpec& param, uint64_t seed) {
  static std::map<std::pair<uint64_t, std::string>, std::vector<float>> drawn;
  std::vector<float>& numbers = drawn[{seed, param.name}];
  const auto count = static_cast<size_t>(param.shape.count());
  if (numbers.size() < count) {
    ParamSpec spec = param;
    spec.init = InitKind::kNormal;
    spec.init_std = 0.3;
    numbers.resize(count);
    fill_initial(numbers, spec, seed);
  }
  return std::span(numbers).first(count);
}

// A model in training on a CPU device, with the buffers of memory_plan.h.
class Trainee {
 public:
  struct Options {
    DType compute = DType::kF32;
    int thread_count = 1;
    bool queued_streams = false;
    int64_t tokens_max = 128;
    bool fused_head = true;
    StepDropout dropout;
    bool stored_gradients = false;  // by the first micro-batch, see GradientUse
    ops::WeightFormat format = ops::WeightFormat::kCompute;  // of a base under adapters
    float balance = 0;  // of the loss for unequal use of experts, which mean_loss() has then, too
  };

  Trainee(const formats::ModelConfig& config, const Options& options,
          const std::optional<formats::LoraConfig>& lora = {})
      : options_(options),
        device_({.thread_count = options.thread_count, .queued_streams = options.queued_streams}),
        arena_(device_, "test"),
        architecture_(value_of(Architecture::create(config, lora))),
        stream_(value_of(device_.make_stream())) {
    const WeightsOptions weights_options{
        .compute = options.compute, .position_count = config.context_max, .format = options.format};
    weights_.emplace(value_of(ModelWeights::create(arena_, *architecture_, weights_options)));
    const TrainingBuffers sizes =
        training_buffers(*architecture_, options.compute, options.tokens_max);
    const auto bytes = [&](int64_t count) {
      return count > 0 ? value_of(arena_.make(DType::kU8, Shape{count})) : Tensor();
    };
    for (const int64_t count : sizes.saved_bytes) saved_.push_back(bytes(count));
    for (int64_t i = 0; i <= sizes.stream_count; ++i) {
      streams_.push_back(bytes(sizes.stream_bytes));
    }
    pending_ = bytes(sizes.pending_bytes);
    workspace_ = bytes(sizes.workspace_bytes);
    for (Tensor* tensor : {&tokens_, &positions_, &targets_}) {
      *tensor = value_of(arena_.make(DType::kI32, Shape{options.tokens_max}));
    }
    for (Tensor* tensor : {&loss_weights_, &losses_}) {
      *tensor = value_of(arena_.make(DType::kF32, Shape{options.tokens_max}));
    }
  }

  ModelWeights& weights() { return *weights_; }
  const Architecture& architecture() const { return *architecture_; }
  Stream& stream() { return *stream_; }
  Arena& arena() { return arena_; }
  int64_t scratch_bytes() const { return device_.scratch_bytes(); }

  // Values in which every parameter matters, unlike those of a fresh model.
  void randomise(uint64_t seed) {
    for (const NamedParam& param : weights_->trainable()) {
      const ParamSpec& spec = *param.spec;
      const std::span values(param.value.as<float>(), static_cast<size_t>(param.value.count()));
      if (spec.init == InitKind::kConstant && spec.fixed) {  // what it is everywhere
        fill_initial(values, spec, seed);
        continue;
      }
      const float mean = spec.init == InitKind::kOne ? 1.0f : 0.0f;
      std::ranges::transform(normal_numbers(spec, seed), values.begin(),
                             [&](float number) { return number + mean; });
    }
    weights_->pack(*stream_);
  }

  // Fills the batch; each sequence's last token is a target only. Every target weighs `weight`.
  void put(const std::vector<Sequence>& sequences, float weight, int64_t token_begin = 0) {
    batch_.sequences.clear();
    batch_.dropout = options_.dropout;
    batch_.dropout.token_begin = token_begin;
    batch_.balance_weight = options_.balance * weight;
    int64_t row = 0;
    for (const Sequence& sequence : sequences) {
      const auto count = static_cast<int32_t>(sequence.size()) - 1;
      batch_.sequences.push_back({.row_begin = static_cast<int32_t>(row), .row_count = count});
      for (int32_t i = 0; i < count; ++i, ++row) {
        tokens_.view().as<int32_t>()[row] = sequence[static_cast<size_t>(i)];
        positions_.view().as<int32_t>()[row] = i;
        targets_.view().as<int32_t>()[row] = sequence[static_cast<size_t>(i) + 1];
        loss_weights_.view().as<float>()[row] = weight;
      }
    }
    batch_.tokens = tokens_.view().row_range(0, row);
    batch_.positions = positions_.view().row_range(0, row);
    batch_.targets = targets_.view().row_range(0, row);
    batch_.loss_weights = loss_weights_.view().row_range(0, row);
  }

  // Losses of the batch's rows, F only. From a later node on where it alone changed since the same
  // sequences were here.
  std::vector<float> losses(const std::vector<Sequence>& sequences, size_t first_node = 0) {
    put(sequences, 1.0f);
    run_body(first_node);
    const size_t node = architecture_->head_node();
    architecture_->block(node).forward(context(), weights_->block(node), batch_,
                                       stream_view(node - 1), loss_view(), memory(node));
    stream_->synchronize();
    return loss_values();
  }

  double mean_loss(const std::vector<Sequence>& sequences, size_t first_node = 0) {
    double sum = 0;
    const std::vector<float> values = losses(sequences, options_.balance > 0 ? 0 : first_node);
    for (const float value : values) sum += value;
    if (options_.balance > 0) sum += options_.balance * balance_sum();
    return sum / static_cast<double>(values.size());
  }

  // Of all tokens and layers, which X makes. REQUIRES: losses() ran.
  double balance_sum() {
    double sum = 0;
    const TensorView gradient = stream_view(architecture_->head_node());
    stream_->fill_zero(gradient.data, dtype_bytes(DType::kF32, gradient.count()));
    for (size_t node = architecture_->head_node(); node-- > 0;) {
      const Block& block = architecture_->block(node);
      block.backward_input(context(), weights_->block(node), batch_,
                           node > 0 ? stream_view(node - 1) : TensorView{}, gradient, gradient,
                           memory(node));
      stream_->synchronize();
      if (block.expert_count() == 0) continue;
      const TensorView losses =
          block.expert_record(memory(node).saved, batch_.token_count(), options_.compute).balance;
      for (int64_t t = 0; t < losses.count(); ++t) sum += losses.as<float>()[t];
    }
    return sum;
  }

  // F, X and W of one micro-batch; gradients are added to. Returns the losses.
  std::vector<float> add_gradients(const std::vector<Sequence>& sequences, float weight,
                                   int64_t token_begin = 0) {
    put(sequences, weight, token_begin);
    run_body();
    const size_t last = architecture_->head_node();
    const TensorView gradient = stream_view(last);
    const Head& head = architecture_->head();
    const BlockWeights& head_weights = weights_->block(last);
    if (options_.fused_head) {
      head.forward_backward(context(), head_weights, batch_, stream_view(last - 1), loss_view(),
                            gradient, memory(last));
    } else {
      head.forward(context(), head_weights, batch_, stream_view(last - 1), loss_view(),
                   memory(last));
      head.backward_input(context(), head_weights, batch_, stream_view(last - 1), {}, gradient,
                          memory(last));
      head.backward_weight(context(), head_weights, batch_, stream_view(last - 1), memory(last));
    }
    for (size_t node = last; node-- > 0;) {
      const TensorView src = node > 0 ? stream_view(node - 1) : TensorView{};
      const Block& block = architecture_->block(node);
      block.backward_input(context(), weights_->block(node), batch_, src, gradient, gradient,
                           memory(node));
      block.backward_weight(context(), weights_->block(node), batch_, src, memory(node));
    }
    stream_->synchronize();
    return loss_values();
  }

  // The gradient of the mean loss, micro-batch by micro-batch.
  void gradients(const std::vector<std::vector<Sequence>>& micro_batches) {
    size_t targets = 0;
    for (const auto& sequences : micro_batches) {
      for (const Sequence& sequence : sequences) targets += sequence.size() - 1;
    }
    if (options_.stored_gradients) {
      weights_->start_gradients(*stream_);
      gradient_use_ = GradientUse::kStore;
    } else {
      weights_->zero_gradients(*stream_);
    }
    int64_t token_begin = 0;
    for (const auto& sequences : micro_batches) {
      add_gradients(sequences, 1.0f / static_cast<float>(targets), token_begin);
      gradient_use_ = GradientUse::kAdd;
      token_begin += batch_.token_count();
    }
    weights_->finish_gradients(*stream_);
    stream_->synchronize();
  }

  // Logits of every row of the last batch that was run, [T, V].
  std::vector<float> logits() {
    const int64_t rows = batch_.token_count();
    const size_t node = architecture_->head_node();
    Tensor out =
        value_of(arena_.make(DType::kF32, Shape{rows, architecture_->config().vocab_size}));
    architecture_->head().logits(context(), weights_->block(node), stream_view(node - 1),
                                 out.view());
    stream_->synchronize();
    const float* data = out.view().as<float>();
    return {data, data + out.view().count()};
  }

 private:
  BlockContext context() {
    return {.stream = *stream_,
            .compute = options_.compute,
            .workspace = workspace_.view(),
            .gradients = gradient_use_};
  }
  BlockMemory memory(size_t node) {
    return {.saved = saved_[node].view(), .pending = pending_.view()};
  }
  TensorView stream_view(size_t index) {
    return TensorView::of(streams_[index].view().data, DType::kF32,
                          Shape{batch_.token_count(), architecture_->stream_columns()});
  }
  TensorView loss_view() { return losses_.view().row_range(0, batch_.token_count()); }
  std::vector<float> loss_values() {
    const float* data = losses_.view().as<float>();
    return {data, data + batch_.token_count()};
  }
  void run_body(size_t first_node = 0) {
    for (size_t node = first_node; node < architecture_->head_node(); ++node) {
      const TensorView src = node > 0 ? stream_view(node - 1) : TensorView{};
      architecture_->block(node).forward(context(), weights_->block(node), batch_, src,
                                         stream_view(node), memory(node));
    }
  }

  Options options_;
  CpuDevice device_;
  Arena arena_;
  std::unique_ptr<const Architecture> architecture_;
  std::unique_ptr<Stream> stream_;
  std::optional<ModelWeights> weights_;
  std::vector<Tensor> saved_, streams_;
  Tensor pending_, workspace_, tokens_, positions_, targets_, loss_weights_, losses_;
  Batch batch_;
  GradientUse gradient_use_ = GradientUse::kAdd;
};

// What changes the values of one frozen parameter before they are packed.
using ChangeValues = std::function<void(size_t node, const ParamSpec&, std::vector<float>&)>;

// Gives the frozen base under adapters random values. It has no masters: they are packed through a
// source of their own.
inline void fill_base(Trainee& trainee, uint64_t seed, const ChangeValues& change = {}) {
  const Architecture& architecture = trainee.architecture();
  for (size_t node = 0; node < architecture.node_count(); ++node) {
    const auto specs = architecture.block(node).params();
    BlockWeights source = trainee.weights().block(node);
    std::vector<std::vector<float>> values(specs.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].adapter) continue;
      const ParamSpec& spec = specs[i];
      if (spec.init == InitKind::kNormal) {
        const std::span<const float> numbers = normal_numbers(spec, seed);
        values[i].assign(numbers.begin(), numbers.end());
      } else {
        values[i].resize(static_cast<size_t>(spec.shape.count()));
        fill_initial(values[i], spec, seed);
      }
      if (change) change(node, spec, values[i]);
      TensorView& value = source.params[i].value;
      if (value) {
        std::copy(values[i].begin(), values[i].end(), value.as<float>());
      } else {
        value = TensorView::of(values[i].data(), DType::kF32, spec.shape);
      }
    }
    const WeightsOptions& options = trainee.weights().options();
    architecture.block(node).pack(trainee.stream(), source, options.compute, options.use);
    trainee.stream().synchronize();
  }
}

// All gradients one behind the other.
inline std::vector<float> flat_gradients(Trainee& trainee) {
  std::vector<float> flat;
  for (const NamedParam& param : trainee.weights().trainable()) {
    const float* data = param.grad.as<float>();
    flat.insert(flat.end(), data, data + param.grad.count());
  }
  return flat;
}

}  // namespace jige::model::testing
