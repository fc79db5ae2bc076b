#include "text/decoder.h"

#include <nlohmann/json.hpp>

#include "text/component.h"
#include "text/decoder_steps.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

Result<DecoderFactory> metaspace_from_json(const Json& component, std::string_view where) {
  JIGE_TRY(std::string mark, get_string_or(component, "replacement", kSpaceMark, where));
  if (mark.empty()) return fail(Code::kCorrupt, "{}: \"replacement\" is empty", where);
  JIGE_TRY(const bool prefix, get_bool_or(component, "add_prefix_space", true, where));
  JIGE_TRY(const std::string scheme,
           get_string_or(component, "prepend_scheme", prefix ? "always" : "never", where));
  return metaspace_decoder(std::move(mark), scheme != "never");
}

Result<DecoderFactory> strip_from_json(const Json& component, std::string_view where) {
  JIGE_TRY(std::string content, get_string_or(component, "content", " ", where));
  StripCounts counts;
  JIGE_TRY(counts.start, get_int_or(component, "start", 0, where));
  JIGE_TRY(counts.stop, get_int_or(component, "stop", 0, where));
  if (content.empty() || counts.start < 0 || counts.stop < 0) {
    return fail(Code::kCorrupt, "{}: Strip needs a content and counts of 0 or more", where);
  }
  return strip_decoder(std::move(content), counts);
}

Status add_decoders(const Json& component, std::string_view where,
                    std::vector<DecoderFactory>& steps) {
  if (steps.size() >= kStepsMax) return fail(Code::kCorrupt, "{}: too many decoders", where);
  JIGE_TRY(const std::string type, component_type(component, where));
  if (type == "Sequence") {
    JIGE_TRY(const Json* parts, component_list(component, "decoders", where));
    for (const Json& part : *parts) JIGE_DO(add_decoders(part, where, steps));
    return {};
  }
  if (type == "ByteLevel") {
    steps.push_back(byte_level_decoder());
  } else if (type == "ByteFallback") {
    steps.push_back(byte_fallback_decoder());
  } else if (type == "Fuse") {
    steps.push_back(fuse_decoder());
  } else if (type == "Metaspace") {
    JIGE_TRY(DecoderFactory step, metaspace_from_json(component, where));
    steps.push_back(std::move(step));
  } else if (type == "Replace") {
    JIGE_TRY(Pattern pattern, Pattern::from_json(component, where));
    JIGE_TRY(std::string content, get_string(component, "content", where));
    steps.push_back(replace_decoder(std::move(pattern), std::move(content)));
  } else if (type == "WordPiece") {
    JIGE_TRY(std::string prefix, get_string_or(component, "prefix", "##", where));
    JIGE_TRY(const bool cleans, get_bool_or(component, "cleanup", true, where));
    steps.push_back(word_piece_decoder(std::move(prefix), cleans));
  } else if (type == "Strip") {
    JIGE_TRY(DecoderFactory step, strip_from_json(component, where));
    steps.push_back(std::move(step));
  } else {
    return unsupported_component("decoder", type, where);
  }
  return {};
}

}  // namespace

Result<Decoder> Decoder::from_json(const Json* component, std::string_view where) {
  Decoder decoder;
  if (component) {
    JIGE_DO(add_decoders(*component, fmt::format("{}: decoder", where), decoder.steps_));
  } else {
    decoder.steps_.push_back(join_decoder());
  }
  return decoder;
}

Decoder Decoder::for_sentencepiece(bool strip_first_space) {
  Decoder decoder;
  decoder.steps_ = {replace_decoder(Pattern::literal(std::string(kSpaceMark)), " "),
                    byte_fallback_decoder(), fuse_decoder()};
  if (strip_first_space) decoder.steps_.push_back(strip_decoder(" ", {.start = 1}));
  return decoder;
}

// The end of the chain: appends to the string of the current push.
class DecoderRun::Sink final : public DecoderStep {
 public:
  void push(const TokenChunk& chunk) override { out->append(chunk.text); }
  void finish() override {}
  std::string* out = nullptr;
};

DecoderRun::DecoderRun(const Decoder& decoder) : decoder_(&decoder) {}
DecoderRun::DecoderRun(DecoderRun&&) noexcept = default;
DecoderRun::~DecoderRun() = default;

void DecoderRun::start() {
  for (const auto& factory : decoder_->steps_) steps_.push_back(factory->start());
  steps_.push_back(std::make_unique<Sink>());
  for (size_t i = 0; i + 1 < steps_.size(); ++i) steps_[i]->connect(steps_[i + 1].get());
}

void DecoderRun::push(std::string_view token, std::string& out) {
  if (steps_.empty()) start();
  static_cast<Sink&>(*steps_.back()).out = &out;
  steps_.front()->push({token});
}

void DecoderRun::finish(std::string& out) {
  if (steps_.empty()) return;
  static_cast<Sink&>(*steps_.back()).out = &out;
  steps_.front()->finish();
  steps_.clear();
}

}  // namespace jige::text
