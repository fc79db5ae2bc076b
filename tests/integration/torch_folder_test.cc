// Folders whose weights torch.save wrote: every command has of them what it has of safetensors.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "formats/safetensors.h"
#include "formats/torch_test_support.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

namespace fs = std::filesystem;

// Copies of the tiny model whose weights are in either container, in shards of both, and stored by
// column.
class TorchFolders {
 public:
  TorchFolders() {
    const auto file = formats::open_safetensors(TinyRun::get().model() + "/model.safetensors");
    EXPECT_TRUE(file);
    const auto tensors = formats::torch_tensors(*file);
    const auto half = tensors.begin() + static_cast<ptrdiff_t>(tensors.size() / 2);
    const std::vector<formats::TorchTensor> parts[] = {{tensors.begin(), half},
                                                       {half, tensors.end()}};
    write_text(add("archive") + "/pytorch_model.bin", formats::torch_archive(tensors));
    write_text(add("legacy") + "/pytorch_model.bin", formats::torch_legacy_file(tensors));
    const std::string shards = add("shards");
    const std::string names[] = {"pytorch_model-00001-of-00002.bin",
                                 "pytorch_model-00002-of-00002.bin"};
    write_text(shards + "/" + names[0], formats::torch_archive(parts[0], true));
    write_text(shards + "/" + names[1], formats::torch_legacy_file(parts[1]));
    Json map = Json::object();
    for (size_t i = 0; i < 2; ++i) {
      for (const formats::TorchTensor& tensor : parts[i]) map[tensor.name] = names[i];
    }
    write_text(shards + "/pytorch_model.bin.index.json", dump_json({{"weight_map", map}}));
    write_text(add("by_column") + "/pytorch_model.bin",
               formats::torch_archive(formats::transposed(tensors)));
  }

  const std::vector<std::string>& folders() const { return folders_; }
  std::string path(const std::string& name) const { return root_ / name; }

 private:
  std::string add(const std::string& name) {
    // Exports name a model by its folder.
    folders_.push_back(root_ / name + "/tiny");
    fs::create_directories(root_ / name);
    fs::copy(TinyRun::get().model(), folders_.back(), fs::copy_options::recursive);
    fs::remove(folders_.back() + "/model.safetensors");
    return folders_.back();
  }

  TestFolder root_;
  std::vector<std::string> folders_;
};

TEST(TorchFolders, AnswerAsThoseOfSafetensors) {
  const TorchFolders torch;
  const auto answer = [](const std::string& model) {
    const Outcome outcome =
        run_jige({"generate", model, "--prompt", "The", "--max-new-tokens", "8", "--seed", "1"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  const auto weights = [](const std::string& model) {
    const Outcome outcome = run_jige({"inspect", model, "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    Json json = outcome.json()["weights"];
    json.erase("files");
    return json;
  };
  const std::string wanted = answer(TinyRun::get().model());
  ASSERT_FALSE(wanted.empty());
  for (const std::string& folder : torch.folders()) {
    SCOPED_TRACE(folder);
    EXPECT_EQ(answer(folder), wanted);
    EXPECT_EQ(weights(folder), weights(TinyRun::get().model()));
  }
}

TEST(TorchFolders, AreTrainedAndExportedAsThoseOfSafetensors) {
  const TorchFolders torch;
  const auto trained = [&](const std::string& model, const std::string& run) {
    const Outcome outcome = run_jige({"train", "--from", model, "--data", TinyRun::get().corpus(),
                                      "--steps", "2", "--batch-tokens", "384",
                                      "--micro-batch-tokens", "192", "--out", torch.path(run)});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return model_of(torch.path(run));
  };
  EXPECT_TRUE(trained(torch.folders()[3], "runs/torch") ==
              trained(TinyRun::get().model(), "runs/safetensors"));
  const auto exported = [&](const std::string& model, const std::string& name) {
    const Outcome outcome = run_jige({"export", model, "--gguf", torch.path(name)});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return read_text(torch.path(name));
  };
  const std::string twin = torch.path("twin/tiny");
  fs::create_directories(torch.path("twin"));
  fs::copy(TinyRun::get().model(), twin, fs::copy_options::recursive);
  EXPECT_TRUE(exported(torch.folders()[2], "torch.gguf") == exported(twin, "twin.gguf"));
  // What Jige could not make again is not written over.
  expect_error(run_jige({"export", TinyRun::get().run(), torch.folders()[0], "--replace"}), 2,
               {"pytorch_model.bin"});
  EXPECT_TRUE(fs::exists(torch.folders()[0] + "/pytorch_model.bin"));
}

}  // namespace
}  // namespace jige::integration
