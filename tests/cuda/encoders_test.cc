// Models whose tokens see those behind them on a GPU, beside the same on the CPU: every recorded
// folder that makes vectors or judges pairs, and wider ones, which take tensor cores.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "cuda/test_device.h"
#include "formats/embedding_config.h"
#include "formats/pair_config.h"
#include "formats/tensor_folder.h"
#include "model/inference.h"
#include "model/init.h"
#include "plan/streamed_layers.h"
#include "serve/embedder.h"
#include "serve/engine_memory.h"
#include "serve/pair_text.h"
#include "train/test_support.h"

namespace jige {
namespace {

namespace fs = std::filesystem;

using model::InferenceModel;

// Folders that hold vectors' models, or judges of pairs.
std::vector<std::string> folders_of(const std::string& kind) {
  std::vector<std::string> folders;
  const std::string all = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/" + kind;
  for (const auto& entry : fs::directory_iterator(all)) {
    if (entry.is_directory()) folders.push_back(entry.path().string());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::string fixture(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/embedding/" + name;
}

model::InferenceOptions rows_options(DType compute) {
  return {.compute = compute,
          .context_max = 80,
          .kv_block_count = 24,
          .batch_tokens_max = 160,
          .logit_rows_max = 160,
          .embeds = true};
}

class CudaModelEncoders : public CudaTest {
 protected:
  static constexpr size_t kRows = 116;

  // The rows of three texts, of which the last has tokens of the second type.
  static std::vector<float> rows_of(InferenceModel& model) {
    constexpr int32_t lengths[] = {78, 1, 37};
    static_assert(lengths[0] + lengths[1] + lengths[2] == kRows);
    std::vector<int32_t> tokens, blocks(64);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::vector<ops::SequenceSpan> spans;
    for (const int32_t length : lengths) {
      spans.push_back({.row_begin = static_cast<int32_t>(tokens.size()),
                       .row_count = length,
                       .blocks = blocks.data() + 8 * spans.size()});
      for (int32_t i = 0; i < length; ++i) {
        const int64_t id = (i * i * 7 + length) % (model.config().vocab_size - 3);
        tokens.push_back(static_cast<int32_t>(id + 3));
      }
    }
    if (model.config().token_types > 1) spans.back().second_begin = 20;
    const auto ran = model.forward({.tokens = tokens, .sequences = spans});
    EXPECT_TRUE(ran) << ran.error().message;
    std::vector<int32_t> wanted(tokens.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    const auto rows = model.hidden_of(wanted);
    EXPECT_TRUE(rows) << rows.error().message;
    return rows ? std::vector<float>(rows->begin(), rows->end()) : std::vector<float>();
  }
  std::unique_ptr<InferenceModel> load(const std::string& folder, Device& device,
                                       const model::InferenceOptions& options) {
    auto loaded = InferenceModel::load(folder, device, options);
    EXPECT_TRUE(loaded) << loaded.error().message;
    return loaded ? std::move(*loaded) : nullptr;
  }
  std::vector<float> rows_of(const std::string& folder, Device& device,
                             const model::InferenceOptions& options) {
    const auto loaded = load(folder, device, options);
    return loaded ? rows_of(*loaded) : std::vector<float>();
  }
  // Of every row: the largest difference over the largest number.
  void expect_rows_of_the_cpu(const std::string& folder, const model::InferenceOptions& options,
                              double limit) {
    SCOPED_TRACE(folder);
    const std::vector<float> expected = rows_of(folder, cpu_, options);
    const std::vector<float> got = rows_of(folder, *gpu_, options);
    ASSERT_EQ(got.size(), expected.size());
    ASSERT_FALSE(got.empty());
    const size_t width = got.size() / kRows;
    for (size_t row = 0; row < kRows; ++row) {
      float most = 0;
      float size = 0;
      for (size_t i = row * width; i < (row + 1) * width; ++i) {
        ASSERT_EQ(got[i], got[i]) << "row " << row;
        most = std::max(most, std::abs(got[i] - expected[i]));
        size = std::max(size, std::abs(expected[i]));
      }
      ASSERT_LE(most, limit * size) << "row " << row;
    }
  }

  // A recorded model's folder with fields of config.json changed, and random numbers.
  std::string folder_like(const std::string& name, const Json& fields) {
    const std::string folder = folder_.file(name);
    const std::string path = fixture(name) + "/config.json";
    Json config = *parse_json(*read_file(path), path);
    config.update(fields);
    fs::create_directories(folder);
    EXPECT_TRUE(write_file_atomic(folder + "/config.json", dump_json(config, 2)));
    const auto read = formats::load_model_config(folder);
    EXPECT_TRUE(read) << read.error().message;
    if (!read) return folder;
    const auto made = model::Architecture::create(*read, std::nullopt, model::HeadKind::kNormAlone);
    EXPECT_TRUE(made) << made.error().message;
    if (!made) return folder;
    std::vector<std::vector<float>> values;
    std::vector<formats::TensorSource> sources;
    std::set<std::string> names;  // layers may share a table
    for (size_t node = 0; node < (*made)->node_count(); ++node) {
      for (const model::ParamSpec& spec : (*made)->block(node).params()) {
        if (!names.insert(spec.name).second) continue;
        values.emplace_back(static_cast<size_t>(spec.stored_shape().count()));
        model::fill_initial(values.back(), spec, 11);
        // So that tokens are unlike each other, but rounding is not blown up.
        constexpr float kWider = 3.0f;
        if (spec.init_std > 0) {
          for (float& value : values.back()) value *= kWider;
        }
        sources.push_back(formats::TensorSource::of(
            spec.name, TensorView::of(values.back().data(), DType::kF32, spec.stored_shape())));
      }
    }
    const Status written = formats::write_tensor_folder(folder, sources);
    EXPECT_TRUE(written) << written.error().message;
    return folder;
  }
  train::TestFolder folder_;
};

TEST_F(CudaModelEncoders, EveryRecordedModelGivesTheRowsOfTheCpu) {
  int ahead = 0;
  for (const std::string kind : {"embedding", "pairs"}) {
    for (const std::string& folder : folders_of(kind)) {
      const auto config = formats::load_model_config(folder);
      ASSERT_TRUE(config) << config.error().message;
      if (!config->looks_ahead) continue;
      ++ahead;
      expect_rows_of_the_cpu(folder, rows_options(DType::kF32), 3e-5);
      expect_rows_of_the_cpu(folder, rows_options(DType::kBF16), 0.05);
    }
  }
  EXPECT_GE(ahead, 30);
}

TEST_F(CudaModelEncoders, HeadsOnTensorCoresGiveRowsNearThoseOfTheCpu) {
  const auto wide = [](int64_t heads, int64_t width) {
    return Json{{"num_attention_heads", heads}, {"hidden_size", width}, {"intermediate_size", 96}};
  };
  Json gemma = wide(2, 64);
  gemma.update({{"num_key_value_heads", 1}, {"head_dim", 256}});
  Json eurobert = wide(2, 64);
  eurobert.update({{"num_key_value_heads", 1}, {"head_dim", 128}});
  struct Wide {
    std::string name;
    Json fields;
    double limit;  // of bf16: above what two processors differ by, whose roundings are unlike, too
  };
  for (const auto& [name, fields, limit] : {Wide{"bert", wide(2, 64), 0.01},
                                            {"modernbert", wide(1, 64), 0.01},
                                            {"mpnet", wide(2, 128), 0.01},
                                            {"deberta", wide(1, 64), 0.01},
                                            {"eurobert", eurobert, 0.06},
                                            {"gemma", gemma, 0.06}}) {
    const std::string folder = folder_like(name, fields);
    expect_rows_of_the_cpu(folder, rows_options(DType::kF32), 1e-4);
    expect_rows_of_the_cpu(folder, rows_options(DType::kBF16), limit);
  }
}

// The CPU rounds what it multiplies with such matrices to eight bits.
TEST_F(CudaModelEncoders, MatricesOfFewBitsGiveRowsNearThoseOfTheCpu) {
  for (const std::string name : {"bert", "mpnet", "deberta"}) {
    model::InferenceOptions options = rows_options(DType::kF32);
    options.format = ops::WeightFormat::kQ8;
    expect_rows_of_the_cpu(fixture(name), options, 0.1);
  }
}

TEST_F(CudaModelEncoders, LayersThatStreamGiveTheRowsOfThoseThatStay) {
  const bool before = set_streams_late(true);
  for (const std::string name : {"modernbert", "mpnet", "deberta"}) {
    model::InferenceOptions options = rows_options(DType::kBF16);
    const std::vector<float> expected = rows_of(fixture(name), *gpu_, options);
    options.streamed_layers = {0, 1};
    options.slot_count = plan::kStreamSlots;
    const std::vector<float> got = rows_of(fixture(name), *gpu_, options);
    EXPECT_FALSE(got.empty());
    EXPECT_EQ(got, expected) << name;
  }
  set_streams_late(before);
}

// As `jige embed` and `jige rerank` make them.
TEST_F(CudaModelEncoders, VectorsAndScoresOfPairsAreThoseOfTheCpu) {
  const std::vector<std::string> texts = {"Who pays?", "The landlord pays for repairs.", "a"};
  const auto vectors_of = [&](const std::string& folder, Device& device,
                              const serve::EmbeddingForm& form,
                              const std::vector<serve::EmbedInput>& inputs) {
    const auto model = load(folder, device, rows_options(DType::kF32));
    std::vector<std::vector<float>> vectors;
    if (!model) return vectors;
    auto made = serve::Embedder(*model, form).embed(inputs);
    EXPECT_TRUE(made) << made.error().message;
    return made ? *made : vectors;
  };
  const auto expect_same = [&](const std::string& folder, const serve::EmbeddingForm& form,
                               const std::vector<serve::EmbedInput>& inputs) {
    SCOPED_TRACE(folder);
    const auto expected = vectors_of(folder, cpu_, form, inputs);
    const auto got = vectors_of(folder, *gpu_, form, inputs);
    ASSERT_EQ(expected.size(), texts.size());
    ASSERT_EQ(got.size(), texts.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].size(), expected[i].size());
      for (size_t c = 0; c < got[i].size(); ++c) EXPECT_NEAR(got[i][c], expected[i][c], 3e-5);
    }
  };
  for (const std::string& folder : folders_of("embedding")) {
    const auto config = formats::load_embedding_config(folder);
    const auto tokenizer = text::Tokenizer::load(folder);
    ASSERT_TRUE(config && tokenizer) << folder;
    const auto encoder = serve::EmbeddingText::create(*tokenizer, {.tokens_max = 80});
    ASSERT_TRUE(encoder) << folder;
    std::vector<serve::EmbedInput> inputs;
    for (const std::string& text : texts) inputs.push_back(*encoder->encode(text));
    expect_same(folder,
                {.pooling = config->pooling,
                 .further = config->further,
                 .normalise = config->normalise,
                 .layers = config->layers},
                inputs);
  }
  for (const std::string& folder : folders_of("pairs")) {
    const auto tokenizer = text::Tokenizer::load(folder);
    ASSERT_TRUE(tokenizer) << folder;
    const auto config = formats::load_pair_config(folder, *tokenizer);
    ASSERT_TRUE(config) << config.error().message;
    const auto pairs =
        serve::PairText::create(*tokenizer, *config, {.query = "rent", .tokens_max = 400});
    ASSERT_TRUE(pairs) << pairs.error().message;
    std::vector<serve::EmbedInput> inputs;
    for (const std::string& text : texts) inputs.push_back(*pairs->encode(text));
    const bool fits = std::ranges::all_of(
        inputs, [](const auto& input) { return std::ssize(input.tokens) <= 80; });
    if (fits) expect_same(folder, serve::pair_form(*config), inputs);
  }
}

TEST_F(CudaModelEncoders, TakeTheMemoryThatIsPlanned) {
  for (const std::string name : {"bert", "modernbert", "mpnet", "deberta", "gemma"}) {
    const std::string folder = fixture(name);
    model::InferenceOptions options = rows_options(DType::kBF16);
    const auto planned =
        serve::plan_engine_memory(folder, options, int64_t{64} << 20, {}, DeviceKind::kCuda);
    ASSERT_TRUE(planned) << planned.error().message;
    options.kv_block_count = planned->kv_block_count;
    options.memory_bytes_max = planned->total_bytes();
    const auto loaded = InferenceModel::load(folder, *gpu_, options);
    ASSERT_TRUE(loaded) << loaded.error().message;
    rows_of(**loaded);
    EXPECT_EQ((*loaded)->peak_bytes(), planned->total_bytes()) << name;
  }
}

}  // namespace
}  // namespace jige
