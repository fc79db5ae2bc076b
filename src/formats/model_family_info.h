// What a row of the table of model families says: what all models of a family have, what
// transformers takes for fields of config.json that are left out, and fields that differ in
// spelling.
//
// Internal to the model_config*.cc and gguf_config*.cc files. Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// What of a head's queries and keys is normalised before it turns.
// kEachPlain: where heads turn, without weights.
enum class HeadNorms { kNone, kEach, kEachApart, kEachPlain, kWhole };

// Which linear layers have biases, and the fields of config.json that say so.
enum class BiasRule {
  kNone,
  kEverywhere,
  kQkv,              // on queries, keys and values
  kAttention,        // attention_bias: on the four projections of attention
  kAttentionAndMlp,  // the same, and mlp_bias
  kOutputApart,      // attention_bias without the output, attention_out_bias on it, and mlp_bias
  kQkvBias,          // qkv_bias: on queries, keys and values
  kUseBias,          // use_bias, or what bias_field names: everywhere
  kUseQkvBias,       // use_qkv_bias: on queries, keys and values
  kAttentionQkv,     // attention_bias: on queries, keys and values
  kMlp,              // mlp_bias: on the MLP
  kAttentionByMlp,   // attention_bias: on the four projections of attention; on the MLP always
  kNotMlpInput,      // everywhere but on the first products of the MLP
  kNotQkv,           // everywhere but on queries, keys and values
  kMlpAlways         // on the MLP alone, always
};

// Which layers do not turn: none, those that no_rope_layers says, those of theta 0 in
// layer_rope_theta, those without the window of models that have one, all unless
// position_embedding_type is rope, all where rope_theta is null, or all.
enum class UnturnedRule { kNone, kListed, kByTheta, kWithoutWindow, kUnlessRope, kIfNoTheta, kAll };

// Which layers may have the sliding window.
enum class WindowRule { kNone, kAllLayers, kSomeLayers };

// When sliding_window counts: unless it is null, where it is given, where use_sliding_window says
// so, or both of the last.
enum class WindowUse { kUnlessNull, kIfGiven, kIfSwitchedOn, kIfGivenAndSwitchedOn };

// Whether layers have the family's ResidualForm: all of them, or as use_parallel_residual says.
enum class ResidualUse { kAlways, kUnlessSwitchedOff, kIfSwitchedOn };

// How config.json says that tokens see those behind them: not at all, by is_causal, or by
// use_bidirectional_attention as well.
enum class AheadRule { kNone, kNotCausal, kEither };

struct FamilyInfo {
  Family family;
  std::string_view model_type;    // "llama"
  std::string_view causal_class;  // "LlamaForCausalLM"; of encoders base_class
  std::string_view base_class;    // "LlamaModel"
  std::string_view pair_class;    // of models that judge pairs of texts (pair_config.h); or empty
  bool llama_class = false;       // transformers writes Llama's classes for it

  // What all its models have.
  NormKind norm = NormKind::kRms;
  NormPlace norm_place = NormPlace::kBefore;
  std::string_view around_field = "";  // norms are before alone where it says no; empty: never
  bool recurrent_norms_before = false;
  bool norm_adds_one = false;
  bool norm_bias = true;
  std::string_view norm_bias_field = "";  // they are as it says; empty: always as above
  bool norm_weights = true;
  std::string_view norm_weights_field = "";  // they and biases are as it says; empty: as above
  bool bare_entry = false;  // the first layer's attention reads the embeddings without a norm
  HeadNorms head_norms = HeadNorms::kNone;
  bool norms_turned = false;               // norms of heads are behind their turning
  std::string_view head_norms_field = "";  // models have them where it says so; empty: always
  bool head_norms_usual = false;           // and where it is left out
  ResidualForm residual = ResidualForm::kSequential;
  ResidualUse residual_use = ResidualUse::kAlways;
  ActivationKind activation = ActivationKind::kSwiGlu;
  bool chooses_activation = false;  // any of kPlainActivations, that above where it is left out
  BiasRule biases = BiasRule::kNone;
  std::string_view bias_field = "use_bias";
  WindowRule windows = WindowRule::kNone;
  WindowUse window_use = WindowUse::kUnlessNull;
  int64_t full_period = 0;  // without layer_types each so manieth layer has no window; 0: none
  bool full_first = false;  // the first of so many, not the last
  UnturnedRule unturned = UnturnedRule::kNone;
  AheadRule ahead = AheadRule::kNone;
  bool two_ropes = false;          // layers with the window turn by other angles
  bool ropes_by_kind = false;      // rope_parameters have an object for either kind of layer
  bool proportional_rope = false;  // angles may be so
  bool turns_parts = false;        // turned_field counts
  double turned_factor = 1.0;      // where it is left out
  bool counts_turned = false;      // and rotary_dim, in columns
  bool turns_neighbours = false;
  bool turns_backwards = false;
  bool chooses_neighbours = false;  // unless rope_interleave says otherwise
  bool latent_attention = false;
  bool delta_layers = false;       // layer_types says which have a delta net in place of attention
  bool short_conv_layers = false;  // or a short convolution
  bool mamba1_layers = false;      // or a layer of Mamba
  StepNorms step_norms = StepNorms::kNone;  // in such ones
  bool mamba2_layers = false;               // or a layer of Mamba 2
  bool recurrent_only = false;              // and nothing else in any layer
  bool attention_beside = false;            // every layer has it, and attention beside it
  bool single_parts = false;    // a layer has attention, such a layer or a feed-forward part
  bool attention_gate = false;  // the query's matrix holds gates, too
  std::string_view head_gate_field = "";  // heads have a gate each unless it says no; empty: none
  bool layer_beyond = false;              // files have one more, which predicts further tokens
  bool fused_projections = false;
  bool chooses_fused = false;  // queries, keys and values are one product unless pack_qkv is false
  bool qkv_by_head = false;
  bool head_bias = false;
  bool attention_sinks = false;
  bool full_heads = false;  // layers without the window may have heads of their own
  bool chunks = false;  // layers that turn see chunks of tokens, queries of others grow (Llama 4)
  bool altup = false;   // AltUp, LAuReL, inputs of layers and sparse gates (Gemma 3n)
  bool value_norm = false;
  bool layer_scales = false;
  bool scores_by_head_dim = true;
  bool logits_cap_field = false;  // final_logit_softcapping counts
  bool embedding_norm = false;
  bool encoder = false;              // tokens see each other, and there is no head
  bool shares_heads = false;         // query heads may share those of keys, where others' do not
  bool learned_positions = false;    // of encoders, whose sizes are read as BERT's
  bool token_types = false;          // of encoders
  bool types_optional = false;       // there may be none of them
  bool position_table = false;       // of decoders: learned positions (model_config_learned.h)
  int64_t position_offset = 0;       // rows of theirs in front of the first token's
  bool distance_scores = false;      // attention scores depend on the distance
  bool distance_rows = false;        // by products with rows of a table
  bool chooses_score_scale = false;  // scale_attn_weights counts
  bool root_scale = false;           // embeddings times the root of the width
  bool logit_scale = false;
  bool granite_scales = false;     // embedding_multiplier, residual_multiplier and their like
  bool logits_multiplied = false;  // of these logits_scaling multiplies, and does not divide
  bool falcon_scales = false;      // embedding_multiplier, key_multiplier and their like
  // Scores by query_pre_attn_scalar, and fields of soft caps.
  bool gemma_scores = false;

  // How config.json spells two of its fields; rope_parameters have them as here.
  std::string_view theta_field = "rope_theta";
  std::string_view turned_field = "partial_rotary_factor";

  // What transformers takes for fields that are left out.
  bool ffn_of_width = false;  // F is four times the width; false: it must not be left out
  int64_t context = 0;        // 0: it must not be left out
  double norm_eps = 1e-6;
  int64_t kv_heads = 0;  // 0: as many as query heads
  int64_t head_dim = 0;  // 0: hidden_size by heads
  int64_t window = 4096;
  double theta = 1e4;
  int64_t token_type_count = 2;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool tied = false;
  double score_cap = 0;  // attn_logit_softcapping
  double logits_cap = 0;
  int64_t bos = 1, eos = 2, pad = -1;  // -1: none
  std::array<int64_t, 2> more_eos = {-1, -1};
};

}  // namespace jige::formats
