#include "text/unigram.h"

#include <algorithm>

#include "text/encode_word.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

constexpr size_t kPieceBytesMax = 4096;
constexpr double kUnknownPenalty = 10;

}  // namespace

Result<UnigramModel> UnigramModel::create(std::shared_ptr<const Vocabulary> vocabulary,
                                          const std::vector<double>& scores, UnigramOptions options,
                                          std::string_view where) {
  const auto size = static_cast<size_t>(vocabulary->size());
  if (scores.size() != size || size == 0) {
    return fail(Code::kCorrupt, "{}: has {} scores for {} pieces", where, scores.size(), size);
  }
  if (options.unk_id >= vocabulary->size()) {
    return fail(Code::kCorrupt, "{}: \"unk_id\" is {}, outside the vocabulary of {}", where,
                options.unk_id, size);
  }
  UnigramModel model;
  for (int32_t id = 0; id < vocabulary->size(); ++id) {
    const std::string& piece = vocabulary->token(id);
    if (piece.size() > kPieceBytesMax) {
      return fail(Code::kUnsupported, "{}: piece {} has {} bytes, more than {}", where, id,
                  piece.size(), kPieceBytesMax);
    }
    if (!piece.empty()) model.pieces_.add(piece, id);
  }
  model.unk_score_ = *std::min_element(scores.begin(), scores.end()) - kUnknownPenalty;
  model.forbidden_.resize(size);
  model.scores_ = scores;
  model.vocabulary_ = std::move(vocabulary);
  model.options_ = options;
  model.where_ = where;
  return model;
}

void UnigramModel::forbid(int32_t id) {
  if (!vocabulary_->contains(id) || count_characters(vocabulary_->token(id)) < 2) return;
  forbidden_[static_cast<size_t>(id)] = true;
}

Status UnigramModel::encode(std::string_view word, UnigramScratch& scratch,
                            std::vector<int32_t>& ids) const {
  const auto encode = [this](auto&&... args) { return encode_new(args...); };
  return encode_word(word, options_.byte_level, scratch, ids, encode);
}

tl::unexpected<Error> UnigramModel::no_unknown_token() const {
  return fail(Code::kCorrupt, "{}: the text needs an unknown token, and \"unk_id\" names none",
              where_);
}

Status UnigramModel::find_best(std::string_view word, UnigramScratch& scratch) const {
  auto& places = scratch.places;
  places.assign(word.size() + 1, {});
  for (size_t begin = 0; begin < word.size();) {
    const size_t next = begin + utf8_size(word[begin]);
    const double so_far = places[begin].score;
    const auto offer = [&](size_t end, double score, int32_t id) {
      UnigramScratch::Place& place = places[end];
      if (place.begin != UINT32_MAX && so_far + score <= place.score) return false;
      place = {so_far + score, static_cast<uint32_t>(begin), id};
      return true;
    };
    scratch.ends.clear();
    pieces_.find_at(word, begin, scratch.ends);
    bool is_piece = false;
    for (const TokenTrie::End& end : scratch.ends) {
      const auto index = static_cast<size_t>(end.value);
      if (forbidden_[index]) continue;
      offer(end.end, scores_[index], end.value);
      is_piece = is_piece || end.end == next;
    }
    if (!is_piece && offer(next, unk_score_, options_.unk_id) && options_.unk_id < 0) {
      return no_unknown_token();
    }
    begin = next;
  }
  return {};
}

Status UnigramModel::encode_new(std::string_view word, UnigramScratch& scratch,
                                std::vector<int32_t>& ids) const {
  JIGE_DO(find_best(word, scratch));
  const auto& places = scratch.places;
  scratch.path.clear();
  for (size_t end = word.size(); end > 0; end = places[end].begin) {
    scratch.path.push_back(static_cast<uint32_t>(end));
  }
  // A run of unknown characters waits for its end.
  size_t run = 0;
  size_t begin = 0;
  for (auto end = scratch.path.rbegin(); end != scratch.path.rend(); ++end) {
    const int32_t id = places[*end].id;
    if (id != options_.unk_id) {
      if (run < begin) JIGE_DO(append_unknown(word.substr(run, begin - run), ids));
      ids.push_back(id);
      run = *end;
    }
    begin = *end;
  }
  if (run < begin) JIGE_DO(append_unknown(word.substr(run, begin - run), ids));
  return {};
}

// The text of a run is looked up once more: it may be a piece that scores too low.
Status UnigramModel::append_unknown(std::string_view text, std::vector<int32_t>& ids) const {
  const int32_t known = vocabulary_->find(text);
  if (known >= 0 && !forbidden_[static_cast<size_t>(known)]) {
    ids.push_back(known);
    return {};
  }
  const size_t before = ids.size();
  if (options_.byte_fallback) {
    for (const char byte : text) {
      const int32_t id = vocabulary_->find(fmt::format("<0x{:02X}>", static_cast<uint8_t>(byte)));
      if (id < 0) {
        ids.resize(before);
        break;
      }
      ids.push_back(id);
    }
    if (ids.size() > before) return {};
  }
  ids.push_back(options_.unk_id);
  return {};
}

}  // namespace jige::text
