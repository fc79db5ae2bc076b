// What `jige bench inference` counts and compares.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cli/bench.h"
#include "model/tiny_config_test_support.h"

namespace jige::cli {
namespace {

using formats::Family;

// Decoding, as it was measured in the least time.
Measurement decoded(Family family, int64_t decode_context) {
  BenchOptions options{.dtype = DType::kF32,
                       .prompt_tokens = 2,
                       .new_tokens = 3,
                       .decode_context = decode_context,
                       .seconds = 0,
                       .read_bytes_min = 1};
  options.config = model::testing::tiny_config(family);
  CpuDevice device({.thread_count = 1});
  std::vector<Measurement> all;
  const Status measured =
      bench_inference(device, options, [&](const Measurement& found) { all.push_back(found); });
  EXPECT_TRUE(measured) << measured.error().message;
  const auto found = std::ranges::find(all, "decode", &Measurement::name);
  EXPECT_NE(found, all.end());
  return found == all.end() ? Measurement{} : *found;
}

TEST(BenchInference, TokensReadTheKeysOfThoseBeforeThem) {
  const formats::ModelConfig config = model::testing::tiny_config(Family::kLlama);
  const auto key_bytes =
      static_cast<double>(config.layer_count * 2 * config.kv_head_count * config.head_dim * 4);
  const Measurement first = decoded(Family::kLlama, 0);
  const Measurement later = decoded(Family::kLlama, 7);
  EXPECT_EQ(later.unit_bytes - first.unit_bytes, 7 * key_bytes);
  EXPECT_THAT(later.detail, testing::HasSubstr("3 tokens behind 7"));
  EXPECT_GT(later.value, 0);
}

// Every run goes on behind the same tokens, which recurrent layers have in a state.
TEST(BenchInference, RecurrentLayersDecodeBehindTokens) {
  const Measurement found = decoded(Family::kQwen35, 5);
  EXPECT_THAT(found.detail, testing::HasSubstr("3 tokens behind 5"));
  EXPECT_GT(found.value, 0);
}

}  // namespace
}  // namespace jige::cli
