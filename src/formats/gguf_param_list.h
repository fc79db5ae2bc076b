// The list of a model's parameters as GGUF files have them, made layer by layer.
//
// Internal to the gguf_param*.cc files. Threads: values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/gguf_params.h"

namespace jige::formats {

// How the parts of a model and its layers are called in folders of a family, and some norms in
// files.
struct GgufLayerNames {
  std::string table = "model.embed_tokens";
  std::string layers = "model.layers.";
  std::string last = "model.norm";
  const char* last_stored = "output_norm";
  std::string head = "lm_head";
  bool head_wanted = false;  // readers look for one, even where it is the table
  const char* first = "input_layernorm";
  const char* second = "post_attention_layernorm";
  const char* second_stored = "ffn_norm";
  const char* after_attention = "post_attention_layernorm";
  const char* after_mlp = "post_feedforward_layernorm";
  const char* query_norm = "self_attn.q_norm";
  const char* key_norm = "self_attn.k_norm";
  const char* output = "self_attn.o_proj";
  const char* gate = "mlp.gate_proj";
  const char* up = "mlp.up_proj";
  const char* down = "mlp.down_proj";
};

// And of experts.
struct GgufExpertNames {
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
  const char* at = "mlp.";
  const char* router = "gate";
  const char* choice_bias = "gate.e_score_correction_bias";
  const char* shared = "shared_experts";
  bool has_gate = true;
};

class GgufParamList {
 public:
  GgufParamList(const ModelConfig& config, GgufLayout layout, const GgufHeader* file,
                bool keep_blocks);

  std::vector<GgufParam> make();

 private:
  // gguf_params.cc
  void add_gpt2();
  void add_turned(const std::string& stored, const std::string& name, int64_t in, int64_t out);
  void add(std::string stored, std::string name, Shape shape, RowOrder order = RowOrder::kSame,
           int64_t heads = 1);
  // Where it is tied to a table that is named, the table again when it is written.
  void add_head(std::string name, std::string_view table = "");
  // Weight and, if there is one, bias of a linear.
  void add_linear(const std::string& stored, const std::string& name, int64_t out, int64_t in,
                  bool bias, int64_t paired_heads = 0);
  void add_norm(const std::string& stored, const std::string& name, int64_t columns);
  // In another shape, or with other numbers.
  void add_reshaped(const std::string& stored, std::vector<int64_t> dims, std::string name,
                    Shape shape, GgufChange change = GgufChange::kNone);
  void add_made(std::string name, Shape shape, GgufMade made);
  bool file_has(const std::string& tensor) const { return file_ && file_->find(tensor); }

  // gguf_param_layers.cc
  void add_gated_family();
  void add_layer(int64_t layer);
  void add_attention(const std::string& from, const std::string& to, int64_t layer);
  void add_feed_forward(const std::string& from, const std::string& to, int64_t layer);
  void add_mlp(const std::string& from, const std::string& to, int64_t layer);
  void add_query_key_value(const std::string& from, const std::string& to, const HeadShape& heads,
                           bool keys, bool values);
  void add_parts_of_one(const std::string& from, const std::string& to, int64_t query, int64_t kv);
  void add_head_norms(const std::string& from, const std::string& to, const HeadShape& heads,
                      bool keys);
  void add_latent(const std::string& from, const std::string& to);
  void add_xielu(const std::string& to, int64_t layer);
  void add_layer_inputs();
  void add_gemma4_end(const std::string& from, const std::string& to);

  // gguf_param_experts.cc
  void add_experts(const std::string& from, const std::string& to);
  void add_shared_expert(const std::string& from, const std::string& at,
                         const GgufExpertNames& names);
  void add_granite_mlp(const std::string& from, const std::string& to, bool experts);
  void add_gemma4_experts(const std::string& from, const std::string& to);
  void add_gpt_oss_experts(const std::string& from, const std::string& to);
  void add_gpt_oss_matrices(const std::string& from, const std::string& at);
  void add_gpt_oss_blocks(const std::string& from, const std::string& at);
  // Matrices one behind the other, in the file and in the folder.
  void add_stacked(const std::string& stored, std::string name, int64_t count, int64_t out,
                   int64_t in);
  // `count` times rows of the first tensor and as many of the second.
  void add_joined(const std::string& first, const std::string& second, std::string name,
                  Shape shape, int64_t count);

  // gguf_param_recurrent.cc
  void add_recurrent(const std::string& from, const std::string& to);
  void add_delta(const std::string& from, const std::string& at);
  void add_delta_of_next(const std::string& from, const std::string& at);
  void add_mamba2(const std::string& from, const std::string& at);
  // Multipliers that files do not have are in the matrices that are written.
  void scale_last(double scale);
  void add_nemotron_h();
  void add_nemotron_part(const std::string& from, const std::string& at, int64_t layer);
  // Rows, or numbers of a row, that stand elsewhere in the file: number i of the folder at
  // place(i).
  void add_moved_rows(const std::string& stored, std::vector<int64_t> dims, std::string name,
                      Shape shape, std::function<int64_t(int64_t)> place);
  void add_moved_columns(const std::string& stored, std::string name, Shape shape,
                         std::function<int64_t(int64_t)> place,
                         GgufChange change = GgufChange::kNone);

  const ModelConfig& c_;
  const GgufLayout layout_;
  const GgufHeader* file_;
  const bool keep_blocks_;
  const GgufLayerNames names_;
  std::vector<GgufParam> params_;
};

GgufLayerNames gguf_layer_names(Family family);
GgufExpertNames gguf_expert_names(Family family);

}  // namespace jige::formats
