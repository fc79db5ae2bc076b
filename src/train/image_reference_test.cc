// Training with images against PyTorch (tests/tools/record_image_training.py): gradients of the
// first step and ten losses, of all weights of the language model and of an adapter.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>

#include "formats/image_model_names.h"
#include "formats/safetensors.h"
#include "formats/tensor_folder.h"
#include "model/weights.h"
#include "tensor/cpu_device.h"
#include "train/executor.h"
#include "train/image_rows.h"
#include "train/image_test_support.h"
#include "train/optimizer.h"

namespace jige::train {
namespace {

constexpr int64_t kTokens = 160;

template <typename T>
T unwrapped(Result<T> result) {
  if (!result) ADD_FAILURE() << result.error().message;
  return std::move(result.value());
}

// Documents with images, as the recording has them.
struct ImageDocuments {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<uint8_t>> learned;
  std::vector<std::vector<CorpusImage>> images;
  int64_t learned_count = 0;
};

class ImageBench {
 public:
  ImageBench(const std::string& name, const std::optional<formats::LoraConfig>& lora)
      : device_({.thread_count = 2}), arena_(device_, "test"), folder_(image_model(name)) {
    stream_ = *device_.make_stream();
    recorded_.emplace(
        unwrapped(formats::open_safetensors(kFixtures + "train/" + name + "-images.safetensors")));
    pictures_.emplace(unwrapped(formats::open_safetensors(folder_ + "/expected.safetensors")));
    architecture_ =
        unwrapped(model::Architecture::create(*formats::load_model_config(folder_), lora));
    weights_.emplace(unwrapped(model::ModelWeights::create(
        arena_, *architecture_, {.use = model::PackFor::kTraining, .position_count = kTokens})));
    const auto files = unwrapped(formats::TensorFolder::open(folder_));
    EXPECT_TRUE(model::load_weights(*weights_, *stream_, files));
    optimizer_.emplace(unwrapped(
        Optimizer::create(arena_, weights_->trainable(),
                          {.beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip_norm = 0})));
    executor_.emplace(unwrapped(Executor::create(arena_, *weights_, kTokens)));
    images_ = unwrapped(ImageRows::load({.folder = folder_,
                                         .config = *unwrapped(formats::load_image_config(folder_)),
                                         .context = kTokens,
                                         .micro_batch_tokens = kTokens},
                                        *architecture_, device_));
    read_documents();
  }

  TensorView recorded(const std::string& name) const { return unwrapped(recorded_->view(name)); }
  bool has(const std::string& name) const { return recorded_->find(name) != nullptr; }
  std::span<const model::NamedParam> params() const { return weights_->trainable(); }
  size_t document_count() const { return documents_.tokens.size(); }

  // Sets adapters as they were recorded, and renews what depends on them.
  void set_adapters() {
    for (const model::NamedParam& param : params()) {
      const TensorView stored = recorded("lora." + peft_name(param.spec->name));
      std::copy_n(stored.as<float>(), stored.count(), param.value.as<float>());
    }
    repack();
  }
  // Behind a change of values.
  void repack() {
    weights_->pack(*stream_);
    stream_->synchronize();
  }
  // The name with what stands beside images.
  static std::string peft_name(const std::string& name) {
    const std::string begin = "base_model.model.model.";
    return begin + "language_model." + name.substr(begin.size());
  }

  // The gradient of the mean loss over documents, those of each list in one micro-batch.
  double gradients(const std::vector<std::vector<size_t>>& micro_batches) {
    const auto tasks = one_device_tasks(architecture_->node_count(), 1);
    const auto weight = static_cast<float>(1.0 / static_cast<double>(documents_.learned_count));
    ExactSum loss;
    weights_->zero_gradients(*stream_);
    for (const auto& micro_batch : micro_batches) {
      load(micro_batch, weight);
      executor_->run(*stream_, tasks);
      executor_->add_losses(*stream_, loss);
    }
    weights_->finish_gradients(*stream_);
    stream_->synchronize();
    return loss.value() / static_cast<double>(documents_.learned_count);
  }

  double update() {
    const auto report = optimizer_->step(*stream_, {.learning_rate = 1e-2});
    weights_->pack(*stream_);
    return report.grad_norm;
  }

  double evaluate() {
    ExactSum loss;
    for (size_t d = 0; d < document_count(); ++d) {
      load({d}, 1);
      executor_->evaluate(*stream_);
      executor_->add_losses(*stream_, loss);
    }
    return loss.value() / static_cast<double>(documents_.learned_count);
  }

 private:
  void read_documents() {
    const auto config = *unwrapped(formats::load_image_config(folder_));
    for (int d = 0; has("tokens." + std::to_string(d)); ++d) {
      const std::string at = "." + std::to_string(d);
      const TensorView tokens = recorded("tokens" + at);
      const auto* ids = tokens.as<int32_t>();
      const auto* learned = recorded("learned" + at).as<uint8_t>();
      documents_.tokens.emplace_back(ids, ids + tokens.count());
      documents_.learned.emplace_back(learned, learned + tokens.count());
      for (int64_t i = 1; i < tokens.count(); ++i) documents_.learned_count += learned[i];
      documents_.images.emplace_back();
      const TensorView numbers = recorded("images" + at);
      int64_t token = 0;
      for (int64_t i = 0; i < numbers.count(); ++i) {
        CorpusImage image = stored_picture(numbers.as<int32_t>()[i]);
        while (ids[token] != config.placeholder_id) ++token;
        const auto placed =
            formats::image_tokens(config, formats::image_layout(config, image.width, image.height));
        image.token = token - (std::ranges::find(placed, formats::kImageRow) - placed.begin());
        image.count = static_cast<int32_t>(placed.size());
        token = image.token + image.count;
        documents_.images.back().push_back(image);
      }
      std::ranges::replace(documents_.tokens.back(), config.placeholder_id, config.token_of_row());
    }
  }

  CorpusImage stored_picture(int32_t number) {
    const std::string name = std::to_string(number) + ".png";
    const TensorView pixels = unwrapped(pictures_->view("image." + std::to_string(number)));
    const auto* bytes = pixels.as<uint8_t>();
    CorpusImage image{.width = static_cast<int32_t>(pixels.shape[1]),
                      .height = static_cast<int32_t>(pixels.shape[0])};
    files_.write(name, png_of({image.width, image.height, {bytes, bytes + pixels.count()}}));
    EXPECT_TRUE(read_image_source(name, files_.path(), "test", image.source));
    return image;
  }

  void load(const std::vector<size_t>& documents, float weight) {
    HostBatch batch;
    const std::string no_path;
    for (const size_t d : documents) {
      const auto& ids = documents_.tokens[d];
      const auto begin = static_cast<int32_t>(batch.tokens.size());
      const auto count = static_cast<int32_t>(ids.size()) - 1;
      for (const CorpusImage& image : documents_.images[d]) {
        batch.images.push_back({.row = begin + static_cast<int32_t>(image.token),
                                .sequence = static_cast<int32_t>(batch.counts.size()),
                                .image = &image,
                                .path = &no_path});
      }
      for (int32_t i = 0; i < count; ++i) {
        const auto next = static_cast<size_t>(i) + 1;
        batch.tokens.push_back(ids[static_cast<size_t>(i)]);
        batch.positions.push_back(i);
        batch.targets.push_back(documents_.learned[d][next] ? ids[next] : -1);
      }
      batch.counts.push_back(count);
    }
    const Status read = images_->read(batch, weights_->block(0).rope_table);
    ASSERT_TRUE(read) << read.error().message;
    executor_->load(*stream_, batch, {.loss_weight = weight});
    stream_->synchronize();
  }

  CpuDevice device_;
  Arena arena_;
  std::string folder_;
  TestFolder files_;
  std::unique_ptr<Stream> stream_;
  std::optional<formats::TensorFile> recorded_, pictures_;
  std::unique_ptr<const model::Architecture> architecture_;
  std::optional<model::ModelWeights> weights_;
  std::optional<Optimizer> optimizer_;
  std::optional<Executor> executor_;
  std::unique_ptr<ImageRows> images_;
  ImageDocuments documents_;
};

class ImageReference : public testing::TestWithParam<const char*> {};

void expect_recorded_steps(ImageBench& bench, const std::string& prefix) {
  const TensorView losses = bench.recorded(prefix + "losses");
  const TensorView norms = bench.recorded(prefix + "norms");
  const std::vector<std::vector<size_t>> together = {{0, 1, 2}};
  for (int64_t step = 0; step < losses.count(); ++step) {
    const float expected = losses.as<float>()[step];
    EXPECT_NEAR(bench.gradients(together), expected, 2e-3 * (0.1 + expected)) << step;
    const float norm = norms.as<float>()[step];
    EXPECT_NEAR(bench.update(), norm, 5e-3 * (0.1 + norm)) << step;
  }
}

// The recorded gradients of the first step, by the parameters' names there.
int expect_recorded_gradients(
    const ImageBench& bench, const std::string& prefix,
    const std::function<std::vector<std::string>(const std::string&)>& names_of) {
  int checked = 0;
  for (const model::NamedParam& param : bench.params()) {
    for (const std::string& name : names_of(param.spec->name)) {
      if (!bench.has(prefix + name)) continue;
      const TensorView expected = bench.recorded(prefix + name);
      EXPECT_EQ(expected.count(), param.grad.count()) << name;
      for (int64_t i = 0; i < expected.count(); ++i) {
        const float value = expected.as<float>()[i];
        EXPECT_NEAR(param.grad.as<float>()[i], value, 2e-5 + 2e-4 * std::abs(value))
            << name << " " << i;
      }
      ++checked;
    }
  }
  return checked;
}

TEST_P(ImageReference, AllWeightsLearnAsInPyTorch) {
  ImageBench bench(GetParam(), std::nullopt);
  bench.gradients({{0, 1, 2}});
  const int checked = expect_recorded_gradients(
      bench, "grad.", [](const std::string& name) { return formats::names_beside_images(name); });
  EXPECT_GE(checked, 6);
  expect_recorded_steps(bench, "");
}

TEST_P(ImageReference, AnAdapterLearnsAsInPeft) {
  ImageBench bench(GetParam(), formats::LoraConfig{.rank = 2, .alpha = 4});
  bench.set_adapters();
  bench.gradients({{0, 1, 2}});
  const int checked = expect_recorded_gradients(bench, "lora_grad.", [](const std::string& name) {
    return std::vector{ImageBench::peft_name(name)};
  });
  EXPECT_EQ(checked, 14);  // of a layer
  expect_recorded_steps(bench, "lora_");
}

// The same bits, whatever runs together.
TEST_P(ImageReference, GradientsDoNotDependOnPacking) {
  ImageBench bench(GetParam(), std::nullopt);
  const auto bits_of = [&](const std::vector<std::vector<size_t>>& micro_batches) {
    std::vector<float> bits{static_cast<float>(bench.gradients(micro_batches))};
    for (const model::NamedParam& param : bench.params()) {
      const auto* grad = param.grad.as<float>();
      bits.insert(bits.end(), grad, grad + param.grad.count());
    }
    return bits;
  };
  const std::vector<float> together = bits_of({{0, 1, 2}});
  EXPECT_EQ(bits_of({{0}, {1}, {2}}), together);
  EXPECT_EQ(bits_of({{0, 1}, {2}}), together);
}

// A slope of the loss that is measured, in the direction of the gradient of some matrix.
TEST_P(ImageReference, GradientsAreSlopes) {
  ImageBench bench(GetParam(), formats::LoraConfig{.rank = 2, .alpha = 4});
  bench.set_adapters();
  bench.gradients({{0, 1, 2}});
  for (const size_t chosen : {size_t{1}, bench.params().size() - 2}) {
    const model::NamedParam& param = bench.params()[chosen];
    const std::vector<float> grad(param.grad.as<float>(),
                                  param.grad.as<float>() + param.grad.count());
    const std::vector<float> value(param.value.as<float>(),
                                   param.value.as<float>() + param.value.count());
    double square = 0;
    for (const float one : grad) square += double{one} * one;
    const double step = 1e-2 / std::sqrt(square);
    double loss[2] = {};
    for (const int side : {0, 1}) {
      const double by = side == 0 ? -step : step;
      for (size_t i = 0; i < grad.size(); ++i) {
        param.value.as<float>()[i] = static_cast<float>(value[i] + by * grad[i]);
      }
      bench.repack();
      loss[side] = bench.evaluate();
    }
    std::copy(value.begin(), value.end(), param.value.as<float>());
    bench.repack();
    EXPECT_NEAR((loss[1] - loss[0]) / (2 * step), square, 0.01 * square + 1e-4) << param.spec->name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ImageReference,
                         testing::Values("gemma3", "gemma4", "gemma4_clipped", "qwen2_5_vl_new",
                                         "qwen3_vl"),
                         [](const auto& chosen) { return std::string(chosen.param); });

}  // namespace
}  // namespace jige::train
