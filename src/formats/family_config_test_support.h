// A small config.json of any family, for the tests of what families read.
//
// Threads: free functions.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "formats/model_config.h"

namespace jige::formats {

inline Json family_json(const std::string& type) {
  return {{"model_type", type},       {"vocab_size", 96},
          {"hidden_size", 32},        {"intermediate_size", 48},
          {"num_hidden_layers", 4},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 256}};
}

inline Json changed(Json json, const Json& members) {
  for (const auto& [name, value] : members.items()) json[name] = value;
  return json;
}

inline Result<ModelConfig> parsed(const Json& json) {
  return parse_model_config(json, "config.json");
}

inline ModelConfig config_of(const Json& json) {
  const auto config = parsed(json);
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : ModelConfig();
}

}  // namespace jige::formats
