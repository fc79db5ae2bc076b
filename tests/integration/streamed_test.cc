// Models on a GPU that has no room for all of their layers, by emulated GPUs (jige_emulated): as
// users run them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "integration/emulated_gpus.h"
#include "integration/serving.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class StreamedLayers : public OnEmulatedGpus {
 protected:
  // A model of four layers, trained for a few steps.
  std::string four_layers() const {
    std::vector<std::string> words = tiny_train_arguments(TinyRun::get().corpus(), 6);
    *(std::ranges::find(words, "--layers") + 1) = "4";
    EXPECT_EQ(run_with(words, {"--out", folder_ / "run"}).exit_code, 0);
    return folder_ / "run/model";
  }
  static Outcome generate(const std::string& model, const std::vector<std::string>& more) {
    return run_with({"generate", model, "--prompt", "the", "--temperature", "0", "--max-new-tokens",
                     "6", "--context", "32"},
                    more);
  }
  // What stands between two parts of an error.
  static std::string between(const Outcome& outcome, const std::string& one,
                             const std::string& other) {
    const size_t begin = outcome.err.find(one);
    const size_t end = outcome.err.find(other, begin);
    EXPECT_NE(begin, std::string::npos) << outcome.err;
    EXPECT_NE(end, std::string::npos) << outcome.err;
    if (begin == std::string::npos || end == std::string::npos) return "";
    std::string text = outcome.err.substr(begin + one.size(), end - begin - one.size());
    std::erase(text, ' ');
    return text;
  }

  TestFolder folder_;
};

TEST_F(StreamedLayers, GenerateTheTextOfLayersThatStay) {
  const std::string model = four_layers();
  const Outcome whole = generate(model, {"--device", "cuda"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.err, Not(HasSubstr("stream")));
  const Outcome asked = generate(model, {"--device", "cuda", "--resident-layers", "1"});
  ASSERT_EQ(asked.exit_code, 0) << asked.err;
  EXPECT_EQ(asked.out, whole.out);
  EXPECT_THAT(asked.err,
              AllOf(HasSubstr("1 of 4 layers on the GPU, 3 stream from memory: at least"),
                    HasSubstr("ms an iteration at"), HasSubstr("GB/s")));

  const Outcome small = generate(model, {"--device", "cuda", "--device-memory", "64KiB"});
  expect_error(small, 6, {"no layer of 4 on the GPU it takes", "64.0 KiB", "--device-memory"});
  const std::string least = between(small, "it takes ", " there");
  const Outcome fits = generate(model, {"--device", "cuda", "--device-memory", least});
  ASSERT_EQ(fits.exit_code, 0) << fits.err;
  EXPECT_EQ(fits.out, whole.out);
  EXPECT_THAT(fits.err, HasSubstr("0 of 4 layers on the GPU"));
  // A limit refuses what does not fit.
  expect_error(generate(model, {"--device", "cuda", "--memory-limit", least}), 6,
               {"the memory limit is", "--device-memory"});
  expect_error(generate(model, {"--device", "cuda", "--resident-layers", "5"}), 2,
               {"--resident-layers", "5", "4"});
}

TEST_F(StreamedLayers, AreRefusedOnAProcessor) {
  const std::string model = TinyRun::get().model();
  expect_error(generate(model, {"--device-memory", "1GiB"}), 2,
               {"--device-memory", "host's memory anyway", "--device cuda"});
  expect_error(generate(model, {"--resident-layers", "1"}), 2,
               {"--resident-layers", "host's memory anyway"});
  expect_error(run_jige({"inspect", model, "--resident-layers", "1"}), 2,
               {"--resident-layers", "--device cuda"});
}

TEST_F(StreamedLayers, AreInspectedServedAndProfiled) {
  const std::string model = four_layers();
  const std::vector<std::string> inspect = {"inspect", model, "--device", "cuda", "--json"};
  const Json whole = run_jige(inspect).json()["memory"]["run"];
  const Json some = run_with(inspect, {"--resident-layers", "1"}).json()["memory"]["run"];
  EXPECT_FALSE(whole.contains("host_parts"));
  const int64_t slots = some["parts"]["slots of layers that stream"];
  EXPECT_GT(slots, 0);
  EXPECT_EQ(2 * some["host_parts"]["layers that stream, pinned"].get<int64_t>(), 3 * slots);
  EXPECT_LT(some["total_bytes"], whole["total_bytes"]);
  const std::string bytes = some["total_bytes"].dump();
  EXPECT_EQ(run_with(inspect, {"--device-memory", bytes}).json()["memory"]["run"], some);
  EXPECT_THAT(run_jige({"inspect", model, "--device", "cuda", "--resident-layers", "1"}).out,
              AllOf(HasSubstr("1 of 4 layers on the GPU"),
                    HasSubstr("ms an iteration, if copies reach 25 GB/s")));
  expect_error(run_with(inspect, {"--device-memory", "64KiB"}), 6, {"no layer of 4", "64.0 KiB"});

  const std::vector<std::string> serve = {model,       "--json",      "--device",
                                          "cuda",      "--context",   "32",
                                          "--threads", "1",           "--constraint-memory",
                                          "1MiB",      "--max-batch", "4"};
  const auto served = [&](const std::string& flag, const std::string& value) {
    std::vector<std::string> words = serve;
    words.insert(words.end(), {flag, value});
    return serve_and_stop(words);
  };
  const Outcome small = served("--device-memory", "64KiB");
  expect_error(small, 6, {"a memory limit of 64.0 KiB is too small", "where 4 of 4 layers stream"});
  const Outcome fits = served("--device-memory", between(small, "give at least ", " bytes"));
  ASSERT_EQ(fits.exit_code, 0) << fits.err;
  EXPECT_THAT(fits.out, HasSubstr("\"streamed_layers\":4"));
  EXPECT_THAT(fits.err, HasSubstr("0 of 4 layers on the GPU"));
  const Outcome asked = served("--resident-layers", "3");
  ASSERT_EQ(asked.exit_code, 0) << asked.err;
  EXPECT_THAT(asked.err, HasSubstr("3 of 4 layers on the GPU, 1 streams from memory"));

  const Outcome profiled =
      run_jige({"profile", "serve", model, "--device", "cuda", "--resident-layers", "0",
                "--seconds", "1", "--context", "32", "--max-batch", "2", "--batch-tokens", "16",
                "--kv-tokens", "128", "--json"});
  ASSERT_EQ(profiled.exit_code, 0) << profiled.err;
  EXPECT_EQ(profiled.json_lines().back()["model"]["weights"], "none, 4 layers stream");
}

}  // namespace
}  // namespace jige::integration
