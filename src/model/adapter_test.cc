// Adapters beside a base: against PEFT, against merged folders, and in batches of several.
#include "model/adapter.h"
#include "model/adapter_tensors.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "base/file.h"
#include "model/adapter_test_support.h"
#include "model/inference.h"
#include "model/model_test_support.h"
#include "model/weights_save.h"

namespace jige::model {
namespace {

using testing::fixture;
using testing::fixture_names;
using ::testing::HasSubstr;
using testing::succeed;
using testing::TempFolder;
using testing::three_adapters;
using testing::value_of;
using testing::write_adapter;

using Tokens = std::vector<int32_t>;

// Of the recorded ones those that cannot run beside their base.
constexpr const char* kMergedOnly[] = {"gpt2_all_biases", "llama2_saved", "qwen2_saved_head",
                                       "qwen2_saved_table"};

bool only_merged(const std::string& name) { return std::ranges::count(kMergedOnly, name) > 0; }

InferenceOptions options_with(std::vector<AdapterSource> adapters, DType compute = DType::kF32,
                              ops::WeightFormat format = ops::WeightFormat::kCompute) {
  return {.compute = compute,
          .format = format,
          .context_max = 64,
          .kv_block_count = 16,
          .state_count = 4,
          .batch_tokens_max = 64,
          .logit_rows_max = 64,
          .adapters = std::move(adapters)};
}

Tokens some_tokens(size_t count, uint64_t seed) {
  Rng rng(derive_key(seed, "adapter test"));
  Tokens tokens;
  while (tokens.size() < count) tokens.push_back(static_cast<int32_t>(rng.below(96)));
  return tokens;
}

// All logits of sequences that run in one batch, one behind the other, each with its adapter.
std::vector<float> adapted_logits(InferenceModel& model, const std::vector<Tokens>& sequences,
                                  const std::vector<int32_t>& adapters) {
  Tokens tokens;
  std::vector<ops::SequenceSpan> spans;
  std::vector<Tokens> blocks;
  for (int32_t first = 0; blocks.size() < sequences.size(); first += 4) {
    blocks.push_back({first, first + 1, first + 2, first + 3});
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    spans.push_back({.row_begin = static_cast<int32_t>(tokens.size()),
                     .row_count = static_cast<int32_t>(sequences[i].size()),
                     .blocks = blocks[i].data(),
                     .state = static_cast<int32_t>(i)});
    tokens.insert(tokens.end(), sequences[i].begin(), sequences[i].end());
  }
  std::vector<int32_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  const auto logits = value_of(model.forward(
      {.tokens = tokens, .sequences = spans, .logit_rows = rows, .adapters = adapters}));
  return {logits.begin(), logits.end()};
}

double worst_difference(const std::vector<float>& a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    worst = std::max(worst, std::abs(double{a[i]} - b[i]));
  }
  return worst;
}

// What PEFT recorded of an adapter.
struct RecordedAdapter {
  explicit RecordedAdapter(const std::string& name)
      : folder(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/adapters/" + name) {
    const auto file = value_of(formats::open_safetensors(folder + "/expected.safetensors"));
    const auto ids = value_of(file.view("tokens"));
    const auto expected = value_of(file.view("logits"));
    tokens.assign(ids.as<int32_t>(), ids.as<int32_t>() + ids.count());
    logits.assign(expected.as<float>(), expected.as<float>() + expected.count());
  }
  std::string folder;
  Tokens tokens;
  std::vector<float> logits;
};

Json recorded_bases() {
  const std::string path = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/adapters/bases.json";
  return value_of(parse_json(value_of(read_file(path)), "bases"));
}

TEST(AdapterTest, LogitsMatchThoseOfPeft) {
  CpuDevice device({.thread_count = 2});
  const Json bases = recorded_bases();
  for (const auto& [name, base] : bases.items()) {
    if (only_merged(name)) continue;
    const RecordedAdapter recorded(name);
    const auto model = value_of(InferenceModel::load(fixture(base.get<std::string>()), device,
                                                     options_with({{name, recorded.folder}})));
    const auto logits = adapted_logits(*model, {recorded.tokens}, {0});
    EXPECT_LE(worst_difference(logits, recorded.logits), 1e-4) << name;
    EXPECT_GT(
        worst_difference(adapted_logits(*model, {recorded.tokens}, {kNoAdapter}), recorded.logits),
        0.5)
        << name;
    RecordProperty(name, std::to_string(worst_difference(logits, recorded.logits)));
  }
}

TEST(AdapterTest, MergedFoldersGiveTheLogitsOfPeft) {
  CpuDevice device({.thread_count = 2});
  const TempFolder folder;
  const Json bases = recorded_bases();
  for (const auto& [name, base] : bases.items()) {
    const RecordedAdapter recorded(name);
    const std::string base_folder = fixture(base.get<std::string>());
    succeed(merge_adapter(base_folder, recorded.folder, folder / name));
    const auto merged = value_of(InferenceModel::load(folder / name, device, options_with({})));
    const auto logits = adapted_logits(*merged, {recorded.tokens}, {});
    EXPECT_LE(worst_difference(logits, recorded.logits), 1e-4) << name;
    const auto beside =
        InferenceModel::load(base_folder, device, options_with({{name, recorded.folder}}));
    ASSERT_EQ(bool{beside}, !only_merged(name)) << name;
    if (beside) continue;
    EXPECT_EQ(beside.error().code, Code::kUnsupported);
    EXPECT_THAT(beside.error().message, HasSubstr("jige export BASE OUT --merge")) << name;
  }
}

// Weights of 8 bits move logits of an adapter by about as much as those of the base.
TEST(AdapterTest, DoraOnWeightsOfFewBitsIsAsNearAsTheBase) {
  CpuDevice device({.thread_count = 2});
  for (const char* name : {"qwen2_dora", "llama2_dora"}) {
    const RecordedAdapter recorded(name);
    const std::string base = fixture(std::string(name).substr(0, std::string(name).find('_')));
    const auto whole = value_of(InferenceModel::load(base, device, options_with({})));
    const auto of_base = adapted_logits(*whole, {recorded.tokens}, {});
    const auto model = value_of(InferenceModel::load(
        base, device,
        options_with({{name, recorded.folder}}, DType::kF32, ops::WeightFormat::kQ8)));
    const double base_error =
        worst_difference(adapted_logits(*model, {recorded.tokens}, {kNoAdapter}), of_base);
    const double error =
        worst_difference(adapted_logits(*model, {recorded.tokens}, {0}), recorded.logits);
    EXPECT_LE(error, 3 * base_error) << name;
    EXPECT_LT(error, 1) << name << ", whose logits DoRA moves by more than 10";
    RecordProperty(name, std::to_string(error) + " beside " + std::to_string(base_error));
  }
}

TEST(AdapterTest, ModulesAreFoundByTheNamesThatAdaptersHaveForThem) {
  const AdapterPairs pairs = {
      {"model.layers.0.mixer.in_proj", {}},    {"backbone.layers.1.mixer.in_proj", {}},
      {"transformer.h.0.attn.c_attn", {}},     {"h.1.attn.c_attn", {}},
      {"model.layers.1.self_attn.o_proj", {}}, {"model.layers.1.mlp.gate_proj", {}}};
  const auto found = [&](const std::string& module,
                         formats::Family family = formats::Family::kGpt2) {
    const auto pair = find_adapter_pair(pairs, module, family);
    return pair == pairs.end() ? std::string() : pair->first;
  };
  EXPECT_EQ(found("backbone.layers.0.mixer.in_proj"), "model.layers.0.mixer.in_proj");
  EXPECT_EQ(found("backbone.layers.1.mixer.in_proj"), "backbone.layers.1.mixer.in_proj");
  EXPECT_EQ(found("backbone.layers.2.mixer.in_proj"), "");
  EXPECT_EQ(found("h.0.attn.c_attn"), "transformer.h.0.attn.c_attn");
  EXPECT_EQ(found("transformer.h.1.attn.c_attn"), "h.1.attn.c_attn");
  EXPECT_EQ(found("model.layers.1.mixer.in_proj"), "");
  EXPECT_EQ(found("transformer.h.1.attn.attention.out_proj", formats::Family::kExaone),
            "model.layers.1.self_attn.o_proj");
  EXPECT_EQ(found("transformer.h.1.mlp.c_fc_0", formats::Family::kExaone),
            "model.layers.1.mlp.gate_proj");
  EXPECT_EQ(found("transformer.h.1.mlp.c_fc_1", formats::Family::kExaone), "");
  EXPECT_EQ(found("transformer.h.1.mlp.c_fc_0"), "");
}

// The adapter of all modules for every fixture, one of the others in turn for every second one.
TEST(AdapterTest, GivesWhatTheMergedFolderGives) {
  CpuDevice device({.thread_count = 1});
  size_t turn = 0;
  for (const std::string& name : fixture_names()) {
    const TempFolder folder;
    const auto& adapters = three_adapters(name);
    const auto model =
        value_of(InferenceModel::load(fixture(name), device, options_with(adapters)));
    const Tokens tokens = some_tokens(40, 1);
    std::vector<size_t> tried = {0};
    if (turn % 2 == 0) tried.push_back(1 + turn / 2 % 2);
    ++turn;
    for (const size_t i : tried) {
      const std::string merged = folder / ("merged" + std::to_string(i));
      succeed(merge_adapter(fixture(name), adapters[i].folder, merged));
      const auto whole = value_of(InferenceModel::load(merged, device, options_with({})));
      const auto expected = adapted_logits(*whole, {tokens}, {});
      const auto logits = adapted_logits(*model, {tokens}, {static_cast<int32_t>(i)});
      EXPECT_LE(worst_difference(logits, expected), 1e-4) << name << " " << adapters[i].name;
    }
  }
}

// Types of products with the formats of the base.
constexpr std::pair<DType, ops::WeightFormat> kAdapterNumbers[] = {
    {DType::kF32, ops::WeightFormat::kCompute},
    {DType::kBF16, ops::WeightFormat::kCompute},
    {DType::kF32, ops::WeightFormat::kQ8},
    {DType::kBF16, ops::WeightFormat::kQ8},
    {DType::kBF16, ops::WeightFormat::kQ4}};

void expect_neighbours_do_not_matter(const std::string& name, DType compute,
                                     ops::WeightFormat format) {
  const auto& adapters = three_adapters(name);
  const std::vector<Tokens> sequences = {some_tokens(13, 1), some_tokens(1, 2), some_tokens(30, 3),
                                         some_tokens(9, 4)};
  CpuDevice one_thread({.thread_count = 1});
  const auto plain =
      value_of(InferenceModel::load(fixture(name), one_thread, options_with({}, compute, format)));
  const auto alone = value_of(
      InferenceModel::load(fixture(name), one_thread, options_with(adapters, compute, format)));
  CpuDevice device({.thread_count = 3, .queued_streams = true});
  const auto model = value_of(
      InferenceModel::load(fixture(name), device, options_with(adapters, compute, format)));
  const std::vector<std::vector<int32_t>> turns = {
      {0, 1, 2, kNoAdapter}, {kNoAdapter, 0, 0, 1}, {2, 2, 1, 0}, {1, kNoAdapter, 1, kNoAdapter}};
  for (const std::vector<int32_t>& turn : turns) {
    std::vector<float> expected;
    for (size_t i = 0; i < sequences.size(); ++i) {
      auto own = adapted_logits(*alone, {sequences[i]}, {turn[i]});
      const auto base = adapted_logits(*plain, {sequences[i]}, {});
      EXPECT_EQ(own == base, turn[i] == kNoAdapter);
      expected.insert(expected.end(), own.begin(), own.end());
    }
    EXPECT_EQ(adapted_logits(*model, sequences, turn), expected) << name;
  }
  EXPECT_EQ(adapted_logits(*model, sequences, {}), adapted_logits(*plain, sequences, {})) << name;
}

TEST(AdapterTest, RowsHaveTheBitsThatTheyHaveAlone) {
  for (const auto& [compute, format] : kAdapterNumbers) {
    for (const char* name : {"llama3", "gpt2"}) {
      expect_neighbours_do_not_matter(name, compute, format);
    }
  }
}

TEST(AdapterTest, TakesExactlyThePlannedMemory) {
  CpuDevice device({.thread_count = 1});
  for (const auto& [compute, format] : kAdapterNumbers) {
    InferenceOptions options = options_with(three_adapters("qwen2"), compute, format);
    const auto model = value_of(InferenceModel::load(fixture("qwen2"), device, options));
    const InferenceMemory plan = inference_memory(model->architecture(), model->sizes());
    ASSERT_EQ(plan.adapters_bytes.size(), 3u);
    EXPECT_GT(plan.adapters_bytes[0], plan.adapters_bytes[2]);
    EXPECT_EQ(model->peak_bytes(), plan.total_bytes());
    adapted_logits(*model, {some_tokens(20, 1), some_tokens(20, 2)}, {0, 1});
    EXPECT_EQ(model->peak_bytes(), plan.total_bytes());
    options.memory_bytes_max = plan.total_bytes() - 1;
    const auto refused = InferenceModel::load(fixture("qwen2"), device, options);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kExhausted);
    EXPECT_THAT(refused.error().message, HasSubstr("3 adapters"));
  }
}

class AdapterErrors : public ::testing::Test {
 protected:
  Error error_of(const std::string& adapter, const std::string& base = "llama2") {
    CpuDevice device({.thread_count = 1});
    const auto model =
        InferenceModel::load(fixture(base), device, options_with({{"poet", adapter}}));
    EXPECT_FALSE(model) << "accepted";
    return model ? Error{} : model.error();
  }
  // Changes a field of an adapter's configuration.
  void set_field(const std::string& adapter, const std::string& field, const Json& value) {
    const std::string path = adapter + "/adapter_config.json";
    Json json = value_of(parse_json(value_of(read_file(path)), path));
    json[field] = value;
    succeed(write_file_atomic(path, dump_json(json)));
  }
  const TempFolder folder_;
};

TEST_F(AdapterErrors, AnAdapterOfAnotherModelIsRefused) {
  const std::string adapter = folder_ / "a";
  const formats::LoraConfig config{.base_model = "org/other-model"};
  write_adapter(adapter, fixture("qwen2"), config, 1);
  // Their key and value heads differ.
  const Error shapes = error_of(adapter, "llama2");
  EXPECT_EQ(shapes.code, Code::kCorrupt);
  for (const char* part : {"--adapter poet=", "k_proj", "lora_B", "made for org/other-model"}) {
    EXPECT_THAT(shapes.message, HasSubstr(part));
  }
  const Error modules = error_of(adapter, "gpt2");
  EXPECT_EQ(modules.code, Code::kCorrupt);
  for (const char* part : {"--adapter poet=", adapter.c_str(), "no linear layer of this base",
                           "gpt2", "made for org/other-model"}) {
    EXPECT_THAT(modules.message, HasSubstr(part));
  }
}

TEST_F(AdapterErrors, ModulesOfExpertsAreRefusedAsSuch) {
  const std::string adapter = folder_ / "a";
  write_adapter(adapter, fixture("llama2"), {}, 1);
  const std::string path = adapter + "/adapter_model.safetensors";
  const std::string own = "self_attn.q_proj", other = "mlp.experts.0.w1";
  std::string tensors = value_of(read_file(path));
  for (size_t at = 0; (at = tensors.find(own, at)) != std::string::npos;) {
    tensors.replace(at, own.size(), other);
  }
  EXPECT_TRUE(write_file_atomic(path, tensors));
  const Error error = error_of(adapter);
  EXPECT_EQ(error.code, Code::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr(other + "\" is of experts"));
}

TEST_F(AdapterErrors, OtherKindsOfAdaptersAreRefusedByFileAndField) {
  const std::string adapter = folder_ / "a";
  write_adapter(adapter, fixture("llama2"), {}, 1);
  set_field(adapter, "use_qalora", true);
  const Error error = error_of(adapter);
  EXPECT_EQ(error.code, Code::kUnsupported);
  for (const char* part : {"--adapter poet=", "adapter_config.json", "\"use_qalora\""}) {
    EXPECT_THAT(error.message, HasSubstr(part));
  }
  set_field(adapter, "use_qalora", false);
  set_field(adapter, "use_dora", true);
  const Error no_magnitude = error_of(adapter);
  EXPECT_EQ(no_magnitude.code, Code::kCorrupt);
  EXPECT_THAT(no_magnitude.message,
              HasSubstr("has no lora_magnitude_vector, but use_dora is true"));
  set_field(adapter, "use_dora", false);
  set_field(adapter, "rank_pattern", {{"down_proj", 5}});
  EXPECT_THAT(error_of(adapter).message, HasSubstr("down_proj\" has lora_A [8, 40]"));
  set_field(adapter, "rank_pattern", {{"down_(proj", 5}});
  EXPECT_THAT(error_of(adapter).message, HasSubstr("rank_pattern"));
  set_field(adapter, "rank_pattern", Json::object());
  set_field(adapter, "r", 4);  // the tensors have another
  EXPECT_THAT(error_of(adapter).message, HasSubstr("rank 4 on a base of"));
}

TEST_F(AdapterErrors, FoldersThatAreNotThereOrHoldNothingAreRefused) {
  EXPECT_EQ(error_of(folder_ / "nothing").code, Code::kNotFound);
  const std::string adapter = folder_ / "a";
  write_adapter(adapter, fixture("llama2"), {.target_modules = {"no_such_layer"}}, 1);
  const Error empty = error_of(adapter);
  EXPECT_EQ(empty.code, Code::kCorrupt);
  EXPECT_THAT(empty.message, HasSubstr("adapts nothing"));
}

TEST(AdapterTest, BatchesMayNotAskForWhatIsNotThere) {
  CpuDevice device({.thread_count = 1});
  const auto model = value_of(InferenceModel::load(fixture("llama2"), device, options_with({})));
  const Tokens tokens = {1, 2, 3};
  const Tokens blocks = {0};
  const ops::SequenceSpan span{.row_count = 3, .blocks = blocks.data()};
  for (const std::vector<int32_t>& adapters : {std::vector<int32_t>{0}, {-2}, {-1, -1}}) {
    const auto result = model->forward({.tokens = tokens,
                                        .sequences = std::span(&span, 1),
                                        .logit_rows = {},
                                        .adapters = adapters});
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace jige::model
