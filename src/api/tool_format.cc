#include "api/tool_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/ascii.h"
#include "base/rng.h"

namespace jige::api {
namespace {

struct NamedFormat {
  ToolFormat format;
  std::string_view name;
};

constexpr NamedFormat kFormats[] = {{ToolFormat::kNone, "off"},
                                    {ToolFormat::kHermes, "hermes"},
                                    {ToolFormat::kMistral, "mistral"},
                                    {ToolFormat::kLlama, "llama"},
                                    {ToolFormat::kHarmony, "harmony"}};

constexpr std::string_view kHermesMarks[] = {"<tool_call>", "</tool_call>"};
constexpr std::string_view kMistralMarks[] = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"};
constexpr std::string_view kLlamaMarks[] = {"<|python_tag|>"};
constexpr std::string_view kHarmonyMarks[] = {"<|start|>", "<|channel|>", "<|constrain|>",
                                              "<|message|>"};

std::span<const std::string_view> marks_of(ToolFormat format) {
  switch (format) {
    case ToolFormat::kNone:
      return {};
    case ToolFormat::kHermes:
      return kHermesMarks;
    case ToolFormat::kMistral:
      return kMistralMarks;
    case ToolFormat::kLlama:
      return kLlamaMarks;
    case ToolFormat::kHarmony:
      return kHarmonyMarks;
  }
  return {};
}

}  // namespace

std::optional<ToolFormat> find_tool_format(std::string_view name) {
  for (const NamedFormat& entry : kFormats) {
    if (entry.name == name) return entry.format;
  }
  return std::nullopt;
}

ToolFormat tool_format_of(const text::ChatTemplate& chat) {
  const std::string& source = chat.source();
  const auto has = [&](std::string_view part) { return source.find(part) != std::string::npos; };
  if (!has("tools")) return ToolFormat::kNone;
  if (has("<|channel|>commentary")) return ToolFormat::kHarmony;
  if (has("<tool_call>")) return ToolFormat::kHermes;
  if (has("[TOOL_CALLS]")) return ToolFormat::kMistral;
  if (has("<|python_tag|>") || has("Environment: ipython")) return ToolFormat::kLlama;
  return ToolFormat::kNone;
}

bool is_tool_name(std::string_view name) {
  constexpr size_t kBytesMax = 64;
  return !name.empty() && name.size() <= kBytesMax && std::ranges::all_of(name, [](char c) {
    return is_ascii_alphanumeric(c) || c == '_' || c == '-' || c == '.';
  });
}

std::vector<int32_t> tool_mark_ids(ToolFormat format, const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const std::string_view mark : marks_of(format)) {
    const auto id = tokenizer.token_to_id(mark);
    if (id && tokenizer.is_special(*id)) ids.push_back(*id);
  }
  return ids;
}

std::string tool_call_id(ToolFormat format, std::string_view answer_id, size_t choice,
                         size_t call) {
  uint64_t bits = derive_key(derive_key(choice, answer_id), "tool call", call);
  if (format != ToolFormat::kMistral) return fmt::format("call_{:016x}", bits);
  std::string id;
  for (size_t i = 0; i < kCallIdLength; ++i) {
    id += kCallIdLetters[bits % kCallIdLetters.size()];
    bits /= kCallIdLetters.size();
  }
  return id;
}

}  // namespace jige::api
