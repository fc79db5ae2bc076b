// RouteFacts: what a router must know of a request to choose a server for it: the model, how its
// prompt begins, how long it is and may become.
//
//   const RouteFacts facts = route_facts("/v1/chat/completions", body);
//
// A prompt is taken as bytes: everything a template renders of it (tools, system, messages), in
// that order, or the text or ids of a completion; an id counts as four bytes. Every kBlockBytes of
// them a hash of all so far is put down, so that two prompts with a common beginning have common
// hashes. Bytes stand for tokens, four for one: a router has no tokenizer; an image counts as if it
// were of one size, and by what it is. Hashes begin with the
// model, the cache_salt and the kind of prompt, since servers share no cached beginning across
// these. What has the wrong type is passed over: the server will say so.
//
// Invariants: at most kBlocksMax hashes, however long the body; time linear in the body.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace jige::api {

struct RouteFacts {
  static constexpr size_t kBlockBytes = 128;
  static constexpr size_t kBytesPerToken = 4;
  static constexpr size_t kImageTokens = 1024;  // an image counts as so many, whatever its size
  static constexpr size_t kBlocksMax = 4096;    // half a MiB of a prompt

  std::string model;  // empty: not said
  std::vector<uint64_t> prefix;
  int64_t prompt_tokens = 1;
  int64_t answer_tokens_max = -1;  // of all choices together; -1: not said
  int64_t sequences = 1;           // answers that are made at once: choices of each prompt
  bool stream = false;             // the answer is wanted as one of events
};

// Of the body of a POST to `path`.
RouteFacts route_facts(std::string_view path, const Json& body);

}  // namespace jige::api
