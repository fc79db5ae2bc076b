#include "train/sequences.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace jige::train {
namespace {

// Uniform in [0, 2^64) for a group of sequences.
uint64_t group_hash(uint64_t key, int64_t document, int64_t group) {
  const auto block = philox(key, static_cast<uint64_t>(document), static_cast<uint64_t>(group));
  return (static_cast<uint64_t>(block[1]) << 32) | block[0];
}

// Consecutive sequences of one group.
struct Group {
  uint64_t hash;
  size_t begin;
  size_t end;
};

class Cutter {
 public:
  explicit Cutter(const SequenceOptions& options)
      : options_(options), key_(derive_key(options.seed, "held out")) {}

  // Tokens [begin, end) of `part` are one document.
  Status cut_document(const Corpus::Part& part, int64_t begin, int64_t end) {
    const int64_t inputs = end - begin - 1;
    for (int64_t offset = 0, index = 0; offset < inputs; offset += options_.context, ++index) {
      const int64_t count = std::min(options_.context, inputs - offset);
      Sequence sequence{.begin = part.begin + begin + offset, .count = static_cast<int32_t>(count)};
      JIGE_TRY(sequence.learned_count, count_learned(part, sequence));
      if (sequence.learned_count == 0) {
        ++empty_count_;
        continue;
      }
      add_to_group(index / kGroupSequences);
      sequences_.push_back(sequence);
      groups_.back().end = sequences_.size();
    }
    ++document_;
    current_group_ = -1;
    return {};
  }

  // The documents [begin, middle) and [middle, end) of `part` are a pair.
  Status cut_pair(const Corpus::Part& part, int64_t begin, int64_t middle, int64_t end) {
    const int64_t chosen = middle - begin - 1;
    const int64_t rejected = end - middle - 1;
    if (std::min(chosen, rejected) < 1 || std::max(chosen, rejected) > options_.context) {
      return fail(Code::kCorrupt, "{}: a pair of {} and {} tokens; remove it to have it made anew",
                  part.tokens.path(), chosen + 1, rejected + 1);
    }
    Sequence pair{.begin = part.begin + begin, .count = static_cast<int32_t>(chosen + rejected)};
    for (const auto& [from, count] : {std::pair{begin, chosen}, std::pair{middle, rejected}}) {
      const Sequence half{.begin = part.begin + from, .count = static_cast<int32_t>(count)};
      JIGE_TRY(const int32_t learned, count_learned(part, half));
      if (learned == 0) {
        return fail(Code::kCorrupt,
                    "{}: a pair with an answer of no token; remove it to have it made anew",
                    part.tokens.path());
      }
      pair.learned_count += learned;
    }
    add_to_group(0);
    sequences_.push_back(pair);
    groups_.back().end = sequences_.size();
    ++document_;
    current_group_ = -1;
    return {};
  }

  Sequences split() {
    const size_t group_count = groups_.size();
    std::vector<uint8_t> held_out(group_count, 0);
    if (options_.held_out_fraction > 0 && group_count > 1) choose_held_out(held_out);
    Sequences result{.empty_count = empty_count_};
    for (size_t i = 0; i < group_count; ++i) {
      auto& part = held_out[i] != 0 ? result.held_out : result.training;
      part.insert(part.end(), sequences_.begin() + static_cast<std::ptrdiff_t>(groups_[i].begin),
                  sequences_.begin() + static_cast<std::ptrdiff_t>(groups_[i].end));
    }
    return result;
  }

 private:
  void add_to_group(int64_t group) {
    if (group == current_group_) return;
    current_group_ = group;
    groups_.push_back({group_hash(key_, document_, group), sequences_.size(), sequences_.size()});
  }

  Result<int32_t> count_learned(const Corpus::Part& part, const Sequence& sequence) {
    if (!part.tokens.has_mask()) return sequence.count;
    learned_.resize(static_cast<size_t>(sequence.count));
    JIGE_DO(part.tokens.read_mask(sequence.begin + 1 - part.begin, learned_));
    return static_cast<int32_t>(std::count(learned_.begin(), learned_.end(), 1));
  }

  void choose_held_out(std::vector<uint8_t>& held_out) const {
    const auto limit = static_cast<uint64_t>(options_.held_out_fraction * 0x1.0p64);
    const auto by_hash = [](const Group& a, const Group& b) { return a.hash < b.hash; };
    const auto least = std::min_element(groups_.begin(), groups_.end(), by_hash);
    const auto most = std::max_element(groups_.begin(), groups_.end(), by_hash);
    for (size_t i = 0; i < groups_.size(); ++i) held_out[i] = groups_[i].hash < limit;
    held_out[static_cast<size_t>(least - groups_.begin())] = 1;
    held_out[static_cast<size_t>(most - groups_.begin())] = 0;
  }

  const SequenceOptions& options_;
  uint64_t key_;
  int64_t document_ = 0;
  int64_t current_group_ = -1;
  int64_t empty_count_ = 0;
  std::vector<Sequence> sequences_;
  std::vector<Group> groups_;
  std::vector<uint8_t> learned_;
};

tl::unexpected<Error> nothing_to_learn(const Corpus& corpus, const Sequences& sequences) {
  if (sequences.empty_count > 0) {
    return fail(Code::kInvalidArgument,
                "the corpus has {} tokens in {} documents, but none of them is to be learned: chat "
                "data needs assistant messages, prompts need completions",
                corpus.token_count(), corpus.document_count());
  }
  return fail(Code::kInvalidArgument,
              "the corpus has {} tokens in {} documents; training needs documents of two tokens or "
              "more",
              corpus.token_count(), corpus.document_count());
}

}  // namespace

Result<Sequences> cut_sequences(const Corpus& corpus, const SequenceOptions& options) {
  JIGE_CHECK(options.context >= 1 && options.context <= INT32_MAX, "a context of {} tokens",
             options.context);
  if (options.packing == Packing::kStream && corpus.token_count() <= options.context) {
    return fail(Code::kInvalidArgument,
                "the corpus has {} tokens, too few for one sequence of {}; give more text or a "
                "smaller --context",
                corpus.token_count(), options.context);
  }
  Cutter cutter(options);
  for (const Corpus::Part& part : corpus.parts()) {
    if (options.packing == Packing::kStream) {
      JIGE_DO(cutter.cut_document(part, 0, part.tokens.count()));
      continue;
    }
    int64_t begin = 0;
    const bool pairs = part.of == DocumentsOf::kPairs;
    for (size_t i = pairs ? 1 : 0; i < part.ends.size(); i += pairs ? 2 : 1) {
      const int64_t end = part.ends[i];
      JIGE_DO(pairs ? cutter.cut_pair(part, begin, part.ends[i - 1], end)
                    : cutter.cut_document(part, begin, end));
      begin = end;
    }
  }
  Sequences sequences = cutter.split();
  if (sequences.training.empty()) return nothing_to_learn(corpus, sequences);
  return sequences;
}

}  // namespace jige::train
