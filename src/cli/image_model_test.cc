// Memory that is kept for reading images, beside what does when it is loaded.
#include "cli/image_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "cli/memory_report.h"
#include "serve/serve_test_support.h"
#include "train/test_support.h"

namespace jige::cli {
namespace {

using serve::testing::value_of;
using ::testing::HasSubstr;

const std::string kF32Folder = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/image_towers/gemma3";

// The tower's weights say what it computes in, whatever the language model's config does.
TEST(ImageMemory, IsOfTheTypeThatTheTowersWeightsHave) {
  const train::TestFolder folder;
  std::filesystem::copy(kF32Folder, folder.path(), std::filesystem::copy_options::recursive);
  Json config = value_of(parse_json(value_of(read_file(folder.file("config.json"))), "config"));
  config["dtype"] = "bfloat16";
  folder.write("config.json", dump_json(config));
  const auto language = value_of(formats::load_model_config(folder.path()));
  ASSERT_EQ(language.stored_dtype, DType::kBF16);

  CpuDevice device(CpuDeviceOptions{.thread_count = 1});
  const auto tokenizer = value_of(text::Tokenizer::load(folder.path()));
  const auto tower = value_of(
      load_image_tower(folder.path(), tokenizer, device, {.rows_max = language.context_max}, 0));
  EXPECT_EQ(tower->peak_bytes(), image_memory_bytes(folder.path(), 0, 0));

  const auto images = value_of(read_image_config(folder.path(), 0));
  const auto report = value_of(make_memory_report(
      language, {.images = images, .image_dtype = stored_image_dtype(folder.path(), *images)}));
  ASSERT_TRUE(report.images);
  EXPECT_EQ(report.run_dtype, DType::kBF16);
  EXPECT_EQ(report.images->total_bytes, tower->peak_bytes());
  EXPECT_THAT(report.images->title, HasSubstr("f32"));
}

TEST(ImageMemory, IsNoneWhereTheFolderHasNoWeights) {
  const train::TestFolder folder;
  folder.write("config.json", value_of(read_file(kF32Folder + "/config.json")));
  folder.write("preprocessor_config.json",
               value_of(read_file(kF32Folder + "/preprocessor_config.json")));
  const auto images = value_of(read_image_config(folder.path(), 0));
  ASSERT_TRUE(images);
  EXPECT_EQ(stored_image_dtype(folder.path(), *images), std::nullopt);
  EXPECT_EQ(image_memory_bytes(folder.path(), 0, 0), 0);
}

}  // namespace
}  // namespace jige::cli
