// Word lists and sentence patterns of the story corpus; see train/story_corpus.h.
//
// Patterns hold marks in braces that the generator replaces. Threads: constants.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <utility>

namespace jige::train {

using Words = std::span<const std::string_view>;

// Several ways to ask for the value that belongs to a key, and one way to reply.
struct FactFamily {
  Words ways;  // at least two
  std::string_view reply;
  std::span<const std::pair<std::string_view, std::string_view>> pairs;
};

extern const Words kNames;
extern const Words kAnimals;
extern const Words kPlaces;
extern const Words kThings;
extern const Words kColours;
extern const Words kMoods;
extern const Words kWeathers;
extern const Words kStoryRequests;
extern const Words kSumWays;
extern const std::span<const Words> kStoryParts;  // one sentence from each, in order
extern const std::span<const FactFamily> kFactFamilies;

}  // namespace jige::train
