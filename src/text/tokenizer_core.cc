#include "text/tokenizer_core.h"

#include <algorithm>

#include "text/component.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

constexpr size_t kPoolMax = 64;
// Of a text, between two times that its progress is told.
constexpr size_t kBytesBetweenLooks = 1 << 16;

}  // namespace

// One text on its way through the parts.
class TokenizerCore::Run final : public PieceSink {
 public:
  Run(const TokenizerParts& parts, const EncodeOptions& options, Scratch& scratch)
      : parts_(parts), options_(options), scratch_(scratch) {}

  Result<PlacedIds> encode(std::string_view text, std::span<const size_t> places = {}) {
    const PostProcessor& post = parts_.post_processor;
    if (options_.add_special) ids_ = post.prefix;
    scratch_.raw.clear();
    parts_.added.split_raw(text, {options_.allow_special, options_.guards}, scratch_.raw);
    std::vector<size_t> before;
    for (const Section& section : scratch_.raw) {
      const size_t count = ids_.size();
      done_bytes_ = section.begin;
      section_end_ = section.end;
      if (section.id >= 0) {
        ids_.push_back(section.id);
      } else {
        JIGE_DO(encode_raw(text, section));
      }
      JIGE_DO(check_count());
      for (; !places.empty() && places[0] < section.end; places = places.subspan(1)) {
        JIGE_TRY(const size_t inside, ids_before(text, section, places[0], count));
        before.push_back(count + inside);
      }
    }
    before.resize(before.size() + places.size(), ids_.size());
    if (options_.add_special) ids_.insert(ids_.end(), post.suffix.begin(), post.suffix.end());
    JIGE_DO(check_count());
    return PlacedIds{std::move(ids_), std::move(before)};
  }

 private:
  Status check_count() const {
    if (ids_.size() <= options_.tokens_max) return {};
    return fail(Code::kExhausted, "the text has more than {} tokens", options_.tokens_max);
  }

  // Words are of normalized text, which may be longer than what it is of.
  void count_progress(size_t word_bytes) {
    done_bytes_ = std::min(done_bytes_ + word_bytes, section_end_);
    if (done_bytes_ - told_bytes_ < kBytesBetweenLooks) return;
    told_bytes_ = done_bytes_;
    (*options_.on_progress)(done_bytes_);
  }

  // How many ids of a section, which begin at `count`, lie before a place in it: those that its
  // beginning alone has too.
  Result<size_t> ids_before(std::string_view text, const Section& section, size_t place,
                            size_t count) {
    if (section.id >= 0 || place <= section.begin) return size_t{0};
    const size_t end = ids_.size();
    JIGE_DO(encode_raw(text, {section.begin, place, -1}));
    size_t same = 0;
    while (count + same < end && end + same < ids_.size() &&
           ids_[count + same] == ids_[end + same]) {
      ++same;
    }
    ids_.resize(end);
    return same;
  }

  // Guards are places in the raw text. In a stretch that has one, no special token is looked for
  // in the normalized text, whose places are different.
  bool special_allowed(const Section& section) const {
    if (!options_.allow_special) return false;
    const auto& guards = options_.guards;
    const auto first = std::lower_bound(guards.begin(), guards.end(), section.begin);
    return first == guards.end() || *first > section.end;
  }

  Status encode_raw(std::string_view text, const Section& section) {
    const std::string_view raw = text.substr(section.begin, section.end - section.begin);
    if (parts_.normalizer.empty()) return encode_normalized(raw, section, section.begin == 0);
    JIGE_TRY(
        const Normalizer::Normalized changed,
        parts_.normalizer.apply(raw, scratch_.regex, options_.continues && section.begin == 0));
    return encode_normalized(changed.text, section, section.begin == 0 && changed.keeps_start);
  }

  // `begins`: it stands for the beginning of the input.
  Status encode_normalized(std::string_view text, const Section& section, bool begins) {
    scratch_.normalized.clear();
    const auto start = options_.continues && section.begin == 0 ? PieceStart::kContinuation
                       : begins                                 ? PieceStart::kInput
                                                                : PieceStart::kInside;
    parts_.added.split_normalized(text, special_allowed(section), scratch_.normalized);
    for (const Section& part : scratch_.normalized) {
      if (part.id >= 0) {
        ids_.push_back(part.id);
        continue;
      }
      const Piece piece{text.substr(part.begin, part.end - part.begin),
                        part.begin == 0 ? start : PieceStart::kInside};
      JIGE_DO(encode_piece(piece));
    }
    return {};
  }

  Status encode_piece(const Piece& piece) {
    if (const auto* model = std::get_if<SentencePieceModel>(&parts_.model)) {
      return model->encode(piece.text, piece.start == PieceStart::kInput, ids_);
    }
    return parts_.pre_tokenizer.apply(piece, scratch_.regex, *this);
  }

  // Every word of the pre-tokenizer comes here.
  Status take(const Piece& word) override {
    if (options_.on_progress) count_progress(word.text.size());
    if (const auto* unigram = std::get_if<UnigramModel>(&parts_.model)) {
      JIGE_DO(unigram->encode(word.text, scratch_.unigram, ids_));
    } else if (const auto* pieces = std::get_if<WordPieceModel>(&parts_.model)) {
      JIGE_DO(pieces->encode(word.text, scratch_.word_piece, ids_));
    } else {
      JIGE_DO(std::get<BpeModel>(parts_.model).encode(word.text, scratch_.bpe, ids_));
    }
    return check_count();
  }

  const TokenizerParts& parts_;
  const EncodeOptions& options_;
  Scratch& scratch_;
  std::vector<int32_t> ids_;
  // Of the text: what is behind us, where the section ends, and what was told last.
  size_t done_bytes_ = 0, section_end_ = 0, told_bytes_ = 0;
};

std::unique_ptr<TokenizerCore::Scratch> TokenizerCore::borrow() const {
  const std::lock_guard lock(mutex_);
  if (pool_.empty()) return std::make_unique<Scratch>();
  auto scratch = std::move(pool_.back());
  pool_.pop_back();
  return scratch;
}

void TokenizerCore::give_back(std::unique_ptr<Scratch> scratch) const {
  // A huge text must not leave its memory behind.
  constexpr size_t kSymbolsKept = size_t{1} << 16;
  if (scratch->bpe.symbols.capacity() > kSymbolsKept) {
    scratch->bpe.symbols = {};
    scratch->bpe.heap = {};
    scratch->bpe.ids = {};
    scratch->bpe.spelled = {};
  }
  if (scratch->unigram.places.capacity() > kSymbolsKept) scratch->unigram = {};
  const std::lock_guard lock(mutex_);
  if (pool_.size() < kPoolMax) pool_.push_back(std::move(scratch));
}

Result<std::vector<int32_t>> TokenizerCore::encode(std::string_view text,
                                                   const EncodeOptions& options) const {
  JIGE_TRY(PlacedIds placed, encode_places(text, options, {}));
  return std::move(placed.ids);
}

Result<PlacedIds> TokenizerCore::encode_places(std::string_view text, const EncodeOptions& options,
                                               std::span<const size_t> places) const {
  if (text.size() > kTextBytesMax) {
    return fail(Code::kExhausted, "the text has {} bytes, more than {}; encode it in parts",
                text.size(), kTextBytesMax);
  }
  std::string repaired;
  if (!is_valid_utf8(text)) {
    if (!options.guards.empty()) {
      return fail(Code::kInvalidArgument, "a text with guards must be valid UTF-8");
    }
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  std::unique_ptr<Scratch> scratch = borrow();
  auto placed = Run(parts_, options, *scratch).encode(text, places);
  give_back(std::move(scratch));
  return placed;
}

const std::string* TokenizerCore::token(int32_t id) const {
  if (const AddedToken* added = parts_.added.find(id)) return &added->shown;
  return parts_.vocabulary->contains(id) ? &parts_.vocabulary->token(id) : nullptr;
}

bool TokenizerCore::marks_start() const {
  const auto* model = std::get_if<SentencePieceModel>(&parts_.model);
  return parts_.normalizer.prepends() || parts_.pre_tokenizer.marks_start() ||
         (model && model->adds_space());
}

std::optional<int32_t> TokenizerCore::id(std::string_view token) const {
  if (const AddedToken* added = parts_.added.find(token)) return added->id;
  const int32_t found = parts_.vocabulary->find(token);
  return found < 0 ? std::nullopt : std::optional<int32_t>(found);
}

int32_t TokenizerCore::vocab_size() const {
  return std::max(parts_.vocabulary->size(), parts_.added.size());
}

}  // namespace jige::text
