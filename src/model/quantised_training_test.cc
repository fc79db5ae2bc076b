// Adapters on a base whose matrices are quantised: the function that is trained, and its memory.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "model/model_test_support.h"
#include "ops/linear.h"

namespace jige::model {
namespace {

using formats::Family;
using ops::WeightFormat;
using testing::all_families;
using testing::flat_gradients;
using testing::other_type;
using testing::random_sequences;
using testing::tiny_config;
using testing::Trainee;

// Levels of a matrix in four bits, in rising order, the outermost one first.
const std::vector<float> kEven = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
const std::vector<float> kUneven = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};

constexpr WeightFormat kBaseFormats[] = {WeightFormat::kQ8, WeightFormat::kQ4,
                                         WeightFormat::kMxfp4};
const formats::LoraConfig kAdapter = {.rank = 3, .alpha = 5};

// The numbers that the blocks of a matrix stand for: its product with the unit matrix.
void quantise_and_back(Stream& stream, WeightFormat format, const Shape& shape,
                       std::vector<float>& values) {
  const int64_t n = shape[0], k = shape[1];
  std::vector<std::byte> memory(static_cast<size_t>(
      ops::packed_weight_bytes(DType::kF32, ops::PackUse::kForward, n, k, format)));
  std::vector<std::byte> strip(static_cast<size_t>(ops::linear_strip_bytes(DType::kF32, n, k)));
  const ops::PackedWeight packed = {.data = memory.data(), .n = n, .k = k, .format = format};
  ops::pack_weight(stream, packed, TensorView::of(values.data(), DType::kF32, shape));
  std::vector<float> unit(static_cast<size_t>(k * k)), columns(static_cast<size_t>(n * k));
  for (int64_t i = 0; i < k; ++i) unit[static_cast<size_t>(i * k + i)] = 1;
  ops::linear_forward(stream, {.dst = TensorView::of(columns.data(), DType::kF32, Shape{k, n}),
                               .src = TensorView::of(unit.data(), DType::kF32, Shape{k, k}),
                               .weight = packed,
                               .strip = TensorView::of(strip.data(), DType::kU8,
                                                       Shape{static_cast<int64_t>(strip.size())})});
  stream.synchronize();
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      values[static_cast<size_t>(i * k + j)] = columns[static_cast<size_t>(j * n + i)];
    }
  }
}

bool is_quantised(const ParamSpec& spec) {
  const bool of_input = spec.name.ends_with("per_layer_input_gate.weight");
  const bool router = (spec.name.ends_with("gate.weight") && !of_input) ||
                      spec.name.ends_with("router.layer.weight") ||
                      spec.name.ends_with("block_sparse_moe.router.weight") ||
                      spec.name.ends_with("gate.wg.weight") ||
                      spec.name.ends_with("router.proj.weight") ||
                      spec.name.ends_with("feed_forward.router.weight") ||
                      spec.name.find(".altup.") != std::string::npos;
  const bool of_steps =
      spec.name.ends_with("x_proj.weight") || spec.name.ends_with("dt_proj.weight");
  return spec.packed && spec.shape.rank() == 2 && !router && !of_steps;
}

// Numbers nearly of these levels, so that all parts of a fused matrix have the same.
void move_to_levels(const std::vector<float>& levels, const Shape& shape,
                    std::vector<float>& values) {
  const float unit = 0.6f / -levels.front();
  for (size_t i = 0; i < values.size(); ++i) {
    const bool is_first = static_cast<int64_t>(i) % shape[1] % ops::kWeightBlock == 0;
    const float scaled = is_first ? levels.front() : values[i] / unit;
    auto level = std::lower_bound(levels.begin(), levels.end() - 1, scaled);
    if (level != levels.begin() && scaled - level[-1] < *level - scaled) --level;
    values[i] = unit * *level + 0.01f * values[i] * unit;
  }
}

// That of one matrix in a model of this format.
WeightFormat format_of_matrix(WeightFormat format, const ParamSpec& spec, bool is_head) {
  const bool of_experts = spec.name.find(".experts.") != std::string::npos;
  if (format == WeightFormat::kMxfp4) return of_experts ? format : WeightFormat::kQ8;
  return is_head ? WeightFormat::kQ8 : format;
}

// The numbers of a matrix moved to levels, or what blocks of a format keep of those. Seed, name and
// shape say what they were: they are made once.
const std::vector<float>& numbers_of_levels(Stream& stream, const std::vector<float>& levels,
                                            std::optional<WeightFormat> format,
                                            const ParamSpec& spec,
                                            const std::vector<float>& values) {
  static std::map<std::tuple<bool, std::optional<WeightFormat>, std::string, std::string>,
                  std::vector<float>>
      made;
  std::vector<float>& numbers = made[{levels == kEven, format, spec.name, spec.shape.to_string()}];
  if (!numbers.empty()) return numbers;
  numbers = format ? numbers_of_levels(stream, levels, std::nullopt, spec, values) : values;
  if (format) {
    quantise_and_back(stream, *format, spec.shape, numbers);
  } else {
    move_to_levels(levels, spec.shape, numbers);
  }
  return numbers;
}

// A base whose matrices have nearly these levels, or the same with the numbers that remain of its
// matrices; routers stay whole.
void fill_base_of_levels(Trainee& trainee, const std::vector<float>& levels,
                         std::optional<WeightFormat> numbers_of) {
  const size_t head = trainee.architecture().head_node();
  testing::fill_base(trainee, 21,
                     [&](size_t node, const ParamSpec& spec, std::vector<float>& values) {
                       if (!is_quantised(spec)) return;
                       std::optional<WeightFormat> format;
                       if (numbers_of) format = format_of_matrix(*numbers_of, spec, node == head);
                       values = numbers_of_levels(trainee.stream(), levels, format, spec, values);
                     });
}

void expect_bits_of_the_numbers(const formats::ModelConfig& config, DType compute,
                                WeightFormat format, const std::vector<float>& levels) {
  const auto sequences = random_sequences({23, 2, 9}, config.vocab_size, 8);
  Trainee quantised(config, {.compute = compute, .format = format}, kAdapter);
  Trainee whole(config, {.compute = compute, .fused_head = false}, kAdapter);
  fill_base_of_levels(quantised, levels, std::nullopt);
  fill_base_of_levels(whole, levels, format);
  for (Trainee* trainee : {&quantised, &whole}) {
    trainee->randomise(14);
    trainee->gradients({sequences});
  }
  EXPECT_EQ(quantised.losses(sequences), whole.losses(sequences));
  EXPECT_EQ(flat_gradients(quantised), flat_gradients(whole));
}

// Families differ in what they multiply, not in how blocks are read: two have all formats in both
// types and of all levels, the others each format in one of them, in turn.
TEST(QuantisedTraining, HasTheBitsOfABaseOfTheNumbersThatTheBlocksStandFor) {
  DType of_q4 = DType::kF32;
  int turn = 0;
  for (const Family family : all_families()) {
    const bool all_formats = family == Family::kLlama || family == Family::kGptOss;
    of_q4 = other_type(of_q4);
    const bool is_even = ++turn % 4 < 2;
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      for (const WeightFormat format : kBaseFormats) {
        if (format == WeightFormat::kMxfp4 && !formats::has_experts(family)) continue;
        const bool is_q4 = format == WeightFormat::kQ4;
        if (!all_formats && is_q4 != (compute == of_q4)) continue;
        SCOPED_TRACE(std::string(formats::family_name(family)) + " " +
                     std::string(ops::weight_format_name(format)));
        const formats::ModelConfig config = tiny_config(family);
        for (const bool even : {false, true}) {
          const bool has_levels = is_q4 ? all_formats || even == is_even : !even;
          if (!has_levels) continue;
          expect_bits_of_the_numbers(config, compute, format, even ? kEven : kUneven);
        }
      }
    }
  }
}

TEST(QuantisedTraining, HasTheSameBitsForAnyThreadsAndMicroBatches) {
  const formats::ModelConfig config = tiny_config(Family::kLlama);
  const auto sequences = random_sequences({23, 2, 9, 30}, config.vocab_size, 9);
  for (const WeightFormat format : kBaseFormats) {
    Trainee one(config, {.format = format}, kAdapter);
    Trainee two(config, {.thread_count = 2, .queued_streams = true, .format = format}, kAdapter);
    for (Trainee* trainee : {&one, &two}) {
      testing::fill_base(*trainee, 22);
      trainee->randomise(16);
    }
    one.gradients({sequences});
    two.gradients({{sequences[0]}, {sequences[1], sequences[2]}, {sequences[3]}});
    EXPECT_EQ(flat_gradients(one), flat_gradients(two));
    EXPECT_EQ(one.losses(sequences), two.losses(sequences));
  }
}

TEST(QuantisedTraining, TakesExactlyThePlannedMemory) {
  for (const Family family : all_families()) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      for (const WeightFormat format : kBaseFormats) {
        const formats::ModelConfig config = tiny_config(family);
        Trainee trainee(config, {.compute = compute, .tokens_max = 48, .format = format}, kAdapter);
        const TrainingMemory plan = training_memory(
            trainee.architecture(),
            {.compute = compute, .position_count = config.context_max, .format = format}, 48);
        EXPECT_EQ(trainee.arena().peak_bytes(), plan.total_bytes() - plan.moments_bytes);
      }
    }
  }
}

TEST(QuantisedTraining, HoldsTheBaseInEightAndAHalfOrFourAndAHalfBits) {
  formats::ModelConfig config = tiny_config(Family::kLlama);
  config.hidden_size = 256;
  config.ffn_size = 512;
  config.head_dim = 64;
  config.vocab_size = 320;
  const auto model = testing::value_of(Architecture::create(config, kAdapter));
  const auto packed_bytes = [&](WeightFormat format) {
    return weights_memory(*model, {.compute = DType::kBF16, .format = format}).packed_bytes;
  };
  const int64_t head = config.vocab_size * config.hidden_size;
  const int64_t layers = formats::parameter_count(config) - 2 * head -
                         (2 * config.layer_count + 1) * config.hidden_size;
  // A whole base is packed for either use; the adapters are the same in all formats.
  const int64_t adapters = packed_bytes(WeightFormat::kCompute) - 4 * (layers + head);
  EXPECT_GT(adapters, 0);
  EXPECT_NEAR(static_cast<double>(packed_bytes(WeightFormat::kQ8) - adapters),
              8.5 / 8 * static_cast<double>(layers + head), 4096);
  EXPECT_NEAR(static_cast<double>(packed_bytes(WeightFormat::kQ4) - adapters),
              4.5 / 8 * static_cast<double>(layers) + 8.5 / 8 * static_cast<double>(head), 4096);
}

TEST(QuantisedTraining, IsForAdaptersOnly) {
  CpuDevice device({.thread_count = 1});
  Arena arena(device, "test");
  const auto model = testing::value_of(Architecture::create(tiny_config(Family::kLlama)));
  const auto made = ModelWeights::create(arena, *model, {.format = WeightFormat::kQ4});
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, Code::kInvalidArgument);
  EXPECT_NE(made.error().message.find("q4"), std::string::npos);
}

}  // namespace
}  // namespace jige::model
