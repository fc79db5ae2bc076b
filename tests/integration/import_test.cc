// jige import: GGUF files as folders that the other commands take, and what they say of the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "integration/process.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

std::string gguf_fixture(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/gguf/" + name;
}

TEST(Import, MakesAFolderThatOtherCommandsTake) {
  for (const std::string name : {"llama3", "qwen2", "qwen3", "gpt2", "olmo2", "granite"}) {
    SCOPED_TRACE(name);
    const TestFolder folder;
    const std::string out = folder / "models/made";
    const Outcome made = run_jige({"import", gguf_fixture(name + ".gguf"), "--out", out, "--json"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_EQ(made.json()["folder"], out);
    EXPECT_EQ(made.json()["family"], name == "llama3" ? "llama" : name);
    EXPECT_EQ(made.json()["dtype"], name == "gpt2" ? "f32" : "bf16");
    EXPECT_EQ(run_jige({"inspect", out, "--json"}).exit_code, 0);
    const std::vector<std::string> drawn = {
        "--prompt", "abc", "--max-new-tokens", "5", "--temperature", "0", "--json"};
    std::vector<std::string> command = {"generate", out};
    command.insert(command.end(), drawn.begin(), drawn.end());
    EXPECT_EQ(run_jige(command).exit_code, 0);
    EXPECT_EQ(run_jige({"tokenize", out, "--text", "abc"}).exit_code, 0);
  }
}

TEST(Import, PrintsWhatItWroteAndObeysDtypeAndReplace) {
  const TestFolder folder;
  const std::string file = gguf_fixture("qwen2.gguf"), out = folder / "made";
  const Outcome first = run_jige({"import", file, "--out", out});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("qwen2 of"));
  EXPECT_THAT(first.out, HasSubstr("words as gpt-2"));
  expect_error(run_jige({"import", file, "--out", out}), 2, {"--replace"});
  const Outcome again =
      run_jige({"import", file, "--out", out, "--replace", "--dtype", "f32", "--json"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.json()["dtype"], "f32");
}

TEST(Import, OtherCommandsNameItWhenTheyAreGivenAGgufFile) {
  const TestFolder folder;
  const std::string file = folder / "it is.gguf";
  std::filesystem::copy_file(gguf_fixture("qwen2.gguf"), file);
  const std::string remedy = "`jige import '" + file + "' --out FOLDER`";
  const std::vector<std::vector<std::string>> commands = {
      {"inspect", file}, {"generate", file, "--prompt", "x"}, {"chat", file},
      {"serve", file},   {"score", file, "x.jsonl"},          {"tokenize", file, "--text", "x"},
  };
  for (const std::vector<std::string>& command : commands) {
    SCOPED_TRACE(command[0]);
    expect_error(run_jige(command), 2, {file + ": is a GGUF file", remedy});
  }
  expect_error(run_jige({"generate", folder.path(), "--prompt", "x"}), 3,
               {"holds no config.json but the GGUF file it is.gguf", remedy});
}

TEST(Import, SaysWhatIsWrongAndWritesNothing) {
  const TestFolder folder;
  const std::string out = folder / "made", text = folder / "text.gguf";
  write_text(text, "no such thing");
  expect_error(run_jige({"import", text, "--out", out}), 4, {text, "no GGUF file"});
  expect_error(run_jige({"import", folder / "none", "--out", out}), 3, {"no such file"});
  expect_error(run_jige({"import", folder.path(), "--out", out}), 2, {"is a folder"});
  expect_error(run_jige({"import", gguf_fixture("qwen2.gguf")}), 2, {"--out"});
  expect_error(run_jige({"import", gguf_fixture("types.gguf"), "--out", out}), 4, {"is missing"});
  expect_error(run_jige({"import", gguf_fixture("qwen2.gguf"), "--out", out, "--pre", "mine"}), 2,
               {"--pre: \"mine\"", "it knows llama-bpe"});
  EXPECT_THAT(run_jige({"import", "--help"}).out, HasSubstr("seed_oss, "));
  EXPECT_FALSE(exists(out));
}

}  // namespace
}  // namespace jige::integration
