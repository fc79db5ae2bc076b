// What config.json says of Hy3.
#include <utility>
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

TEST(Hy3Config, SaysLayersAndWeights) {
  const Json kinds = {"dense", "dense", "sparse", "sparse"};
  const Json members = {{"num_experts", 6},
                        {"num_experts_per_tok", 3},
                        {"num_shared_experts", 2},
                        {"router_scaling_factor", 1.5},
                        {"mlp_layer_types", kinds}};
  const ModelConfig config = config_of(changed(family_json("hy_v3"), members));
  EXPECT_EQ(config.layer_is_dense, (std::vector<uint8_t>{1, 1, 0, 0}));
  EXPECT_EQ(config.experts.weight_scale, 1.5);
  EXPECT_EQ(config.experts.shared_ffn_size, 2 * 1536);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  for (const auto& [field, wrong] :
       {std::pair<const char*, Json>{"mlp_bias", true},
        {"norm_topk_prob", false},
        {"n_group", 2},
        {"scoring_func", "softmax"},
        {"mlp_layer_types", {"sparse", "dense", "sparse", "sparse"}}}) {
    EXPECT_FALSE(parsed(changed(family_json("hy_v3"), {{field, wrong}}))) << field;
  }
  EXPECT_FAILS_WITH(parsed(changed(family_json("hy_v3"), {{"router_scaling_factor", 0}})),
                    Code::kCorrupt, "router_scaling_factor");
}

}  // namespace
}  // namespace jige::formats
