// ModelConfig: what an architecture is, in Jige's own terms, independent of the family's
// config.json.
//
// Shapes named once: V vocabulary, D width, L layers, H query heads, G key/value heads, d head
// dimension, F feed-forward width. One struct covers all families (model_families.h): they differ
// only in these fields and in the names of their tensors. Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "formats/family.h"
#include "formats/quantised_scheme.h"
#include "tensor/dtype.h"

namespace jige::formats {

// Limits far above any real model, so that products of sizes stay inside int64: parameters times
// bytes of training state and context times cache width are below 2^62.
inline constexpr int64_t kVocabMax = int64_t{1} << 24;
inline constexpr int64_t kHiddenMax = int64_t{1} << 18;
inline constexpr int64_t kLayersMax = int64_t{1} << 12;
inline constexpr int64_t kHeadsMax = int64_t{1} << 12;
inline constexpr int64_t kHeadDimMax = int64_t{1} << 12;
inline constexpr int64_t kAttentionWidthMax = int64_t{1} << 20;  // heads times head dimension
inline constexpr int64_t kFfnMax = int64_t{1} << 20;
inline constexpr int64_t kExpertsMax = int64_t{1} << 10;
inline constexpr int64_t kExpertWidthMax = int64_t{1} << 20;     // experts times width of one
inline constexpr int64_t kExpertsOfModelMax = int64_t{1} << 16;  // experts times layers
inline constexpr size_t kEosIdsMax = 256;
inline constexpr int64_t kContextMax = int64_t{1} << 26;

enum class NormKind { kRms, kLayer };
// Where the norms of a layer stand: before its attention and its MLP, behind them, both, or behind
// the sum of each with what it is added to (BERT), whose last one is the model's.
enum class NormPlace { kBefore, kAfter, kAround, kSum };
// How the two parts of a layer stand: the MLP reads what attention made of the residual stream, or
// both read the layer's input side by side, through a norm each or through one norm.
enum class ResidualForm { kSequential, kParallel, kParallelOneNorm };
// What a layer has of attention, or what stands in its place, and a feed-forward part.
enum class LayerParts : uint8_t { kBoth, kAttention, kFeedForward };
enum class ActivationKind {
  kSwiGlu,
  kGeGlu,     // in the tanh form
  kGeGluErf,  // in the exact form
  kGeluTanh,
  kGeluErf,
  kRelu,
  kReluSquared,
  kSilu,
  kXielu
};
// kNone: of models whose attention scores alone know where a token stands.
enum class PositionKind { kRotary, kLearned, kNone };
enum class RopeScaling { kNone, kLinear, kLlama3, kLongRope, kYarn, kProportional, kNtk };

// Whether an activation multiplies with a gate: gate and up are then two products.
constexpr bool has_gate(ActivationKind activation) {
  return activation == ActivationKind::kSwiGlu || activation == ActivationKind::kGeGlu ||
         activation == ActivationKind::kGeGluErf;
}

struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;            // linear, llama3, yarn, proportional and ntk
  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3
  int64_t original_context = 0;   // of some: original_max_position_embeddings
  // yarn: the turns within the original context from which a pair keeps its frequency, and up to
  // which it is divided by the factor; whether the pairs where that is so are rounded to whole
  // ones.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;
  // longrope: what each frequency is divided by, in contexts up to the original one and in longer
  // ones, and (of yarn, too) what cosines and sines are multiplied with.
  std::vector<double> short_factors;
  std::vector<double> long_factors;
  double attention_factor = 1.0;
  // yarn of Ministral 3 and Mistral 4: queries at position p are multiplied with 1 + query_growth
  // log(1 + floor(p / original_context)) as well; 0: by nothing.
  double query_growth = 0.0;
  // yarn of models with latents: as config.json says them, 0 where it does not. The attention
  // factor is their ratio, and scores are multiplied with the square of 1 + 0.1 mscale_all
  // log(factor).
  double mscale = 0.0;
  double mscale_all = 0.0;
  // proportional: the share of a head's pairs that turn, from the first on; the others stand still.
  double turned_share = 1.0;

  bool operator==(const RopeConfig&) const = default;
};

// Feed-forward layers of which a token uses a few: a router chooses `chosen` of `count` experts for
// it and weighs their results by its probabilities.
struct ExpertConfig {
  int64_t count = 0;  // 0: one feed-forward layer for all tokens
  int64_t chosen = 0;
  int64_t ffn_size = 0;         // F of one expert
  int64_t shared_ffn_size = 0;  // F of one more that every token uses; 0: none
  bool shared_gate = false;     // it is times the sigmoid of a product of the token
  bool normalised = false;      // the weights of the chosen ones add up to 1
  // Scores are sigmoids of the router's logits and not their softmax; for the choice alone a vector
  // of the files, which is not trained, is added to them; weights are times weight_scale.
  bool sigmoid_scores = false;
  bool choice_bias = false;
  double weight_scale = 1;
  double sum_offset = 1e-20;  // is added to the sum of scores that weights are divided by
  double sum_min = 0;         // the least that the sum of a softmax counts as
  // Groups of neighbours: a token has experts of the best `chosen_groups` of them, by their best
  // score or by the sum of their two best.
  int64_t groups = 1;
  int64_t chosen_groups = 1;
  bool groups_by_pairs = false;
  bool biases = false;  // on the router and on every product of an expert
  // Weights multiply what experts read, not what they give.
  bool weighs_inputs = false;
  // Beside an MLP that all tokens use, with norms of their own; the router has one, too, its logits
  // are by the root of the width, and weights come times a number of each expert.
  bool beside_mlp = false;
  // The gate of gpt-oss, g σ(gate_alpha g) (u + 1), with g up to and u within gate_limit; 0: silu.
  double gate_limit = 0;
  double gate_alpha = 0;
  // What transformers does in training alone: a loss for unequal use of the experts, where it is
  // asked to give the router's logits, and noise on what the router sees.
  bool balance_loss = false;
  double balance_weight = 0.001;
  double jitter = 0;

  bool operator==(const ExpertConfig&) const = default;
};

// Multi-head latent attention (DeepSeek): a token's keys and values of all heads are made of one
// vector, which a norm is over, and of columns that turn and are every head's. Of the head_dim
// columns of keys and queries the last rotary_dim turn.
struct LatentConfig {
  int64_t rank = 0;        // columns of the vector; 0: heads have keys and values of their own
  int64_t query_rank = 0;  // of the one that queries are made of; 0: of the width itself
  int64_t value_dim = 0;   // columns of a head's values, up to head_dim

  bool operator==(const LatentConfig&) const = default;
};

// The gated delta net (Yang et al., 2025) that stands in place of attention in some layers: its
// heads keep a matrix [key_dim, value_dim] of what they have seen, of a size that does not grow.
// Queries, keys and values pass a causal convolution over `kernel` tokens first.
struct DeltaConfig {
  int64_t key_heads = 0;  // 0: every layer has attention
  int64_t value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t kernel = 0;
  // Rates are up to 2, so that a token may turn around what its key has; or up to 1.
  bool doubles_rate = false;
  bool by_key = false;       // every column of a key has a decay (Kimi Linear), not every head
  bool draws_steps = false;  // the biases of decays begin as steps (InitKind::kStep), or as 1
  double norm_eps = 0;       // of the norm behind it; 0: as of the others

  int64_t key_columns() const { return key_heads * key_dim; }
  int64_t value_columns() const { return value_heads * value_dim; }
  // Of queries, keys and values.
  int64_t conv_columns() const { return 2 * key_columns() + value_columns(); }
  bool operator==(const DeltaConfig&) const = default;
};

// The short convolution (LFM2) that stands in place of attention in some layers: of the three parts
// of a product of the token, b|c|x, it gives c · conv(b · x), over `kernel` tokens.
struct ShortConvConfig {
  int64_t kernel = 0;  // 0: no layer has one
  bool bias = false;   // on the convolution and on both products of such a layer

  bool operator==(const ShortConvConfig&) const = default;
};

// What comes of a layer of Mamba 2 passes a gate of the token, before or behind a norm, if any.
enum class GatedNorm { kGateFirst, kNormFirst, kNone };

// The layer of Mamba 2 (Dao and Gu, 2024) that stands in place of attention in some layers, or
// beside it: its heads keep a matrix [state_dim, head_dim] of what they have seen. Heads of a group
// have the same B and C. These and the heads' values pass a causal convolution over `kernel` tokens
// first.
struct Mamba2Config {
  int64_t heads = 0;  // 0: no layer is one
  int64_t head_dim = 0;
  int64_t groups = 0;
  int64_t state_dim = 0;
  int64_t kernel = 0;
  bool conv_bias = false;
  bool bias = false;         // on the first product of such a layer
  bool output_bias = false;  // on the second
  GatedNorm norm = GatedNorm::kGateFirst;
  // What is multiplied with, besides weights: what the layer reads and gives, and the parts of its
  // first product: gates, values, B, C and steps.
  double in_scale = 1;
  double out_scale = 1;
  std::array<double, 5> part_scales = {1, 1, 1, 1, 1};

  int64_t value_columns() const { return heads * head_dim; }
  int64_t key_columns() const { return groups * state_dim; }  // of B or C
  int64_t conv_columns() const { return value_columns() + 2 * key_columns(); }
  bool operator==(const Mamba2Config&) const = default;
};

// What the step, B and C of a token pass in layers of Mamba: a norm each, with weights or without.
enum class StepNorms { kNone, kPlain, kWeighted };

// The layer of the first Mamba (Gu and Dao, 2023) that stands in place of attention in some layers:
// each of its channels keeps state_dim numbers of what it has seen. Channels pass a causal
// convolution over `kernel` tokens first; their steps are made of step_rank numbers of a token.
struct Mamba1Config {
  int64_t columns = 0;  // channels; 0: no layer is one
  int64_t state_dim = 0;
  int64_t kernel = 0;
  int64_t step_rank = 0;
  bool conv_bias = false;
  bool bias = false;  // on the first product of such a layer and the last
  StepNorms norms = StepNorms::kNone;
  double norm_eps = 0;  // of norms without weights; 0: as of the others

  bool operator==(const Mamba1Config&) const = default;
};

// Heads of layers without the sliding window, where they are others than those with it (Gemma 4).
struct FullHeadsConfig {
  int64_t head_dim = 0;  // 0: all layers have the same heads
  int64_t kv_head_count = 0;
  bool keys_are_values = false;  // one product gives both

  bool operator==(const FullHeadsConfig&) const = default;
};

// Queries of layers that do not turn are multiplied with
// 1 + rate log(1 + floor((position + 1) / context)).
struct QueryGrowthConfig {
  double rate = 0;  // 0: they are not
  int64_t context = 0;

  bool operator==(const QueryGrowthConfig&) const = default;
};

// Alternating updates (Baykal et al., 2023): a token has several residual streams, of which layers
// compute with the first alone. Before a layer all are predicted by a map of the streams, and
// behind it corrected by what the layer made of the first.
struct AltUpConfig {
  int64_t streams = 0;           // 0: one, without this
  bool scales_corrected = true;  // what a layer's input meets is times a vector
  double clip = 120.0;           // what coefficients are held to in training elsewhere; 0: nothing

  bool operator==(const AltUpConfig&) const = default;
};

// Embeddings of a token for every layer, and layers that have the keys and values of an earlier one
// (Gemma 4 E2B and E4B, Gemma 3n).
struct LayerInputConfig {
  int64_t size = 0;        // columns of a layer's; 0: there are none
  int64_t vocab_size = 0;  // rows of their table

  bool operator==(const LayerInputConfig&) const = default;
};

// Attention scores get products of queries and keys with rows of a table besides, by the distance
// of query and key (DeBERTa; ops/distance_rows.h): a row as keys are projected times the query, and
// as queries are projected times the key. Scores are divided by the root of the head dimension
// times the number of these products.
struct DistanceRowsConfig {
  int64_t side = 0;              // rows for either direction; 0: there is no table
  bool widens = false;           // rows are for wider and wider distances, up to `reach`
  int64_t reach = 0;             // the farthest distance there is, plus one
  bool for_queries = false;      // queries have such a product
  bool for_keys = false;         // and keys
  bool own_projections = false;  // rows are projected by matrices of their own
  bool norm = false;             // and behind a norm, one for all layers

  bool operator==(const DistanceRowsConfig&) const = default;
};

struct ModelConfig {
  Family family = Family::kLlama;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t layer_count = 0;
  int64_t head_count = 0;
  int64_t kv_head_count = 0;
  int64_t head_dim = 0;
  int64_t ffn_size = 0;
  FullHeadsConfig full_heads;
  LayerInputConfig layer_inputs;
  AltUpConfig altup;
  int64_t laurel_rank = 0;  // of what a layer has beside attention, of its normed input; 0: nothing
  // Per layer, the share of a gate's columns that are taken for 0 before its activation, by their
  // mean and deviation; empty: none are.
  std::vector<double> ffn_sparsity;
  // Of so many last layers each has the keys and values of the last layer before them that has a
  // window or none, as it has.
  int64_t shared_kv_layers = 0;
  bool shared_double_ffn = false;  // and feed-forward layers of twice the width
  LatentConfig latent;
  DeltaConfig delta;
  ShortConvConfig short_conv;
  Mamba1Config mamba1;
  Mamba2Config mamba2;
  // Per layer, a delta net, a short convolution or a layer of Mamba or Mamba 2, whichever the model
  // has; empty: none is.
  std::vector<uint8_t> layer_is_recurrent;
  bool attention_beside = false;        // such layers have attention, too, side by side with it
  std::vector<LayerParts> layer_parts;  // per layer; empty: every one has both
  ExpertConfig experts;
  std::vector<uint8_t> layer_is_dense;  // per layer, without experts; empty: none is
  int64_t context_max = 0;              // max_position_embeddings
  NormKind norm = NormKind::kRms;
  NormPlace norm_place = NormPlace::kBefore;
  bool recurrent_norms_before =
      false;                   // those of recurrent layers stand before, whatever that says
  bool norm_adds_one = false;  // norms multiply with 1 + weight
  bool norm_bias = true;       // of layer norms, but for those of heads
  bool norm_weights = true;    // norms have weights
  bool bare_entry = false;     // of those before a layer's parts the very first is left out
  double norm_eps = 1e-5;
  ResidualForm residual = ResidualForm::kSequential;
  ActivationKind activation = ActivationKind::kSwiGlu;
  PositionKind position = PositionKind::kRotary;
  int64_t position_offset = 0;  // rows of learned positions in front of the first token's
  int64_t token_types = 0;      // rows of a table, the first for single texts; 0: no table
  // Attention scores get a learned number by the distance of query and key, which so many share of
  // (ops/distance_scores.h), one for all layers; 0: they do not.
  int64_t distance_buckets = 0;
  DistanceRowsConfig distance_rows;
  RopeConfig rope;
  std::optional<RopeConfig> sliding_rope;  // of sliding layers, where it is another one
  int64_t rotary_dim = 0;                  // columns of a head that turn; 0: all
  std::vector<uint8_t> layer_is_unturned;  // per layer, without rotary positions; empty: none is
  // Tokens of layers that turn see those of their own chunk of so many tokens alone; 0: all.
  int64_t attention_chunk = 0;
  QueryGrowthConfig query_growth;
  bool turns_backwards = false;    // by the negative angle
  bool turns_neighbours = false;   // columns 2i and 2i+1, and not those of a head's halves
  bool fused_projections = false;  // q, k and v are one tensor, and gate and up another
  bool qkv_by_head = false;        // q, k and v are one tensor, those of a key head together
  bool qkv_bias = false;
  bool output_bias = false;  // attention output projection
  bool mlp_bias = false;
  bool mlp_input_bias = true;      // where that is so, on the first products, too
  bool head_bias = false;          // LM head
  bool attention_sinks = false;    // a learned score a query head, without a value
  bool attention_gate = false;     // results of heads are times the sigmoid of a product
  bool head_gates = false;         // each head's are times that of one number of the token
  bool qk_norm = false;            // norm of each query and key head, with weights for all
  bool qk_norm_whole = false;      // of all query heads as one row, and of all key heads
  bool qk_norm_apart = false;      // of each head, with weights of its own
  bool qk_norm_plain = false;      // of each head that turns, without weights
  bool value_norm = false;         // of each value head, without weights
  bool layer_scales = false;       // a layer's result is times a number of the files, not trained
  bool qk_norm_turned = false;     // norms of heads are behind their turning, not before it
  bool scores_by_head_dim = true;  // attention scores are divided by √d
  double score_dim = 0;            // by the root of this instead; 0: of d
  double score_scale = 0;          // or multiplied with this; 0: divided
  bool scores_by_layer = false;    // and by the number of the layer, from 1
  double score_cap = 0;            // scores become cap · tanh(score / cap); 0: they stay
  bool embedding_norm = false;     // what the tables give passes a norm
  double embedding_scale = 1;      // the rows of the token table are multiplied with it
  double residual_scale = 1;       // what attention and MLP add to the residual stream, too
  double attention_in_scale = 1;   // what attention reads is multiplied with it
  double attention_out_scale = 1;  // what it gives,
  double key_scale = 1;            // and keys
  double mlp_gate_scale = 1;       // the gate of the MLP before its activation
  double mlp_out_scale = 1;        // and what it gives
  double logits_divisor = 1;
  double logits_scale = 1;  // logits are multiplied with it, too
  double logits_cap = 0;    // logits become cap · tanh(logit / cap); 0: they stay
  bool tied_embeddings = false;
  // Tokens see those behind them, too: models of embeddings. Windows reach to both sides then.
  bool looks_ahead = false;
  int64_t sliding_window = 0;             // 0: none; a token sees itself and window-1 before it
  std::vector<uint8_t> layer_is_sliding;  // per layer; empty: all layers if sliding_window > 0
  DType stored_dtype = DType::kF32;       // torch_dtype / dtype of the folder
  // How the folder's files hold matrices, where that is in few bits (quantization_config, MXFP4
  // aside). Of the files, not of the model: to_hf_config() leaves it out.
  std::optional<QuantisedScheme> quantised;
  std::vector<int32_t> eos_ids;
  int32_t bos_id = -1;  // -1: none
  int32_t pad_id = -1;

  bool operator==(const ModelConfig&) const = default;
};

// Reads a config.json. Fails with kUnsupported naming the architecture and the known ones, or a
// feature Jige lacks; with kCorrupt or kNotFound naming file and field when fields are absent,
// out of range or contradict each other.
Result<ModelConfig> parse_model_config(const Json& config, std::string_view where);
Result<ModelConfig> load_model_config(const std::string& folder);
// The same of a file by its own name.
Result<ModelConfig> load_model_config_file(const std::string& path);

// The config.json of the family, as transformers writes and reads it.
Json to_hf_config(const ModelConfig& config);

// Checks that sizes are positive, inside the limits below and free of contradiction, and that the
// family has the features asked for. Fails with kInvalidArgument, naming the config.json field.
Status check_model_config(const ModelConfig& config, std::string_view where);
// That a model takes texts of this many tokens (--context). Fails with kInvalidArgument.
Status check_context(const ModelConfig& config, int64_t context);

// The model_type of config.json: "llama", "gemma3_text", "qwen3_moe".
std::string_view family_name(Family family);
// Whether it is an encoder, as BERT is, which makes vectors of texts alone.
bool is_encoder(Family family);
// Whether files have one layer more, which predicts further tokens and is not read.
bool has_layer_beyond(Family family);
// Reads a family name. Fails with kInvalidArgument, listing the known ones.
Result<Family> parse_family(std::string_view name);

// Whether the layer has attention, or what stands in its place, and whether a feed-forward part;
// and how many layers have such.
bool has_attention_part(const ModelConfig& config, int64_t layer);
bool has_feed_forward(const ModelConfig& config, int64_t layer);
int64_t attention_part_count(const ModelConfig& config);
int64_t feed_forward_count(const ModelConfig& config);
// Where the norms of a layer stand.
NormPlace norm_place(const ModelConfig& config, int64_t layer);
// Whether the layer's heads turn with the position.
bool turns(const ModelConfig& config, int64_t layer);
// Whether the layer's tokens see those of the sliding window alone.
bool has_window(const ModelConfig& config, int64_t layer);
// The key/value heads of a layer with attention, and the width of all its heads.
struct HeadShape {
  int64_t kv_head_count = 0;
  int64_t head_dim = 0;
};
HeadShape head_shape(const ModelConfig& config, int64_t layer);
// The layer whose keys and values a layer with attention reads: itself, or where they are shared
// an earlier one, or -1 where there is none.
int64_t key_source(const ModelConfig& config, int64_t layer);
bool shares_keys(const ModelConfig& config, int64_t layer);
// Whether later layers read those of this one.
bool gives_keys(const ModelConfig& config, int64_t layer);
// The width of a layer's feed-forward part, experts aside.
int64_t ffn_size_of(const ModelConfig& config, int64_t layer);
// Columns between the large products of most layers: those of the feed-forward part or, where
// layers are recurrent and nothing else, those that a state is kept of. For estimates of rates.
int64_t inner_columns(const ModelConfig& config);
// The share of a layer's gate that is cut away, or 0.
double ffn_sparsity(const ModelConfig& config, int64_t layer);
// Whether a product of the layer gives keys and values in one.
bool keys_are_values(const ModelConfig& config, int64_t layer);
// Whether the layer has attention, alone or beside a recurrent state.
bool has_attention(const ModelConfig& config, int64_t layer);
int64_t attention_layer_count(const ModelConfig& config);
// Whether the layer has a recurrent state, in place of attention or beside it; how many layers
// have.
bool is_recurrent(const ModelConfig& config, int64_t layer);
int64_t recurrent_layer_count(const ModelConfig& config);
// Whether the layer's feed-forward part are experts, and how many layers have such.
bool has_experts(const ModelConfig& config, int64_t layer);
int64_t expert_layer_count(const ModelConfig& config);

// The model of the first layers of another one. REQUIRES: it has as many.
ModelConfig first_layers(ModelConfig config, int64_t count);

// Number of trainable parameters.
int64_t parameter_count(const ModelConfig& config);
// Those that a token uses: all but the experts that are not chosen for it.
int64_t active_parameter_count(const ModelConfig& config);

}  // namespace jige::formats
