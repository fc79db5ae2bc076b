#include "text/pre_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/byte_level.h"
#include "text/component.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

using Step = PreTokenizer::Step;
using Cut = PreTokenizer::Cut;

// What a cut does to the parts that a rule makes of matches.
Cut apply_cut(const PatternCut& cut, const SplitRule& rule, CutPlace& at) {
  if (!cut.allowed) return Cut::kNever;
  const bool merges = rule.behavior == SplitBehavior::kMergedWithPrevious ||
                      rule.behavior == SplitBehavior::kMergedWithNext;
  // Matches that join their neighbours: only a text without any is looked at.
  if (merges) return cut.any ? Cut::kNever : Cut::kInsidePart;
  if (cut.behind_match && cut.before_match && rule.behavior == SplitBehavior::kContiguous) {
    return Cut::kNever;
  }
  if (cut.behind_match || cut.before_match) return Cut::kBetweenParts;
  at.cut_out(cut.gap.begin, cut.gap.end);
  return Cut::kInsidePart;
}

class PatternStep final : public Step {
 public:
  PatternStep(Pattern pattern, SplitRule rule) : pattern_(std::move(pattern)), rule_(rule) {}
  Status apply(const Piece& piece, RegexScratch& scratch, PieceSink& next) const override {
    Splitter splitter(piece, rule_, next);
    JIGE_DO(pattern_.for_each(piece.text, scratch,
                              [&](const Range& match) { return splitter.match(match); }));
    return splitter.finish();
  }
  Result<Cut> cut(CutPlace& at, RegexScratch& scratch) const override {
    JIGE_TRY(const PatternCut cut, pattern_.cut(at.text, at.place, scratch));
    return apply_cut(cut, rule_, at);
  }

 private:
  Pattern pattern_;
  SplitRule rule_;
};

// Every character for which a predicate holds is a match of its own.
class CharacterStep final : public Step {
 public:
  using Predicate = bool (*)(char32_t);
  CharacterStep(Predicate is, SplitRule rule) : is_(is), rule_(rule) {}
  Status apply(const Piece& piece, RegexScratch&, PieceSink& sink) const override {
    Splitter splitter(piece, rule_, sink);
    for (size_t i = 0; i < piece.text.size();) {
      const Decoded next = decode_utf8(piece.text.substr(i));
      if (is_(next.code_point)) JIGE_DO(splitter.match({i, i + next.size}));
      i += next.size;
    }
    return splitter.finish();
  }
  Result<Cut> cut(CutPlace& at, RegexScratch&) const override {
    PatternCut cut{.allowed = true, .gap = {0, at.text.size()}};
    for (size_t i = 0; i < at.text.size();) {
      const Decoded next = decode_utf8(at.text.substr(i));
      const bool match = is_(next.code_point);
      cut.any = cut.any || match;
      if (match && i >= at.place) {
        cut.before_match = i == at.place;
        cut.gap.end = i;
        break;
      }
      i += next.size;
      if (match) cut.gap.begin = i;
      if (match) cut.behind_match = i == at.place;
    }
    return apply_cut(cut, rule_, at);
  }

 private:
  Predicate is_;
  SplitRule rule_;
};

enum class CharacterKind { kSpace, kWord, kOther };

CharacterKind kind_of(char32_t c) {
  return is_word(c)          ? CharacterKind::kWord
         : is_white_space(c) ? CharacterKind::kSpace
                             : CharacterKind::kOther;
}

// Runs of word characters and runs of other characters; white space is dropped.
class WhitespaceStep final : public Step {
 public:
  Status apply(const Piece& piece, RegexScratch&, PieceSink& sink) const override {
    using Kind = CharacterKind;
    Kind current = Kind::kSpace;
    size_t begin = 0;
    const auto emit = [&](size_t end) -> Status {
      if (current == Kind::kSpace || begin == end) return {};
      return sink.take(piece.part(begin, end));
    };
    for (size_t i = 0; i < piece.text.size();) {
      const Decoded next = decode_utf8(piece.text.substr(i));
      const Kind kind = kind_of(next.code_point);
      if (kind != current) {
        JIGE_DO(emit(i));
        current = kind;
        begin = i;
      }
      i += next.size;
    }
    return emit(piece.text.size());
  }
  Result<Cut> cut(CutPlace& at, RegexScratch&) const override {
    const std::string_view left = at.text.substr(0, at.place);
    const CharacterKind before = kind_of(decode_utf8(left.substr(last_character(left))).code_point);
    const CharacterKind behind = kind_of(decode_utf8(at.text.substr(at.place)).code_point);
    // A run is not looked for: it stays whole.
    return before == behind && before != CharacterKind::kSpace ? Cut::kNever : Cut::kBetweenParts;
  }
};

struct ByteLevelOptions {
  bool add_prefix_space;
  bool use_regex;
};

class ByteLevelStep final : public Step {
 public:
  ByteLevelStep(ByteLevelOptions options, std::shared_ptr<const Regex> words)
      : options_(options), words_(std::move(words)) {}
  bool marks() const override { return options_.add_prefix_space; }
  Result<Cut> cut(CutPlace& at, RegexScratch& scratch) const override {
    if (options_.add_prefix_space && at.start != PieceStart::kContinuation &&
        !at.text.starts_with(' ')) {
      at.changed = " " + std::string(at.text);
      at.text = at.changed;
      ++at.place;
      ++at.front;
    }
    if (!options_.use_regex) return Cut::kInsidePart;
    JIGE_TRY(const PatternCut cut, cut_among_matches(*words_, at.text, at.place, scratch));
    return apply_cut(cut, {SplitBehavior::kIsolated}, at);
  }
  Status apply(const Piece& piece, RegexScratch& scratch, PieceSink& next) const override {
    std::string prefixed;
    Piece current = piece;
    if (options_.add_prefix_space && piece.start != PieceStart::kContinuation &&
        !current.text.starts_with(' ')) {
      prefixed = " " + std::string(current.text);
      current.text = prefixed;
      ++current.front;
    }
    if (!options_.use_regex) return next.take(current);
    Splitter splitter(current, {SplitBehavior::kIsolated}, next);
    Regex::Scan scan(*words_, current.text, scratch);
    for (Range match;;) {
      JIGE_TRY(const bool more, scan.next(match));
      if (!more) return splitter.finish();
      JIGE_DO(splitter.match(match));
    }
  }

 private:
  ByteLevelOptions options_;
  std::shared_ptr<const Regex> words_;
};

// Spells bytes as characters, for a ByteLevel that is not the last step.
class SpellStep final : public Step {
 public:
  Status apply(const Piece& piece, RegexScratch&, PieceSink& next) const override {
    std::string spelled;
    append_byte_level(spelled, piece.text);
    return next.take({spelled, piece.start, spelled_front(piece.text, piece.front)});
  }
  Result<Cut> cut(CutPlace& at, RegexScratch&) const override {
    std::string spelled;
    append_byte_level(spelled, at.text.substr(0, at.place));
    const size_t place = spelled.size();
    append_byte_level(spelled, at.text.substr(at.place));
    at.front = spelled_front(at.text, at.front);
    at.changed = std::move(spelled);
    at.text = at.changed;
    at.place = place;
    return Cut::kInsidePart;
  }

 private:
  // Every character that spells a byte of the first one stands where that begins.
  static size_t spelled_front(std::string_view text, size_t front) {
    const size_t first = front < text.size() ? utf8_size(text[front]) : 0;
    std::string spelled;
    append_byte_level(spelled, text.substr(0, front + first));
    return first == 0 ? spelled.size() : last_character(spelled);
  }
};

enum class Prepend { kAlways, kFirst, kNever };

struct MetaspaceOptions {
  std::string mark;
  Prepend prepend;
  bool split;
};

class MetaspaceStep final : public Step {
 public:
  explicit MetaspaceStep(MetaspaceOptions options)
      : options_(std::move(options)), space_(Pattern::literal(" ")) {}
  Status apply(const Piece& piece, RegexScratch& scratch, PieceSink& next) const override {
    JIGE_TRY(std::string text, space_.replace_all(piece.text, options_.mark, scratch));
    JIGE_TRY(size_t front, changed_front(piece.text, piece.front, scratch));
    if (wants_mark(text, piece.start)) {
      text.insert(0, options_.mark);
      front += options_.mark.size();
    }
    const Piece marked{text, piece.start, front};
    return options_.split ? split(marked, next) : next.take(marked);
  }
  bool marks() const override { return options_.prepend != Prepend::kNever; }
  Result<Cut> cut(CutPlace& at, RegexScratch& scratch) const override {
    JIGE_TRY(std::string text,
             space_.replace_all(at.text.substr(0, at.place), options_.mark, scratch));
    JIGE_TRY(at.front, changed_front(at.text, at.front, scratch));
    if (wants_mark(text, at.start)) {
      text.insert(0, options_.mark);
      at.front += options_.mark.size();
    }
    const size_t place = text.size();
    JIGE_TRY(const std::string right,
             space_.replace_all(at.text.substr(at.place), options_.mark, scratch));
    text += right;
    at.changed = std::move(text);
    at.text = at.changed;
    at.place = place;
    if (!options_.split) return Cut::kInsidePart;
    if (right.starts_with(options_.mark)) return Cut::kBetweenParts;
    const size_t begin = at.text.rfind(options_.mark, place - 1);
    at.cut_out(begin == at.text.npos ? 0 : begin,
               std::min(find_text(at.text, options_.mark, place), at.text.size()));
    return Cut::kInsidePart;
  }

 private:
  // The bytes that what was put in front has once its spaces are marks.
  Result<size_t> changed_front(std::string_view text, size_t front, RegexScratch& scratch) const {
    if (front == 0) return size_t{0};
    JIGE_TRY(const std::string changed,
             space_.replace_all(text.substr(0, front), options_.mark, scratch));
    return changed.size();
  }

  bool wants_mark(std::string_view text, PieceStart start) const {
    const bool wanted =
        (options_.prepend == Prepend::kAlways && start != PieceStart::kContinuation) ||
        (options_.prepend == Prepend::kFirst && start == PieceStart::kInput);
    return wanted && !text.starts_with(options_.mark);
  }

  // Cuts before every mark that is not the first character.
  Status split(const Piece& piece, PieceSink& next) const {
    for (size_t begin = 0; begin < piece.text.size();) {
      const size_t mark = find_text(piece.text, options_.mark, begin + 1);
      const size_t end = std::min(mark, piece.text.size());
      JIGE_DO(next.take(piece.part(begin, end)));
      begin = end;
    }
    return {};
  }

  MetaspaceOptions options_;
  Pattern space_;
};

// Hands pieces on to the rest of the steps.
template <typename Rest>
class RestSink final : public PieceSink {
 public:
  explicit RestSink(Rest rest) : rest_(std::move(rest)) {}
  Status take(const Piece& piece) override { return rest_(piece); }

 private:
  Rest rest_;
};

class Builder {
 public:
  explicit Builder(std::string where) : where_(std::move(where)) {}

  Status add(const Json& component) {
    if (steps_.size() >= kStepsMax) {
      return fail(Code::kCorrupt, "{}: too many pre-tokenizers", where_);
    }
    JIGE_TRY(const std::string type, component_type(component, where_));
    if (type == "Sequence") {
      JIGE_TRY(const Json* parts, component_list(component, "pretokenizers", where_));
      for (const Json& part : *parts) JIGE_DO(add(part));
      return {};
    }
    if (pending_spelling_) JIGE_DO(push(std::make_shared<SpellStep>()));
    pending_spelling_ = false;
    if (type == "ByteLevel") return add_byte_level(component);
    if (type == "Metaspace") return add_metaspace(component);
    if (type == "Split") return add_split(component);
    if (type == "Punctuation") {
      JIGE_TRY(const SplitBehavior behavior, behavior_from_json(component, where_));
      return push(std::make_shared<CharacterStep>(is_punctuation, SplitRule{behavior}));
    }
    if (type == "Digits") {
      JIGE_TRY(const bool single, get_bool_or(component, "individual_digits", false, where_));
      const auto behavior = single ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
      return push(std::make_shared<CharacterStep>(is_numeric, SplitRule{behavior}));
    }
    if (type == "WhitespaceSplit") {
      return push(
          std::make_shared<CharacterStep>(is_white_space, SplitRule{SplitBehavior::kRemoved}));
    }
    if (type == "Whitespace") return push(std::make_shared<WhitespaceStep>());
    if (type == "BertPreTokenizer") {
      JIGE_DO(push(
          std::make_shared<CharacterStep>(is_white_space, SplitRule{SplitBehavior::kRemoved})));
      return push(
          std::make_shared<CharacterStep>(is_punctuation, SplitRule{SplitBehavior::kIsolated}));
    }
    if (type == "CharDelimiterSplit") {
      JIGE_TRY(std::string delimiter, get_string(component, "delimiter", where_));
      if (delimiter.empty()) return fail(Code::kCorrupt, "{}: \"delimiter\" is empty", where_);
      return push(std::make_shared<PatternStep>(Pattern::literal(std::move(delimiter)),
                                                SplitRule{SplitBehavior::kRemoved}));
    }
    return unsupported_component("pre-tokenizer", type, where_);
  }

  std::vector<std::shared_ptr<const Step>> take_steps() { return std::move(steps_); }
  bool pending_spelling() const { return pending_spelling_; }
  bool marks_start() const { return marks_start_; }
  bool marks_start_alone() const { return marks_start_alone_; }

 private:
  Status push(std::shared_ptr<const Step> step) {
    steps_.push_back(std::move(step));
    return {};
  }

  Status add_byte_level(const Json& component) {
    // Each spelling doubles the text.
    if (has_byte_level_) return unsupported_component("pre-tokenizer", "second ByteLevel", where_);
    has_byte_level_ = true;
    JIGE_TRY(const bool prefix, get_bool_or(component, "add_prefix_space", true, where_));
    JIGE_TRY(const bool use_regex, get_bool_or(component, "use_regex", true, where_));
    JIGE_TRY(Regex words, Regex::compile(PreTokenizer::kGpt2Pattern, where_));
    pending_spelling_ = true;
    marks_start_ |= prefix;
    return push(std::make_shared<ByteLevelStep>(ByteLevelOptions{prefix, use_regex},
                                                std::make_shared<const Regex>(std::move(words))));
  }

  Status add_metaspace(const Json& component) {
    JIGE_TRY(std::string mark, get_string_or(component, "replacement", kSpaceMark, where_));
    if (count_characters(mark) != 1 || mark == " ") {
      return fail(Code::kCorrupt, "{}: \"replacement\" must be one character", where_);
    }
    // Older files say add_prefix_space instead of prepend_scheme.
    JIGE_TRY(const bool prefix, get_bool_or(component, "add_prefix_space", true, where_));
    JIGE_TRY(const std::string scheme,
             get_string_or(component, "prepend_scheme", prefix ? "always" : "never", where_));
    JIGE_TRY(const bool split, get_bool_or(component, "split", true, where_));
    Prepend prepend = Prepend::kAlways;
    if (scheme == "first") {
      prepend = Prepend::kFirst;
    } else if (scheme == "never") {
      prepend = Prepend::kNever;
    } else if (scheme != "always") {
      return fail(Code::kCorrupt, "{}: unknown \"prepend_scheme\" \"{}\"", where_, scheme);
    }
    marks_start_ |= prepend != Prepend::kNever;
    marks_start_alone_ |= prepend == Prepend::kFirst;
    return push(std::make_shared<MetaspaceStep>(MetaspaceOptions{std::move(mark), prepend, split}));
  }

  Status add_split(const Json& component) {
    JIGE_TRY(Pattern pattern, Pattern::from_json(component, where_));
    JIGE_TRY(const SplitBehavior behavior, behavior_from_json(component, where_));
    JIGE_TRY(const bool invert, get_bool_or(component, "invert", false, where_));
    return push(std::make_shared<PatternStep>(std::move(pattern), SplitRule{behavior, invert}));
  }

  std::string where_;
  std::vector<std::shared_ptr<const Step>> steps_;
  bool has_byte_level_ = false;
  bool pending_spelling_ = false;
  bool marks_start_ = false;
  bool marks_start_alone_ = false;
};

}  // namespace

Result<PreTokenizer> PreTokenizer::from_json(const Json* component, std::string_view where) {
  PreTokenizer result;
  if (!component) return result;
  Builder builder(fmt::format("{}: pre_tokenizer", where));
  JIGE_DO(builder.add(*component));
  result.leaves_bytes_ = builder.pending_spelling();
  result.marks_start_ = builder.marks_start();
  result.marks_start_alone_ = builder.marks_start_alone();
  result.steps_ = builder.take_steps();
  return result;
}

Status PreTokenizer::apply_from(size_t step, const Piece& piece, RegexScratch& scratch,
                                PieceSink& words) const {
  if (step == steps_.size()) return words.take(piece);
  if (step + 1 == steps_.size()) return steps_[step]->apply(piece, scratch, words);
  RestSink rest([&](const Piece& part) { return apply_from(step + 1, part, scratch, words); });
  return steps_[step]->apply(piece, scratch, rest);
}

Result<Cut> PreTokenizer::cut(CutPlace& at, RegexScratch& scratch) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    const bool space = at.text[at.place] == ' ';
    JIGE_TRY(const Cut cut, steps_[i]->cut(at, scratch));
    if (cut == Cut::kInsidePart) continue;
    if (cut == Cut::kNever || space) return cut;
    // A part of its own gets a mark that a text which goes on does not get, except before a space.
    const bool marked = std::any_of(steps_.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                    steps_.end(), [](const auto& step) { return step->marks(); });
    return marked ? Cut::kNever : cut;
  }
  return Cut::kInsidePart;
}

Status PreTokenizer::apply(const Piece& piece, RegexScratch& scratch, PieceSink& words) const {
  return apply_from(0, piece, scratch, words);
}

}  // namespace jige::text
