#include "train/story_corpus.h"

#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string_view>

#include "base/ascii.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "train/story_words.h"

namespace jige::train {
namespace {

constexpr int kSumMax = 12;
constexpr int kSumHeldOutPercent = 12;

std::string pick(Rng& rng, std::span<const std::string_view> items) {
  return std::string(items[rng.below(items.size())]);
}

// Replaces {name} marks by their values, in order of the pairs.
std::string fill(std::string_view pattern,
                 std::span<const std::pair<std::string_view, std::string>> values) {
  std::string text(pattern);
  for (const auto& [mark, value] : values) {
    const std::string wanted = "{" + std::string(mark) + "}";
    for (size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at)) {
      text.replace(at, wanted.size(), value);
      at += value.size();
    }
  }
  return text;
}

// "a fox" or "an owl".
std::string with_article(const std::string& noun) {
  const bool vowel = std::string_view("aeiou").find(noun[0]) != std::string_view::npos;
  return (vowel ? "an " : "a ") + noun;
}

std::string capitalised(std::string text) {
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

Conversation make_story(Rng& rng) {
  const std::string animal = pick(rng, kAnimals);
  std::string friend_animal = pick(rng, kAnimals);
  while (friend_animal == animal) friend_animal = pick(rng, kAnimals);
  const std::string name = pick(rng, kNames);
  const std::vector<std::pair<std::string_view, std::string>> values = {
      {"animal", animal},
      {"an_animal", with_article(animal)},
      {"friend", friend_animal},
      {"a_friend", with_article(friend_animal)},
      {"name", name},
      {"place", pick(rng, kPlaces)},
      {"thing", pick(rng, kThings)},
      {"colour", pick(rng, kColours)},
      {"mood", pick(rng, kMoods)},
      {"weather", pick(rng, kWeathers)},
  };
  std::string story;
  for (const auto& choices : kStoryParts) {
    if (!story.empty()) story += ' ';
    story += fill(choices[rng.below(choices.size())], values);
  }
  return {"story", fill(kStoryRequests[rng.below(kStoryRequests.size())], values), story, ""};
}

bool sum_is_held_out(uint64_t seed, int a, int b) {
  if (a == b) return false;
  Rng rng(derive_key(seed, "held-out sums", static_cast<uint64_t>(a * 1000 + b)));
  // Of a pair and its mirror at most one is held out, so the rule can be learned.
  Rng mirror(derive_key(seed, "held-out sums", static_cast<uint64_t>(b * 1000 + a)));
  const bool own = rng.below(100) < kSumHeldOutPercent;
  const bool other = mirror.below(100) < kSumHeldOutPercent;
  return own && (!other || a < b);
}

Conversation make_sum(int a, int b, size_t way) {
  const std::vector<std::pair<std::string_view, std::string>> values = {
      {"a", std::to_string(a)}, {"b", std::to_string(b)}, {"c", std::to_string(a + b)}};
  return {"sum", fill(kSumWays[way], values), fill("{a} plus {b} is {c}.", values),
          std::to_string(a + b)};
}

// The way of asking that is kept for the test of fact `index`.
size_t held_out_way(uint64_t seed, size_t family, size_t index) {
  return Rng(derive_key(seed, "held-out facts", family * 1000 + index))
      .below(kFactFamilies[family].ways.size());
}

Conversation make_fact(size_t family, size_t index, size_t way) {
  const FactFamily& facts = kFactFamilies[family];
  const auto& [key, value] = facts.pairs[index];
  const std::vector<std::pair<std::string_view, std::string>> values = {
      {"key", std::string(key)}, {"value", std::string(value)}};
  return {"fact", fill(facts.ways[way], values), capitalised(fill(facts.reply, values)),
          std::string(value)};
}

Conversation make_reading(Rng& rng) {
  std::array<std::string, 2> names = {pick(rng, kNames), pick(rng, kNames)};
  while (names[1] == names[0]) names[1] = pick(rng, kNames);
  std::array<std::string, 2> things = {pick(rng, kThings), pick(rng, kThings)};
  while (things[1] == things[0]) things[1] = pick(rng, kThings);
  const std::array<std::string, 2> colours = {pick(rng, kColours), pick(rng, kColours)};
  const size_t asked = rng.below(2);
  const std::string text = fmt::format("{} has a {} {}. {} has a {} {}.", names[0], colours[0],
                                       things[0], names[1], colours[1], things[1]);
  const std::string held = colours[asked] + " " + things[asked];
  return {"reading", fmt::format("{} What does {} have?", text, names[asked]),
          fmt::format("{} has a {}.", names[asked], held), held};
}

// Copying teaches to look back, which readings need.
Conversation make_echo(Rng& rng) {
  std::string text;
  for (uint64_t left = 1 + rng.below(3); left > 0; --left) {
    text += fmt::format("{}{} has a {} {}.", text.empty() ? "" : " ", pick(rng, kNames),
                        pick(rng, kColours), pick(rng, kThings));
  }
  return {"echo", "Say this again: " + text, text, text};
}

Conversation draw_training(Rng& rng, uint64_t seed) {
  const uint64_t kind = rng.below(100);
  if (kind < 15) return make_story(rng);
  if (kind < 30) return make_echo(rng);
  if (kind < 48) {
    for (;;) {
      const int a = static_cast<int>(rng.below(kSumMax + 1));
      const int b = static_cast<int>(rng.below(kSumMax + 1));
      if (!sum_is_held_out(seed, a, b)) return make_sum(a, b, rng.below(kSumWays.size()));
    }
  }
  if (kind < 66) {
    const size_t family = rng.below(kFactFamilies.size());
    const FactFamily& facts = kFactFamilies[family];
    const size_t index = rng.below(facts.pairs.size());
    size_t way = rng.below(facts.ways.size() - 1);
    if (way >= held_out_way(seed, family, index)) ++way;
    return make_fact(family, index, way);
  }
  return make_reading(rng);
}

std::vector<Conversation> draw_held_out(const StoryCorpusOptions& options,
                                        const std::vector<Conversation>& training) {
  std::vector<Conversation> questions;
  for (int a = 0; a <= kSumMax; ++a) {
    for (int b = 0; b <= kSumMax; ++b) {
      if (sum_is_held_out(options.seed, a, b)) questions.push_back(make_sum(a, b, 0));
    }
  }
  for (size_t family = 0; family < kFactFamilies.size(); ++family) {
    for (size_t index = 0; index < kFactFamilies[family].pairs.size(); ++index) {
      questions.push_back(make_fact(family, index, held_out_way(options.seed, family, index)));
    }
  }
  std::set<std::string> seen;
  for (const Conversation& item : training) {
    if (item.kind == "reading") seen.insert(item.user);
  }
  Rng rng(derive_key(options.seed, "held-out readings"));
  for (size_t made = 0; made < 80;) {
    Conversation reading = make_reading(rng);
    if (seen.contains(reading.user)) continue;
    questions.push_back(std::move(reading));
    ++made;
  }
  Rng order(derive_key(options.seed, "held-out order"));
  order.shuffle(std::span<Conversation>(questions));
  if (static_cast<int64_t>(questions.size()) > options.held_out_count) {
    questions.resize(static_cast<size_t>(options.held_out_count));
  }
  return questions;
}

}  // namespace

StoryCorpus make_story_corpus(const StoryCorpusOptions& options) {
  StoryCorpus corpus;
  Rng rng(derive_key(options.seed, "story corpus"));
  for (int64_t i = 0; i < options.conversation_count; ++i) {
    corpus.training.push_back(draw_training(rng, options.seed));
  }
  corpus.held_out = draw_held_out(options, corpus.training);
  return corpus;
}

Status write_story_corpus(const StoryCorpus& corpus, const std::string& folder) {
  JIGE_DO(make_folders(folder));
  std::string training;
  for (const Conversation& item : corpus.training) {
    const Json line = {{"messages",
                        {{{"role", "user"}, {"content", item.user}},
                         {{"role", "assistant"}, {"content", item.assistant}}}}};
    training += dump_json(line) + "\n";
  }
  std::string questions;
  for (const Conversation& item : corpus.held_out) {
    const Json line = {{"kind", item.kind}, {"question", item.user}, {"answer", item.answer}};
    questions += dump_json(line) + "\n";
  }
  JIGE_DO(write_file_atomic(folder + "/train.jsonl", training));
  return write_file_atomic(folder + "/questions.jsonl", questions);
}

bool reply_is_right(const std::string& reply, const std::string& answer) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  const std::string text = lower_ascii(reply);
  const std::string wanted = lower_ascii(answer);
  if (wanted.empty()) return false;
  for (size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1)) {
    const size_t end = at + wanted.size();
    const bool starts = at == 0 || !is_word(text[at - 1]);
    const bool ends = end == text.size() || !is_word(text[end]);
    if (starts && ends) return true;
  }
  return false;
}

}  // namespace jige::train
