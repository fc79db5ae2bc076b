// POST /v1/rerank: from the body to requests for the engine, one for each document, and from their
// logits to the answer,
//
//   {"id":"rerank-…","model":"NAME","usage":{"prompt_tokens":57,"total_tokens":57},
//    "results":[{"index":3,"relevance_score":0.98}, …]}
//
// the best first, of equal ones the first; with "document":{"text":…} where that is asked for.
// Scores have the fewest digits that give the same float. They are ordered by their logits, which
// differ where sigmoids no longer do.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "api/field_reader.h"
#include "api/served_model.h"
#include "api/vector_session.h"

namespace jige::api {

// `tenant`: whose work the documents are; with ServedPairs::by_user that is the user's, if one is
// named. Fails with 400 and the name of the field, or 404 where another model is asked for.
// REQUIRES: model.pairs.
ApiResult<VectorWork> rerank_work(const Json& body, const ServedModel& model,
                                  const RequestLimits& limits, uint64_t tenant);

}  // namespace jige::api
