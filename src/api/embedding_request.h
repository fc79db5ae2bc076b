// POST /v1/embeddings: from the body to requests for the engine, and from vectors to the answer,
//
//   {"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.25, …]}, …],
//    "model":"NAME","usage":{"prompt_tokens":12,"total_tokens":12}}
//
// where numbers have the fewest digits that give the same float, or, in base64, are the floats'
// bytes, the lowest first.
// Texts become tokens as `jige embed` makes them (serve/embedding_text.h), so that their vectors
// are the same bits. Ids are taken as they are.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "api/field_reader.h"
#include "api/served_model.h"
#include "api/vector_session.h"

namespace jige::api {

struct PreparedEmbeddings {
  std::vector<serve::EngineRequest> engine;  // one for each input, all of one adapter
  bool base64 = false;                       // how vectors are written
};

// `tenant`: whose work the inputs are; with ServedEmbedding::by_user that is the user's, if one is
// named. Fails with 400 and the name of the field, or 404 where another model is asked for.
// REQUIRES: model.embedding.
ApiResult<PreparedEmbeddings> prepare_embeddings(const Json& body, const ServedModel& model,
                                                 const RequestLimits& limits, uint64_t tenant);

// The same with what makes the answer, for a VectorSession.
ApiResult<VectorWork> embedding_work(const Json& body, const ServedModel& model,
                                     const RequestLimits& limits, uint64_t tenant);

}  // namespace jige::api
