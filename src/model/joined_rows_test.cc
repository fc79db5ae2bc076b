// Parameters that files cut in other places than models do, and what they must hold then.
#include "model/joined_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "model/model_test_support.h"
#include "model/weights_save.h"

namespace jige::model {
namespace {

using testing::fixture;
using testing::succeed;
using testing::TempFolder;
using testing::Trainee;
using testing::value_of;

constexpr int64_t kAllRows = 8;
constexpr int64_t kTapsOfAll = 3;

const std::vector<std::string> kCutNames = {"q.weight", "k.weight", "v.weight"};

// Two rows, two more, and four.
std::vector<ParamSpec> parameters() {
  std::vector<ParamSpec> specs;
  int64_t first = 0;
  for (const auto& [name, rows] :
       {std::pair{"q.weight", int64_t{2}}, {"k.weight", 2}, {"v.weight", 4}}) {
    specs.push_back(
        {.name = name,
         .shape = Shape{rows, 1, kTapsOfAll},
         .joined = JoinedRows{
             .tensors = kCutNames, .whole = "all.weight", .first = first, .rows = kAllRows}});
    first += rows;
  }
  return specs;
}

struct CutTensor {
  std::string name;
  Shape shape;
  DType dtype = DType::kF32;
};

// A folder of these tensors, whose numbers go on from one to the next from 0.
formats::TensorFolder folder_of(const TempFolder& temp, const std::string& name,
                                const std::vector<CutTensor>& tensors) {
  std::vector<formats::TensorSource> sources;
  std::vector<std::vector<float>> values;
  float next = 0;
  for (const CutTensor& one : tensors) {
    std::vector<float>& own = values.emplace_back(static_cast<size_t>(one.shape.count()));
    std::iota(own.begin(), own.end(), next);
    next += static_cast<float>(own.size());
    sources.push_back(
        formats::TensorSource::of(one.name, TensorView::of(own.data(), one.dtype, one.shape)));
  }
  succeed(make_folders(temp / name));
  succeed(formats::write_tensor_folder(temp / name, sources, {}));
  return value_of(formats::TensorFolder::open(temp / name));
}

std::vector<CutTensor> cut(const std::vector<int64_t>& rows) {
  std::vector<CutTensor> tensors;
  for (size_t i = 0; i < rows.size(); ++i) {
    tensors.push_back({kCutNames[i], Shape{rows[i], 1, kTapsOfAll}});
  }
  return tensors;
}

TEST(JoinedRows, AreReadWhereverTheTensorsAreCut) {
  const TempFolder temp;
  const std::vector<CutTensor> whole = {{"all.weight", Shape{kAllRows, 1, kTapsOfAll}}};
  int joined = 0, folders = 0;
  for (const auto& tensors :
       {cut({2, 2, 4}), cut({3, 3, 2}), cut({1, 1, 6}), cut({6, 1, 1}), cut({2, 1, 5}), whole}) {
    const auto files = folder_of(temp, std::to_string(folders++), tensors);
    for (const ParamSpec& spec : parameters()) {
      LoadBuffer buffer;
      TensorView got;
      if (is_joined(files, spec)) {
        succeed(check_joined(files, spec));
        got = value_of(read_joined(files, spec, buffer));
        ++joined;
      } else {
        got = value_of(files.view(spec.name));
      }
      ASSERT_EQ(got.shape, spec.shape) << spec.name;
      for (int64_t i = 0; i < got.count(); ++i) {
        EXPECT_EQ(got.as<float>()[i], static_cast<float>(spec.joined->first * kTapsOfAll + i))
            << spec.name;
      }
    }
  }
  EXPECT_EQ(joined, 0 + 3 + 3 + 3 + 2 + 3);
}

TEST(JoinedRows, RefusesTensorsThatDoNotMakeAllRows) {
  const TempFolder temp;
  const ParamSpec values = parameters()[2];
  const auto refused = [&](const std::vector<CutTensor>& tensors, Code code,
                           const std::string& word) {
    static int count = 0;
    const auto files = folder_of(temp, "refused" + std::to_string(++count), tensors);
    EXPECT_TRUE(is_joined(files, values));
    LoadBuffer buffer;
    const auto read = read_joined(files, values, buffer);
    for (const Error& error : {check_joined(files, values).error(), read.error()}) {
      EXPECT_EQ(error.code, code) << error.message;
      EXPECT_NE(error.message.find(word), std::string::npos) << error.message;
    }
  };
  const auto with = [](std::vector<CutTensor> tensors, size_t at, CutTensor other) {
    tensors[at] = std::move(other);
    return tensors;
  };
  const std::vector<CutTensor> thirds = cut({3, 3, 2});
  refused(cut({3, 3, 1}), Code::kCorrupt, "7 rows");
  refused(cut({3, 3, 3}), Code::kCorrupt, "v.weight");
  refused(cut({4, 4, 2}), Code::kCorrupt, "v.weight");
  refused(cut({3, 0, 5}), Code::kCorrupt, "k.weight");
  refused(with(thirds, 0, {"other", Shape{3, 1, kTapsOfAll}}), Code::kNotFound, "q.weight");
  refused(with(thirds, 0, {"q.weight", Shape{3, 1, 4}}), Code::kCorrupt, "q.weight");
  refused(with(thirds, 0, {"q.weight", Shape{3, kTapsOfAll}}), Code::kCorrupt, "q.weight");
  refused(with(thirds, 2, {"v.weight", Shape{2, 1, kTapsOfAll}, DType::kBF16}), Code::kCorrupt,
          "BF16");
  refused(with(thirds, 2, {"v.weight", Shape{2, 1, kTapsOfAll}, DType::kI32}), Code::kUnsupported,
          "I32");
  refused({{"all.weight", Shape{7, 1, kTapsOfAll}}}, Code::kCorrupt, "7 rows");
  refused({{"all.weight", Shape{9, 1, kTapsOfAll}}}, Code::kCorrupt, "all.weight");
}

// Folders of transformers have three equal parts, or one tensor, and names of their own.
TEST(JoinedRows, FoldersAreWrittenAsPublishedOnesAre) {
  for (const char* name : {"olmo_hybrid", "olmo_hybrid_turned"}) {
    SCOPED_TRACE(name);
    const TempFolder temp;
    const auto config = value_of(formats::load_model_config(fixture(name)));
    Trainee trainee(config, {}), again(config, {});
    const auto before = value_of(formats::TensorFolder::open(fixture(name)));
    succeed(load_weights(trainee.weights(), trainee.stream(), before));
    succeed(save_model(temp / "again", Masters::of(trainee.weights()), trainee.stream(), {}));
    const auto written = value_of(formats::TensorFolder::open(temp / "again"));
    const std::string layer = "model.layers.0.";
    for (const char* tensor : {"attention_layer_norm", "feedforward_layer_norm"}) {
      EXPECT_TRUE(written.find(layer + tensor + ".weight")) << tensor;
    }
    EXPECT_TRUE(written.find("model.layers.1.post_attention_layernorm.weight"));
    for (const auto& [part, columns] : {std::pair{"q", config.delta.key_columns()},
                                        {"k", config.delta.key_columns()},
                                        {"v", config.delta.value_columns()}}) {
      const auto* conv = written.find(layer + "linear_attn." + part + "_conv1d.weight");
      ASSERT_TRUE(conv) << part;
      EXPECT_EQ(conv->dims, (std::vector<int64_t>{columns, 1, config.delta.kernel}));
    }
    succeed(load_weights(again.weights(), again.stream(), written));
    const auto params = trainee.weights().trainable(), others = again.weights().trainable();
    ASSERT_EQ(params.size(), others.size());
    for (size_t i = 0; i < params.size(); ++i) {
      const auto bytes = static_cast<size_t>(params[i].value.count() * 4);
      EXPECT_EQ(std::memcmp(params[i].value.data, others[i].value.data, bytes), 0)
          << params[i].spec->name;
    }
  }
}

}  // namespace
}  // namespace jige::model
