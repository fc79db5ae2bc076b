// The corpus of the quickstart: conversations made from a seed, small enough to be learned in
// minutes and checkable by anyone, since every question has one right answer.
//
// Kinds: stories on request; texts to say again; sums; facts (capitals, colours, opposites, sounds,
// the next day or month), each fact asked in several ways; and small readings, where the answer
// stands in the question. Held out, so never in the training part: for sums, some ordered pairs;
// for facts, one way of asking for each fact; for readings, fresh combinations. A model that only
// memorised fails them. Threads: pure functions; the same options give the same bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace jige::train {

struct StoryCorpusOptions {
  uint64_t seed = 1;
  int64_t conversation_count = 20000;
  int64_t held_out_count = 200;  // questions at most
};

struct Conversation {
  std::string kind;  // "story", "echo", "sum", "fact" or "reading"
  std::string user;
  std::string assistant;
  std::string answer;  // the words that make a reply right; empty for stories
};

struct StoryCorpus {
  std::vector<Conversation> training;
  std::vector<Conversation> held_out;  // shuffled over the kinds, no stories, no echoes
};

StoryCorpus make_story_corpus(const StoryCorpusOptions& options);

// Writes train.jsonl ({"messages": […]} a line) and questions.jsonl ({"kind", "question", "answer"}
// a line) into a folder, each atomically.
Status write_story_corpus(const StoryCorpus& corpus, const std::string& folder);

// Whether a reply holds the answer as whole words, ignoring case.
bool reply_is_right(const std::string& reply, const std::string& answer);

}  // namespace jige::train
