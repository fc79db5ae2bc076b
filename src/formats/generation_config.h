// generation_config.json: how the authors of a model want its text to be drawn.
//
// A field that is absent (or null) stays empty here, so that a caller can tell "the folder says
// one" from "nobody said". A flag comes before the folder, the folder before a built-in default.
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace jige::formats {

struct GenerationConfig {
  std::vector<int32_t> eos_ids;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> pad_id;
  std::optional<bool> do_sample;             // false: greedy, whatever the values below
  std::optional<double> temperature;         // >= 0; 0 is greedy
  std::optional<int64_t> top_k;              // 0: off
  std::optional<double> top_p;               // (0, 1]
  std::optional<double> min_p;               // [0, 1]
  std::optional<double> repetition_penalty;  // > 0; 1 is none
  std::optional<int64_t> max_new_tokens;     // >= 1
  std::optional<int64_t> max_length;         // prompt and answer together, >= 1

  bool operator==(const GenerationConfig&) const = default;
};

// Fields Jige does not know are passed over. Fails with kInvalidArgument or kCorrupt, naming the
// field and its value.
Result<GenerationConfig> parse_generation_config(const Json& json, std::string_view where);

// Reads FOLDER/generation_config.json. An absent file gives an empty GenerationConfig: it is
// optional. A field of another type is kCorrupt here.
Result<GenerationConfig> load_generation_config(const std::string& folder);

// The file as transformers writes and reads it, with the fields that are set.
Json to_hf_generation_config(const GenerationConfig& config);

}  // namespace jige::formats
