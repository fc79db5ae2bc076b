#include "formats/tensor_folder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "formats/json_file.h"
#include "formats/test_support.h"
#include "formats/torch_test_support.h"

namespace jige::formats {
namespace {

// Four tensors of 40 bytes, named t0 to t3, whose elements are their number.
struct Tensors {
  std::vector<std::vector<float>> data;
  std::vector<TensorSource> sources;

  explicit Tensors(float base = 0) {
    for (int i = 0; i < 4; ++i) data.emplace_back(10, base + static_cast<float>(i));
    for (int i = 0; i < 4; ++i) {
      sources.push_back(
          TensorSource::of(fmt::format("t{}", i),
                           TensorView::of(data[static_cast<size_t>(i)].data(), DType::kF32, {10})));
    }
  }
};

void expect_tensors(const std::string& folder, float base = 0) {
  const auto opened = TensorFolder::open(folder);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->tensors().size(), 4u);
  for (int i = 0; i < 4; ++i) {
    const auto view = opened->view(fmt::format("t{}", i));
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_EQ(view->as<float>()[9], base + static_cast<float>(i));
  }
}

TEST(TensorFolder, ReadsShardsThatTransformersWrote) {
  const auto folder = TensorFolder::open(fixture("weights/sharded_llama"));
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_EQ(folder->files().size(), 6u);
  const auto expected = load_json_object(fixture("weights/expected.json"));
  ASSERT_TRUE(expected);
  const Json& sums = expected->at("sharded_llama_sums");
  EXPECT_EQ(folder->tensors().size(), sums.size());
  for (const auto& [name, wanted] : sums.items()) {
    const auto view = folder->view(name);
    ASSERT_TRUE(view) << view.error().message;
    double sum = 0;
    for (int64_t i = 0; i < view->count(); ++i) sum += view->as<float>()[i];
    EXPECT_NEAR(sum, wanted.get<double>(), 1e-9) << name;
  }
}

TEST(TensorFolder, WritesOneFileOrShardsWithAnIndex) {
  const ScratchFolder scratch;
  const Tensors tensors;
  ASSERT_TRUE(write_tensor_folder(scratch.path(), tensors.sources));
  EXPECT_EQ(folder_entries(scratch.path()), std::vector<std::string>{"model.safetensors"});
  expect_tensors(scratch.path());

  // Two to a shard, then a new value under another split: stale files go.
  ASSERT_TRUE(write_tensor_folder(scratch.path(), Tensors(10).sources, {.shard_bytes_max = 90}));
  EXPECT_EQ(folder_entries(scratch.path()),
            (std::vector<std::string>{"model-00001-of-00002.safetensors",
                                      "model-00002-of-00002.safetensors",
                                      "model.safetensors.index.json"}));
  expect_tensors(scratch.path(), 10);
  ASSERT_TRUE(write_tensor_folder(scratch.path(), Tensors(20).sources, {.shard_bytes_max = 1}));
  EXPECT_EQ(folder_entries(scratch.path()).size(), 5u);
  expect_tensors(scratch.path(), 20);
  const auto index = load_json_object(scratch.file("model.safetensors.index.json"));
  ASSERT_TRUE(index);
  EXPECT_EQ(index->at("metadata").at("total_size"), 160);
  EXPECT_EQ(index->at("weight_map").at("t2"), "model-00003-of-00004.safetensors");

  write_or_fail(scratch.file("model-of-mine.safetensors"), "not ours");
  ASSERT_TRUE(write_tensor_folder(scratch.path(), tensors.sources));
  EXPECT_EQ(folder_entries(scratch.path()),
            (std::vector<std::string>{"model-of-mine.safetensors", "model.safetensors"}));
  expect_tensors(scratch.path());
}

TEST(TensorFolder, KeepsViewsWhenMoved) {
  auto folder = TensorFolder::open(fixture("weights/sharded_llama"));
  ASSERT_TRUE(folder);
  const void* data = folder->view("lm_head.weight")->data;
  const TensorFolder moved = std::move(*folder);
  EXPECT_EQ(moved.view("lm_head.weight")->data, data);
  EXPECT_FAILS_WITH(moved.view("absent"), Code::kNotFound, "no tensor \"absent\"");
}

TEST(TensorFolder, LeavesTheOldWeightsWhenASourceFails) {
  const ScratchFolder scratch;
  Tensors tensors;
  ASSERT_TRUE(write_tensor_folder(scratch.path(), tensors.sources, {.shard_bytes_max = 90}));
  const auto before = folder_entries(scratch.path());
  tensors.sources[3].produce = [](const RowSink&) -> Status {
    return fail(Code::kExhausted, "no room");
  };
  EXPECT_FAILS_WITH(write_tensor_folder(scratch.path(), tensors.sources, {.shard_bytes_max = 90}),
                    Code::kExhausted, "no room");
  EXPECT_EQ(folder_entries(scratch.path()), before);
  expect_tensors(scratch.path());
  tensors.sources[3] = tensors.sources[2];
  EXPECT_FAILS_WITH(write_tensor_folder(scratch.path(), tensors.sources, {.shard_bytes_max = 1}),
                    Code::kInvalidArgument, "\"t2\" is given twice");
}

TEST(TensorFolder, NamesAMissingShardAndItsTensor) {
  const ScratchFolder scratch;
  ASSERT_TRUE(write_tensor_folder(scratch.path(), Tensors().sources, {.shard_bytes_max = 90}));
  std::filesystem::remove(scratch.file("model-00002-of-00002.safetensors"));
  EXPECT_FAILS_WITH(TensorFolder::open(scratch.path()), Code::kNotFound,
                    "shard \"model-00002-of-00002.safetensors\" (for tensor \"t2\")");
}

TEST(TensorFolder, SaysWhereATensorOfAnotherShardReallyIs) {
  const ScratchFolder scratch;
  ASSERT_TRUE(write_tensor_folder(scratch.path(), Tensors().sources, {.shard_bytes_max = 90}));
  const std::string path = scratch.file("model.safetensors.index.json");
  std::string index = read_or_fail(path);
  index.replace(index.find("00001-of", index.find("\"t1\"")), 5, "00002");
  write_or_fail(path, index);
  const auto folder = TensorFolder::open(scratch.path());
  EXPECT_FAILS_WITH(folder, Code::kCorrupt,
                    "tensor \"t1\" is said to be in \"model-00002-of-00002.safetensors\"");
  EXPECT_FAILS_WITH(folder, Code::kCorrupt, "it is in " + scratch.file("model-00001-of-00002"));
}

TEST(TensorFolder, SaysWhatToDoAboutOtherWeights) {
  const ScratchFolder scratch;
  EXPECT_FAILS_WITH(TensorFolder::open(scratch.path()), Code::kNotFound,
                    "neither model.safetensors nor");
  EXPECT_FAILS_WITH(TensorFolder::open(scratch.file("absent")), Code::kNotFound, "is not a folder");
  write_or_fail(scratch.file("adapter_model.safetensors"), "");
  EXPECT_FAILS_WITH(TensorFolder::open(scratch.path()), Code::kNotFound, "is an adapter");
  write_or_fail(scratch.file("a.gguf"), "");
  EXPECT_FAILS_WITH(TensorFolder::open(scratch.path()), Code::kUnsupported,
                    "only as a.gguf; make a model folder of that file with `jige import`");
  write_or_fail(scratch.file("tf_model.h5"), "");
  EXPECT_FAILS_WITH(TensorFolder::open(scratch.path()), Code::kUnsupported, "only as tf_model.h5");
  EXPECT_FAILS_WITH(TensorFolder::open(scratch.path()), Code::kUnsupported, "save_pretrained");
  write_or_fail(scratch.file("pytorch_model.bin"), "");
  EXPECT_FAILS_WITH(TensorFolder::open(scratch.path()), Code::kCorrupt, "pytorch_model.bin: has 0");
  const ScratchFolder adapter;
  write_or_fail(adapter.file("adapter_model.bin"), "");
  EXPECT_FAILS_WITH(TensorFolder::open(adapter.path()), Code::kNotFound,
                    "is an adapter (adapter_model.bin)");
}

// The folder's tensors as torch.save writes them, to be read where there are no others.
std::vector<TorchTensor> torch_tensors_of(float base) {
  const ScratchFolder scratch;
  EXPECT_TRUE(write_tensor_folder(scratch.path(), Tensors(base).sources));
  const auto file = open_safetensors(scratch.file("model.safetensors"));
  return file ? torch_tensors(*file) : std::vector<TorchTensor>();
}

TEST(TensorFolder, ReadsFilesOfTorchWhereThereAreNoOthers) {
  const ScratchFolder scratch;
  const std::vector<TorchTensor> tensors = torch_tensors_of(10);
  for (const std::string& file : {torch_archive(tensors), torch_legacy_file(tensors)}) {
    write_or_fail(scratch.file("pytorch_model.bin"), file);
    expect_tensors(scratch.path(), 10);
  }
  // In the order of transformers; what is written counts, and torch's files stay.
  ASSERT_TRUE(write_tensor_folder(scratch.path(), Tensors(20).sources, {.shard_bytes_max = 90}));
  expect_tensors(scratch.path(), 20);
  EXPECT_TRUE(std::filesystem::exists(scratch.file("pytorch_model.bin")));
  ASSERT_TRUE(write_tensor_folder(scratch.path(), Tensors(30).sources));
  expect_tensors(scratch.path(), 30);
  EXPECT_TRUE(std::filesystem::exists(scratch.file("pytorch_model.bin")));
}

TEST(TensorFolder, ReadsShardsOfTorch) {
  const ScratchFolder scratch;
  const std::vector<TorchTensor> tensors = torch_tensors_of(10);
  const std::string first = "pytorch_model-00001-of-00002.bin";
  const std::string second = "pytorch_model-00002-of-00002.bin";
  write_or_fail(scratch.file(first), torch_archive({tensors[0], tensors[1]}));
  write_or_fail(scratch.file(second), torch_legacy_file({tensors[2], tensors[3]}));
  const auto write_index = [&](const std::string& of_t3) {
    Json map = {{"t0", first}, {"t1", first}, {"t2", second}, {"t3", of_t3}};
    const Json index = {{"metadata", {{"total_size", 160}}}, {"weight_map", map}};
    write_or_fail(scratch.file("pytorch_model.bin.index.json"), dump_json(index));
  };
  write_index(second);
  expect_tensors(scratch.path(), 10);
  write_index("pytorch_model-00003-of-00003.bin");
  EXPECT_FAILS_WITH(TensorFolder::open(scratch.path()), Code::kNotFound, "(for tensor \"t3\")");
  write_index("model-00002-of-00002.safetensors");
  EXPECT_FAILS_WITH(TensorFolder::open(scratch.path()), Code::kCorrupt,
                    "is not the plain name of a .bin file");
  write_or_fail(scratch.file("pytorch_model.bin"), torch_archive(torch_tensors_of(20)));
  expect_tensors(scratch.path(), 20);
}

TEST(TensorFolder, ReadsAnAdapterOfTorch) {
  const ScratchFolder scratch;
  write_or_fail(scratch.file("adapter_model.bin"), torch_archive(torch_tensors_of(0)));
  const auto folder = TensorFolder::open(scratch.path(), "adapter_model");
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_EQ(folder->tensors().size(), 4u);
  EXPECT_FAILS_WITH(TensorFolder::open(scratch.path(), "other"), Code::kNotFound,
                    "nor other.bin or other.bin.index.json");
}

TEST(TensorFolder, ReadsAnAdapterByItsStem) {
  const auto folder = TensorFolder::open(fixture("weights/adapter"), "adapter_model");
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_EQ(folder->tensors().size(), 4u);
  EXPECT_TRUE(folder->find("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"));
}

TEST(WeightIndex, RefusesEveryKindOfLie) {
  const std::pair<const char*, const char*> kLies[] = {
      {R"([])", "no object \"weight_map\""},
      {R"({})", "no object \"weight_map\""},
      {R"({"weight_map": {}})", "is empty"},
      {R"({"weight_map": []})", "no object \"weight_map\""},
      {R"({"weight_map": "x"})", "no object \"weight_map\""},
      {R"({"a": {"weight_map": {"t": "a.safetensors"}}})", "no object \"weight_map\""},
      {R"({"weight_map": {"t": 1}})", "unexpected a number"},
      {R"({"weight_map": {"t": null}})", "unexpected null"},
      {R"({"weight_map": {"t": {"x": "a.safetensors"}}})", "unexpected an object"},
      {R"({"weight_map": {"t": ["a.safetensors"]}})", "unexpected an array"},
      {R"({"weight_map": {"t": "a.safetensors", "t": "a.safetensors"}})", "listed twice"},
      {R"({"weight_map": {"t": "a.safetensors"}, "weight_map": {"u": "b.safetensors"}})",
       "appears twice"},
      {R"({"weight_map": {"t": "../a.safetensors"}})", "not the plain name"},
      {R"({"weight_map": {"t": "/etc/a.safetensors"}})", "not the plain name"},
      {R"({"weight_map": {"t": "..safetensors"}})", "not the plain name"},
      {R"({"weight_map": {"t": "passwd"}})", "not the plain name"},
      {R"({"weight_map": {"t": ""}})", "not the plain name"},
      {R"({"weight_map": {"t": "a.safetensors"})", "not valid JSON"},
      {"{\"weight_map\": {\"t\": \"\xff.safetensors\"}}", "not valid JSON"},
  };
  for (const auto& [text, words] : kLies) {
    EXPECT_FAILS_WITH(parse_weight_index(text, "index"), Code::kCorrupt, words);
  }
  const std::string long_name(5000, 'x');
  EXPECT_FAILS_WITH(parse_weight_index("{\"weight_map\": {\"" + long_name + "\": \"\"}}", "index"),
                    Code::kCorrupt, "a name has 5000 bytes");
  std::string many = R"({"weight_map": {)";
  for (size_t i = 0; i <= kShardCountMax; ++i) {
    many += fmt::format("{}\"t{}\": \"{}.safetensors\"", i ? "," : "", i, i);
  }
  EXPECT_FAILS_WITH(parse_weight_index(many + "}}", "index"), Code::kCorrupt, "more than");
}

TEST(WeightIndex, PassesOverEverythingElse) {
  const auto map = parse_weight_index(
      R"({"x": [[1], {"y": null}], "weight_map": {"t": "a.safetensors"}, "z": -1.5})", "index");
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(*map, (WeightMap{{"t", "a.safetensors"}}));
}

}  // namespace
}  // namespace jige::formats
