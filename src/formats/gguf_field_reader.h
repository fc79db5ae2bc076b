// The keys of a GGUF file as fields of a config.json: what families share.
//
// Internal to the gguf_config_*.cc files. Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "formats/gguf.h"
#include "formats/model_config.h"

namespace jige::formats {

class GgufFieldReader {
 public:
  explicit GgufFieldReader(const GgufFile& file) : file_(file), keys_(file.metadata()) {}

  Result<ModelConfig> run();

 private:
  // gguf_config_fields.cc
  Status read_family();
  Status read_sizes();
  Status read_heads();
  Status read_turned_columns();
  Status read_parts();
  // Without the rotary scaling, which is read after that.
  Result<ModelConfig> parse() const;

  std::string key(std::string_view name);  // that is read from here on
  tl::unexpected<Error> contradiction(std::string_view name, int64_t value,
                                      const std::string& other);
  // The field has the key's number; in the second form, a number of its own where it is missing.
  Status put_int(const char* field, std::string_view name);
  Status put_int_or(const char* field, std::string_view name, int64_t usual);
  Status put_number_or(const char* field, std::string_view name, double usual);
  Status put_flag_or(const char* field, std::string_view name, bool usual);
  // 1 where the key is 0 or missing, as readers of files have it.
  Status put_scale(const char* field, std::string_view name);
  bool has_tensor(std::string_view name) const { return file_.header().find(name) != nullptr; }
  // Of a layer.
  bool has_part(int64_t layer, std::string_view name) const;
  int64_t rows_of(std::string_view name) const;  // 0: there is no such tensor
  // A number for each layer, where a key has an array of them or one for all.
  Result<std::vector<int64_t>> by_layer(std::string_view name);
  Result<std::vector<uint8_t>> flags_by_layer(std::string_view name, std::vector<uint8_t> usual);
  // Layers with the window are those that a key says, or all but every `period`th.
  Status put_windows(int64_t period);
  Status put_layer_types(const std::vector<uint8_t>& flags, const char* set, const char* unset);
  Status expect_gating(int64_t function);

  // gguf_config_hybrids.cc
  bool may_have_layers_without_attention() const;
  std::vector<uint8_t> layers_without_attention() const;
  bool any_has(std::string_view name) const;
  Result<int64_t> head_size(std::string_view columns, std::string_view heads);
  Status read_delta();
  Status read_short_conv();
  Status read_granite();
  bool is_bamba() const;
  Status read_bamba();
  Status read_expanded_mamba();
  Status read_mamba2(const char* const (&fields)[5]);
  Status read_nemotron_h();
  std::string nemotron_pattern() const;

  // gguf_config_experts.cc
  Status read_chosen_experts(const char* count, const char* ffn);
  Status read_deepseek_experts();
  Status read_latents();
  Status read_gpt_oss();
  Status read_gemma4();
  Status read_gemma4_heads(const std::vector<uint8_t>& sliding);
  Status read_gemma4_angles(int64_t full_head_dim);
  Status read_ernie();
  Status read_minimax();
  Status read_hunyuan();
  Status read_xielu();

  // gguf_config_further.cc
  Status read_further_parts(bool biases);
  Status read_phi3();
  Status read_minicpm3();
  Status read_olmo3();
  Status read_gpt_neox();
  Status read_falcon();
  Status read_jais2();
  Status set_sliding_rope(ModelConfig& config);

  const GgufFile& file_;
  const GgufMetadata& keys_;
  std::string prefix_;
  Family family_ = Family::kLlama;
  int64_t layers_ = 0;
  std::vector<int64_t> kv_heads_;  // per layer; 0: it has no attention
  std::set<std::string, std::less<>> read_;
  Json out_ = Json::object();
};

}  // namespace jige::formats
