// ServedModel: what the API knows of the model it serves, and the limits of requests for it.
//
// Threads: immutable while it serves, but for the adapters; those and the engine look after
// themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/served_adapters.h"
#include "api/tool_format.h"
#include "formats/embedding_config.h"
#include "formats/pair_config.h"
#include "grammar/constraint_compiler.h"
#include "ops/sampling.h"
#include "plan/serve_replan.h"
#include "serve/engine.h"
#include "serve/row_pooler.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace jige::api {

class AdapterLoader;  // adapter_loader.h
class ImageReader;    // image_reader.h

// The model itself, or one of its adapters, which stays loaded meanwhile.
struct ChosenAdapter {
  int32_t number = model::kNoAdapter;
  model::AdapterLease lease;
};

// What a model that makes vectors of texts makes them like.
struct ServedEmbedding {
  formats::EmbeddingConfig config;  // of its folder
  serve::EmbeddingForm form;        // with all dimensions
  int64_t width = 0;                // numbers of a vector
  int64_t tokens_max = 0;           // of a text
  std::string context_hint;         // what the server could do about that; may be empty
  bool by_user = false;             // turns are taken by users, not by requests
};

// How a model that judges pairs of texts does so.
struct ServedPairs {
  formats::PairConfig config;
  int64_t tokens_max = 0;    // of a pair
  std::string context_hint;  // what the server could do about that; may be empty
  bool by_user = false;      // turns are taken by users, not by requests
};

// What a model is served for: which requests it takes.
enum class ServedKind { kAnswers, kEmbeddings, kPairs };

struct ServedModel {
  std::string name;                       // in answers
  std::string fingerprint;                // changes when answers may: program, model, number format
  int64_t created_s = 0;                  // since 1970
  int64_t context_max = 0;                // tokens of prompt and answer together
  int64_t model_context_max = 0;          // that it could have been served with
  int32_t vocab_size = 0;                 // ids a prompt may have lie below it
  ops::SamplingParams defaults;           // where a request says nothing
  std::optional<int64_t> tokens_default;  // of a chat answer; none: what the context leaves
  std::optional<text::ChatTemplate> chat_template;
  ToolFormat tool_format = ToolFormat::kNone;  // in which the template writes calls of tools
  bool has_reasoning = false;                  // chat answers may begin with it (text/reasoning.h)
  std::optional<ServedEmbedding> embedding;    // it makes vectors of texts, and no answers
  std::optional<ServedPairs> pairs;            // it judges pairs of texts, and gives no answers
  std::shared_ptr<ImageReader> images;         // null: it reads text alone
  text::Tokenizer tokenizer;
  std::shared_ptr<grammar::ConstraintCompiler> constraints;  // over its tokens
  serve::Engine* engine = nullptr;
  // Of what plans again when requests have drifted; empty: nothing does. From any thread.
  std::function<plan::ReplanStatus()> replan;
  // Those of the engine's model; no name is the model's.
  std::shared_ptr<ServedAdapters> adapters = std::make_shared<ServedAdapters>();
  std::shared_ptr<AdapterLoader> loader;  // null: none are loaded while it serves

  ServedKind kind() const {
    if (pairs) return ServedKind::kPairs;
    return embedding ? ServedKind::kEmbeddings : ServedKind::kAnswers;
  }
  // What a name stands for; nothing where none is called so.
  std::optional<ChosenAdapter> find(std::string_view wanted) const;
  // Of the model itself, or of an adapter that somebody runs with.
  std::string name_of(int32_t adapter) const;
  std::string fingerprint_of(int32_t adapter) const;
};

// Caps on what one request may ask for.
struct RequestLimits {
  int32_t choices_max = 16;  // n
  int32_t prompts_max = 64;  // of one completion request; times n, the same cap
  int32_t messages_max = 4096;
  int32_t stops_max = 16;
  size_t stop_bytes_max = 1024;
  int32_t biases_max = 1024;
  int32_t stop_ids_max = 64;
  int32_t top_logprobs_max = 20;
  int64_t prompt_scores_max = 1 << 19;  // log-probabilities of the prompts of one request
  int32_t bad_words_max = 64;
  int64_t embedding_inputs_max = 2048;      // of one request for vectors, or documents
  int64_t embedding_numbers_max = 1 << 23;  // of all its vectors together
  int32_t images_max = 32;
  int64_t image_pixels_max = 64'000'000;  // of all images of a request
};

}  // namespace jige::api
