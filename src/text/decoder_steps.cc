#include "text/decoder_steps.h"

#include "text/byte_level.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

// A factory that constructs StepType from copies of some values.
template <typename StepType, typename... Args>
class FactoryOf final : public Decoder::Factory {
 public:
  explicit FactoryOf(Args... args) : args_(std::move(args)...) {}
  std::unique_ptr<DecoderStep> start() const override {
    return std::apply([](const auto&... args) { return std::make_unique<StepType>(args...); },
                      args_);
  }

 private:
  std::tuple<Args...> args_;
};

// For steps that need a whole token at a time: gathers its chunks.
class WholeTokenStep : public DecoderStep {
 public:
  void push(const TokenChunk& chunk) final {
    if (chunk.begins && chunk.ends) {
      token(chunk.text);
      return;
    }
    held_.append(chunk.text);
    if (!chunk.ends) return;
    token(held_);
    held_.clear();
  }

 protected:
  virtual void token(std::string_view text) = 0;

 private:
  std::string held_;
};

// Collects bytes and passes on the characters they complete.
class ByteCollector {
 public:
  void add(std::string_view bytes) { held_.append(bytes); }
  bool empty() const { return held_.empty(); }
  // The complete characters so far; with `all`, also what is left, as U+FFFD.
  std::string take(bool all) {
    const size_t keep = all ? 0 : incomplete_utf8_suffix(held_);
    const std::string_view ready = std::string_view(held_).substr(0, held_.size() - keep);
    std::string text = replace_invalid_utf8(ready);
    held_.erase(0, ready.size());
    return text;
  }

 private:
  std::string held_;
};

class ByteLevelDecoderStep final : public WholeTokenStep {
 public:
  void finish() override {
    next_->push({bytes_.take(true), !begun_, true});
    next_->finish();
  }

 protected:
  void token(std::string_view text) override {
    const auto bytes = from_byte_level(text);
    bytes_.add(bytes ? std::string_view(*bytes) : text);
    const std::string ready = bytes_.take(false);
    if (ready.empty()) return;
    next_->push({ready, !begun_, false});
    begun_ = true;
  }

 private:
  ByteCollector bytes_;
  bool begun_ = false;
};

class MetaspaceDecoderStep final : public DecoderStep {
 public:
  MetaspaceDecoderStep(std::string mark, bool drop_first)
      : mark_(std::move(mark)), drop_(drop_first) {}
  void push(const TokenChunk& chunk) override {
    std::string text;
    size_t from = 0;
    for (size_t at = chunk.text.find(mark_); at != chunk.text.npos;
         at = chunk.text.find(mark_, from)) {
      text.append(chunk.text.substr(from, at - from));
      if (!drop_) text.push_back(' ');
      from = at + mark_.size();
    }
    text.append(chunk.text.substr(from));
    if (chunk.ends) drop_ = false;
    next_->push({text, chunk.begins, chunk.ends});
  }
  void finish() override { next_->finish(); }

 private:
  std::string mark_;
  bool drop_;
};

class ByteFallbackStep final : public WholeTokenStep {
 public:
  void finish() override {
    end_run();
    next_->finish();
  }

 protected:
  void token(std::string_view text) override {
    const int byte = byte_token(text);
    if (byte < 0) {
      end_run();
      next_->push({text});
      return;
    }
    const char value = static_cast<char>(byte);
    bytes_.add({&value, 1});
    const std::string ready = bytes_.take(false);
    if (!ready.empty()) next_->push({ready});
  }

 private:
  static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  }
  // The byte that a token <0x..> stands for, or -1.
  static int byte_token(std::string_view text) {
    if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
    const int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
  }
  void end_run() {
    if (!bytes_.empty()) next_->push({bytes_.take(true)});
  }

  ByteCollector bytes_;
};

class FuseStep final : public DecoderStep {
 public:
  void push(const TokenChunk& chunk) override {
    next_->push({chunk.text, !begun_, false});
    begun_ = true;
  }
  void finish() override {
    next_->push({"", !begun_, true});
    next_->finish();
  }

 private:
  bool begun_ = false;
};

class ReplaceDecoderStep final : public WholeTokenStep {
 public:
  ReplaceDecoderStep(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void finish() override { next_->finish(); }

 protected:
  void token(std::string_view text) override {
    // A pattern that runs away leaves the token as it is; decoding never fails on it.
    const auto replaced = pattern_.replace_all(text, content_, scratch_);
    next_->push({replaced ? std::string_view(*replaced) : text});
  }

 private:
  Pattern pattern_;
  std::string content_;
  RegexScratch scratch_;
};

// Strips the start as chunks come; a stop count needs the whole token (StripStopStep).
class StripStartStep final : public DecoderStep {
 public:
  StripStartStep(std::string content, int64_t count)
      : content_(std::move(content)), count_(count) {}
  void push(const TokenChunk& chunk) override {
    std::string_view text = chunk.text;
    if (chunk.begins) left_ = count_;
    while (left_ > 0 && !text.empty()) {
      if (!text.starts_with(content_)) {
        left_ = 0;
        break;
      }
      text.remove_prefix(content_.size());
      --left_;
    }
    next_->push({text, chunk.begins, chunk.ends});
  }
  void finish() override { next_->finish(); }

 private:
  std::string content_;
  int64_t count_;
  int64_t left_ = 0;
};

class StripStopStep final : public WholeTokenStep {
 public:
  StripStopStep(std::string content, int64_t count) : content_(std::move(content)), count_(count) {}
  void finish() override { next_->finish(); }

 protected:
  void token(std::string_view text) override {
    for (int64_t i = 0; i < count_ && text.ends_with(content_); ++i) {
      text.remove_suffix(content_.size());
    }
    next_->push({text});
  }

 private:
  std::string content_;
  int64_t count_;
};

// Strips both ends, by a start step whose output a stop step takes.
class StripBothStep final : public DecoderStep {
 public:
  StripBothStep(const std::string& content, const StripCounts& counts)
      : start_(content, counts.start), stop_(content, counts.stop) {}
  void push(const TokenChunk& chunk) override {
    connect_inside();
    start_.push(chunk);
  }
  void finish() override {
    connect_inside();
    start_.finish();
  }

 private:
  void connect_inside() {
    start_.connect(&stop_);
    stop_.connect(next_);
  }
  StripStartStep start_;
  StripStopStep stop_;
};

struct Replacement {
  std::string_view from, to;
};
// In the order in which Hugging Face tokenizers makes them.
constexpr Replacement kCleaned[] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                    {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                    {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                    {" 've", "'ve"}, {" 're", "'re"}};

class WordPieceStep final : public DecoderStep {
 public:
  WordPieceStep(std::string prefix, bool cleans) : prefix_(std::move(prefix)), cleans_(cleans) {}
  void push(const TokenChunk& chunk) override {
    const bool goes_on = !first_ && chunk.text.starts_with(prefix_);
    std::string text(first_ || goes_on ? "" : " ");
    text.append(goes_on ? chunk.text.substr(prefix_.size()) : chunk.text);
    first_ = false;
    if (cleans_) clean(text);
    next_->push({text});
  }
  void finish() override { next_->finish(); }

 private:
  static void clean(std::string& text) {
    for (const Replacement& one : kCleaned) {
      for (size_t at = text.find(one.from); at != text.npos;
           at = text.find(one.from, at + one.to.size())) {
        text.replace(at, one.from.size(), one.to);
      }
    }
  }

  std::string prefix_;
  bool cleans_;
  bool first_ = true;
};

class JoinStep final : public DecoderStep {
 public:
  void push(const TokenChunk& chunk) override {
    if (!first_) next_->push({" "});
    first_ = false;
    next_->push(chunk);
  }
  void finish() override { next_->finish(); }

 private:
  bool first_ = true;
};

}  // namespace

DecoderFactory byte_level_decoder() { return std::make_shared<FactoryOf<ByteLevelDecoderStep>>(); }

DecoderFactory metaspace_decoder(std::string mark, bool drop_first) {
  return std::make_shared<FactoryOf<MetaspaceDecoderStep, std::string, bool>>(std::move(mark),
                                                                              drop_first);
}

DecoderFactory byte_fallback_decoder() { return std::make_shared<FactoryOf<ByteFallbackStep>>(); }

DecoderFactory fuse_decoder() { return std::make_shared<FactoryOf<FuseStep>>(); }

DecoderFactory replace_decoder(Pattern pattern, std::string content) {
  return std::make_shared<FactoryOf<ReplaceDecoderStep, Pattern, std::string>>(std::move(pattern),
                                                                               std::move(content));
}

DecoderFactory strip_decoder(std::string content, StripCounts counts) {
  if (counts.stop == 0) {
    return std::make_shared<FactoryOf<StripStartStep, std::string, int64_t>>(std::move(content),
                                                                             counts.start);
  }
  return std::make_shared<FactoryOf<StripBothStep, std::string, StripCounts>>(std::move(content),
                                                                              counts);
}

DecoderFactory word_piece_decoder(std::string prefix, bool cleans) {
  return std::make_shared<FactoryOf<WordPieceStep, std::string, bool>>(std::move(prefix), cleans);
}

DecoderFactory join_decoder() { return std::make_shared<FactoryOf<JoinStep>>(); }

}  // namespace jige::text
