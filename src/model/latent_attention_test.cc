// What latents change around attention: the cache, the width of heads, and the order of rows.
// That answers are those of transformers, in training and over the cache, is tested with the other
// families' (inference_test.cc, training_test.cc, adapter_test.cc).
#include <set>

#include "formats/test_support.h"
#include "model/architecture.h"
#include "model/memory_plan.h"
#include "model/model_test_support.h"
#include "model/tiny_config_test_support.h"

namespace jige::model {
namespace {

using formats::Family;

// As DeepSeek-V2-Lite has them.
formats::ModelConfig wide_config() {
  formats::ModelConfig config = testing::tiny_config(Family::kDeepSeekV2);
  config.head_count = config.kv_head_count = 16;
  config.head_dim = 192;
  config.rotary_dim = 64;
  config.latent = {.rank = 512, .value_dim = 128};
  return config;
}

TEST(LatentAttention, CacheHoldsLatentsInsteadOfHeads) {
  const formats::ModelConfig config = wide_config();
  EXPECT_EQ(cache_shape(config, 0).kv_head_count, 1);
  EXPECT_EQ(cache_shape(config, 0).head_dim, 576);
  EXPECT_EQ(cache_bytes(config, 0, DType::kBF16, 3), 3 * 16 * 2 * 576 * 2);
  const auto architecture = testing::value_of(Architecture::create(config));
  InferenceSizes sizes;
  sizes.batch_tokens_max = 16;
  sizes.kv_block_count = 4;
  sizes.compute = sizes.kv_dtype = DType::kBF16;
  EXPECT_EQ(inference_memory(*architecture, sizes).kv_bytes_per_token, 2 * 2 * 576 * 2);
  EXPECT_EQ(cache_shape(testing::tiny_config(Family::kLlama), 0).kv_head_count, 2);
}

TEST(LatentAttention, HeadsWiderThanAttentionTakesAreRefused) {
  formats::ModelConfig config = wide_config();
  config.latent.rank = 577;
  EXPECT_FAILS_WITH(Architecture::create(config), Code::kUnsupported, "kv_lora_rank");
  config = testing::tiny_config(Family::kLlama);
  config.head_dim = 642;
  EXPECT_FAILS_WITH(Architecture::create(config), Code::kUnsupported, "heads of 642 columns");
  config.head_dim = 640;
  EXPECT_TRUE(Architecture::create(config));
}

TEST(StoredRows, MoveThoseBetweenThatStayAlone) {
  const StoredRows order{.outer = 2, .turns = 3, .parts = {1, 1}, .kept = 1, .ahead = 4};
  std::set<int64_t> places;
  for (int64_t row = 0; row < 22; ++row) places.insert(order.at(row));
  EXPECT_EQ(places.size(), 22u);
  EXPECT_EQ(*places.rbegin(), 21);
  for (const int64_t block : {0, 11}) {
    for (const int64_t stays : {0, 3, 10}) EXPECT_EQ(order.at(block + stays), block + stays);
    // Halves here, neighbours there.
    EXPECT_EQ(order.at(block + 4), block + 4);
    EXPECT_EQ(order.at(block + 5), block + 6);
    EXPECT_EQ(order.at(block + 7), block + 5);
    EXPECT_EQ(order.at(block + 9), block + 9);
  }
}

TEST(StoredRows, TakePartsOfTheirOwnHeightInTurns) {
  const StoredRows order{.outer = 2, .turns = 3, .parts = {2, 1, 4}, .ahead = 1};
  std::vector<int64_t> here;  // rows in the order of files
  for (int64_t block : {0, 22}) {
    here.push_back(block);
    for (int64_t turn = 0; turn < 3; ++turn) {
      for (int64_t i = 0; i < 2; ++i) here.push_back(block + 1 + 2 * turn + i);
      here.push_back(block + 7 + turn);
      for (int64_t i = 0; i < 4; ++i) here.push_back(block + 10 + 4 * turn + i);
    }
  }
  for (size_t there = 0; there < here.size(); ++there) {
    EXPECT_EQ(order.at(here[there]), static_cast<int64_t>(there));
  }
}

}  // namespace
}  // namespace jige::model
