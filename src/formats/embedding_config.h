// How a folder makes one vector of a text: the files that sentence-transformers keeps beside a
// model.
//
//   modules.json                       [{"idx", "name", "path", "type"} …]: what runs, in order:
//                                      Transformer, Pooling, perhaps Dense, once or more often, and
//                                      perhaps Normalize
//   PATH/config.json of the pooling    "pooling_mode", or the older "pooling_mode_lasttoken" and so
//                                      on; "include_prompt", "embedding_dimension"
//   PATH of a Dense                    vector_layer.h
//   config_sentence_transformers.json  "prompts" by name and "default_prompt_name"
//   sentence_bert_config.json          "max_seq_length", else that is tokenizer_config.json's
//                                      "model_max_length"; "do_lower_case"
//   tokenizer_config.json              "truncation_side": which end of a long text is cut off
//
// Pooling, of the rows h[0 … n-1] that the model gives of a text's n tokens:
//   last token      h[n-1]
//   mean            Σ h[i] / n; with mean_sqrt_len_tokens Σ h[i] / √n
//   weighted mean   Σ (i+1) h[i] / Σ (i+1)
//   cls             h[0]
//   max             the largest of each column
// where means, cls and max leave out the first rows, those of the prompt, unless include_prompt is
// set.
// Of several poolings the vectors stand one behind the other, in the order of "pooling_mode", or
// with the older flags cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken.
// A folder without modules.json takes the last token and normalises it. Threads: values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "formats/vector_layer.h"

namespace jige::formats {

enum class PoolingKind { kLastToken, kMean, kWeightedMean, kCls, kMax, kMeanSqrtLen };
// "lasttoken", "mean", "weightedmean", "cls", "max", "mean_sqrt_len_tokens": as pooling_mode
// spells them.
std::optional<PoolingKind> find_pooling(std::string_view name);
// All names, in the order of PoolingKind.
std::vector<std::string> pooling_names();

// What stands behind the pooling, in order; null: nothing.
using VectorLayers = std::shared_ptr<const std::vector<VectorLayer>>;

struct EmbeddingConfig {
  PoolingKind pooling = PoolingKind::kLastToken;
  std::vector<PoolingKind> further;  // what stands behind it
  bool include_prompt = true;        // in means, cls and max
  VectorLayers layers;               // each takes as many numbers as the one before it gives
  bool normalise = true;             // vectors have length 1
  int64_t width = 0;                 // of the rows, as the pooling's file says; 0: it does not
  int64_t tokens_max = 0;            // of a text with its prompt; 0: no file says it
  bool cuts_left = false;            // a text that is longer loses its beginning, not its end
  bool lowers = false;               // texts come in small letters
  std::vector<std::pair<std::string, std::string>> prompts;  // name and text, as in the file
  std::string default_prompt;                                // its name; empty: none

  bool operator==(const EmbeddingConfig&) const = default;
  const std::string* find_prompt(std::string_view name) const;
};

// Whether a folder says how texts become vectors: it has a modules.json.
bool is_embedding_folder(const std::string& folder);

// What tokenizer_config.json says of texts; where it is missing, nothing.
struct TextLimits {
  int64_t tokens_max = 0;  // 0: no limit
  bool cuts_left = false;
  bool has_types = true;  // "model_input_names" has "token_type_ids", or is not there
};
Result<TextLimits> load_text_limits(const std::string& folder);

// Reads the files above. With `pooling` that is taken, whatever the folder's mode is. Fails with
// kUnsupported, naming what Jige does not compute (another module, another pooling), and with
// kCorrupt or kNotFound on damage; each names file, field and remedy.
Result<EmbeddingConfig> load_embedding_config(const std::string& folder,
                                              std::optional<PoolingKind> pooling = {});

}  // namespace jige::formats
