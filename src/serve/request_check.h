// What an engine could never run is refused when it is submitted, with the member that is wrong.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "serve/engine_request.h"

namespace jige::serve {

struct RequestBounds {
  int64_t context_max = 0;        // as the model was loaded
  int64_t model_context_max = 0;  // that it could have
  int64_t vocab_size = 0;
  int64_t kv_block_count = 0;
  int64_t state_count = 0;  // 0: the model has no states
  int32_t choices_max = 1;
  bool embeds = false;             // it is a model for embeddings
  int64_t width = 0;               // numbers of its rows
  bool takes_rows = false;         // in place of tokens
  bool takes_mutual_rows = false;  // that see one another
  int64_t forward_rows_max = 0;    // of a forward
  bool turns_by_places = false;
  int64_t layer_count = 0;
  int64_t token_types = 0;
  bool adapter_known = true;  // the one that is asked for
};

// Nothing where the request can run; else kInvalidArgument.
std::optional<Refusal> check_request(const EngineRequest& request, const RequestBounds& bounds);

}  // namespace jige::serve
