#include "text/pre_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/byte_level.h"
#include "text/component.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

using Step = PreTokenizer::Step;

class PatternStep final : public Step {
 public:
  PatternStep(Pattern pattern, SplitRule rule) : pattern_(std::move(pattern)), rule_(rule) {}
  Status apply(const Piece& piece, RegexScratch& scratch, PieceSink& next) const override {
    Splitter splitter(piece, rule_, next);
    JIGE_DO(pattern_.for_each(piece.text, scratch,
                              [&](const Range& match) { return splitter.match(match); }));
    return splitter.finish();
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

 private:
  Predicate is_;
  SplitRule rule_;
};

// Runs of word characters and runs of other characters; white space is dropped.
class WhitespaceStep final : public Step {
 public:
  Status apply(const Piece& piece, RegexScratch&, PieceSink& sink) const override {
    enum class Kind { kSpace, kWord, kOther };
    Kind current = Kind::kSpace;
    size_t begin = 0;
    const auto emit = [&](size_t end) -> Status {
      if (current == Kind::kSpace || begin == end) return {};
      return sink.take(piece.part(begin, end));
    };
    for (size_t i = 0; i < piece.text.size();) {
      const Decoded next = decode_utf8(piece.text.substr(i));
      const Kind kind = is_word(next.code_point)          ? Kind::kWord
                        : is_white_space(next.code_point) ? Kind::kSpace
                                                          : Kind::kOther;
      if (kind != current) {
        JIGE_DO(emit(i));
        current = kind;
        begin = i;
      }
      i += next.size;
    }
    return emit(piece.text.size());
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
  Status apply(const Piece& piece, RegexScratch& scratch, PieceSink& next) const override {
    std::string prefixed;
    Piece current = piece;
    if (options_.add_prefix_space && piece.start != PieceStart::kContinuation &&
        !current.text.starts_with(' ')) {
      prefixed = " " + std::string(current.text);
      current.text = prefixed;
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
    return next.take({spelled, piece.start});
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
    const bool wanted =
        (options_.prepend == Prepend::kAlways && piece.start != PieceStart::kContinuation) ||
        (options_.prepend == Prepend::kFirst && piece.start == PieceStart::kInput);
    if (wanted && !text.starts_with(options_.mark)) text.insert(0, options_.mark);
    const Piece marked{text, piece.start};
    return options_.split ? split(marked, next) : next.take(marked);
  }

 private:
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
};

}  // namespace

Result<PreTokenizer> PreTokenizer::from_json(const Json* component, std::string_view where) {
  PreTokenizer result;
  if (!component) return result;
  Builder builder(fmt::format("{}: pre_tokenizer", where));
  JIGE_DO(builder.add(*component));
  result.leaves_bytes_ = builder.pending_spelling();
  result.marks_start_ = builder.marks_start();
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

Status PreTokenizer::apply(const Piece& piece, RegexScratch& scratch, PieceSink& words) const {
  return apply_from(0, piece, scratch, words);
}

}  // namespace jige::text
