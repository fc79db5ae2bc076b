// Whole models whose folders hold matrices in four bits, as q8 and q4 keep them: however a family
// brings matrices together, what is computed is that of the decoded numbers.
#include <gtest/gtest.h>

#include <deque>
#include <numeric>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/safetensors_writer.h"
#include "model/inference.h"
#include "model/model_test_support.h"

namespace jige::model {
namespace {

using formats::Family;
using ops::WeightFormat;
using testing::other_type;
using testing::TempFolder;
using testing::Trainee;
using testing::value_of;

constexpr WeightFormat kKept[] = {WeightFormat::kQ8, WeightFormat::kQ4};

// A folder of random numbers, whose matrices but tables and routers are in four bits with a scale
// for each row.
class PackedFolder {
 public:
  PackedFolder(const Architecture& architecture, const std::string& path, uint64_t seed)
      : rng_(derive_key(seed, "folder")) {
    for (size_t node = 0; node < architecture.node_count(); ++node) {
      for (const ParamSpec& spec : architecture.block(node).params()) {
        const std::string name = Architecture::stored_names(spec).front();
        const bool plain =
            !spec.packed || spec.shape.rank() != 2 ||
            (name.ends_with("gate.weight") && !name.ends_with("per_layer_input_gate.weight"));
        plain ? add_plain(name, spec, seed) : add_packed(name, spec.shape);
      }
    }
    testing::succeed(make_folders(path));
    value_of(formats::write_safetensors(path + "/model.safetensors", sources_));
  }

 private:
  void add(const std::string& name, DType dtype, const Shape& shape, std::vector<std::byte> bytes) {
    memory_.push_back(std::move(bytes));
    sources_.push_back(
        formats::TensorSource::of(name, TensorView::of(memory_.back().data(), dtype, shape)));
  }

  void add_plain(const std::string& name, ParamSpec spec, uint64_t seed) {
    std::vector<float> values(static_cast<size_t>(spec.shape.count()));
    if (spec.init == InitKind::kNormal) spec.init_std = 0.3;
    fill_initial(values, spec, seed);
    std::vector<std::byte> bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    add(name, DType::kF32, spec.stored_shape(), std::move(bytes));
  }

  void add_packed(const std::string& name, const Shape& shape) {
    const std::string module = name.substr(0, name.size() - std::string(".weight").size());
    const int64_t words = (shape[1] + 7) / 8;
    std::vector<std::byte> codes(static_cast<size_t>(shape[0] * words * 4));
    for (std::byte& byte : codes) byte = static_cast<std::byte>(rng_.next_u32());
    std::vector<std::byte> scales, sizes(8);
    for (int64_t row = 0; row < shape[0]; ++row) {
      const BFloat16 scale = to_bfloat16(0.03f + 0.001f * static_cast<float>(rng_.below(60)));
      scales.push_back(static_cast<std::byte>(scale.bits));
      scales.push_back(static_cast<std::byte>(scale.bits >> 8));
    }
    const int32_t dims[] = {static_cast<int32_t>(shape[0]), static_cast<int32_t>(shape[1])};
    std::memcpy(sizes.data(), dims, sizeof dims);
    add(module + ".weight_packed", DType::kI32, Shape{shape[0], words}, std::move(codes));
    add(module + ".weight_scale", DType::kBF16, Shape{shape[0], 1}, std::move(scales));
    add(module + ".weight_shape", DType::kI32, Shape{2}, std::move(sizes));
  }

  Rng rng_;
  std::deque<std::vector<std::byte>> memory_;
  std::vector<formats::TensorSource> sources_;
};

formats::ModelConfig packed_config(Family family) {
  formats::ModelConfig config = testing::tiny_config(family);
  config.tied_embeddings = false;
  const char* text = R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
      "config_groups": {"group_0": {"targets": ["Linear"], "weights":
          {"num_bits": 4, "type": "int", "symmetric": true, "strategy": "channel"}}}})";
  config.quantised =
      value_of(formats::parse_quantised_scheme(value_of(parse_json(text, "config")), "config"));
  return config;
}

// Families have f32 and bf16 in turn, and q8 and q4.
TEST(QuantisedKept, TrainsAdaptersOnTheNumbersThatAreDecoded) {
  const formats::LoraConfig adapter = {.rank = 3, .alpha = 5};
  int compared = 0;
  DType compute = DType::kF32;
  for (const Family family : testing::all_families()) {
    if (family == Family::kGpt2 || family == Family::kGptOss) continue;  // not read in these forms
    SCOPED_TRACE(std::string(formats::family_name(family)));
    const TempFolder temp;
    const formats::ModelConfig config = packed_config(family);
    const auto model = value_of(Architecture::create(config));
    const PackedFolder folder(*model, temp / "model", 41);
    const auto files = value_of(formats::TensorFolder::open(temp / "model"));
    const auto sequences = testing::random_sequences({23, 2, 9}, config.vocab_size, 8);
    Trainee whole(config, {.compute = compute, .fused_head = false}, adapter);
    testing::succeed(load_weights(whole.weights(), whole.stream(), files));
    whole.randomise(14);
    whole.gradients({sequences});
    const WeightFormat format = kKept[compared / 2 % 2];
    Trainee kept(config, {.compute = compute, .thread_count = 2, .format = format}, adapter);
    testing::succeed(load_weights(kept.weights(), kept.stream(), files));
    kept.randomise(14);
    kept.gradients({sequences});
    EXPECT_EQ(kept.losses(sequences), whole.losses(sequences));
    EXPECT_EQ(testing::flat_gradients(kept), testing::flat_gradients(whole));
    ++compared;
    compute = other_type(compute);
  }
  EXPECT_GT(compared, 40);
}

std::vector<float> recorded_logits(const std::string& name, WeightFormat format, int threads) {
  const std::string folder = testing::fixture("../quantised/" + name);
  const auto file = value_of(formats::open_safetensors(folder + "/expected.safetensors"));
  const TensorView tokens = value_of(file.view("tokens"));
  CpuDevice device({.thread_count = threads});
  const auto model = value_of(InferenceModel::load(folder, device,
                                                   {.compute = DType::kBF16,
                                                    .format = format,
                                                    .context_max = 64,
                                                    .kv_block_count = 4,
                                                    .batch_tokens_max = 64,
                                                    .logit_rows_max = 64}));
  const std::vector<int32_t> blocks = {0, 1, 2, 3};
  const auto count = static_cast<size_t>(tokens.count());
  const ops::SequenceSpan sequence{.row_count = static_cast<int32_t>(count),
                                   .blocks = blocks.data()};
  std::vector<int32_t> rows(count);
  std::iota(rows.begin(), rows.end(), 0);
  const auto logits = value_of(model->forward({.tokens = std::span(tokens.as<int32_t>(), count),
                                               .sequences = std::span(&sequence, 1),
                                               .logit_rows = rows}));
  return {logits.begin(), logits.end()};
}

// Products in whole numbers have the same bits in q8 and q4 where both hold the same numbers.
TEST(QuantisedKept, ComputesTheSameInEightAndInFourBits) {
  for (const char* kept : {"packed4_channel", "gptq4_symmetric"}) {
    for (const int threads : {1, 2}) {
      EXPECT_EQ(recorded_logits(kept, WeightFormat::kQ4, threads),
                recorded_logits(kept, WeightFormat::kQ8, 1))
          << kept;
    }
  }
  for (const char* rounded : {"packed4_group", "gptq4", "gptq4_ordered", "awq4"}) {
    EXPECT_NE(recorded_logits(rounded, WeightFormat::kQ4, 1),
              recorded_logits(rounded, WeightFormat::kQ8, 1))
        << rounded;
  }
}

}  // namespace
}  // namespace jige::model
