// Models that read images beside text hold a language model of a known family: its part of their
// config.json, so that it runs on text as it does there.
//
// For model_config_parse.cc and image_model_names.cc. Threads: free functions.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace jige::formats {

// The config.json of the language model alone, where `config` is that of a model with images that
// Jige knows; else `config`, with fields under their usual names. Fails with kUnsupported where its
// language model is of no family that Jige knows, with kCorrupt where fields are of the wrong kind.
Result<Json> text_part(const Json& config, std::string_view where);

// Whether `config` is that of a model with images that Jige knows.
bool is_image_model(const Json& config);

}  // namespace jige::formats
