// The shape of models of further architectures of GGUF files, read as the fields of the config.json
// that their folders have, and then as that.
//
// Internal to the gguf_config*.cc files. Threads: pure functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/gguf.h"
#include "formats/model_config.h"

namespace jige::formats {

// Whether models of this architecture are read so.
bool has_gguf_fields(std::string_view architecture);

// Fails as read_gguf_config does. REQUIRES: an architecture of those.
Result<ModelConfig> read_gguf_fields(const GgufFile& file);

// Fails with kUnsupported where a key says that a model computes something else than others of its
// kind, but for keys that the caller reads itself. Names come without the prefix.
Status refuse_gguf_keys(const GgufMetadata& keys, const std::string& prefix,
                        const std::function<bool(std::string_view)>& is_read);

// Whether output.weight is missing or repeats the table of tokens byte for byte.
bool has_gguf_tied_head(const GgufFile& file);

}  // namespace jige::formats
