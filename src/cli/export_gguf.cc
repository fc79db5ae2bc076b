#include "cli/export_gguf.h"

#include <fmt/ranges.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/progress.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "formats/gguf_export.h"
#include "kernels/cpu/quant_plain.h"

namespace jige::cli {
namespace {

// The blocks that --quantize computes with, as GGUF lays them out.
void encode_q8_0(const float* values, int64_t count, std::byte* out) {
  for (const auto& block : cpu::plain_weight_blocks(cpu::QuantFormat::kQ8, values, count)) {
    std::memcpy(out, &block.scale, sizeof block.scale);
    std::memcpy(out + sizeof block.scale, block.values, sizeof block.values);
    out += sizeof block.scale + sizeof block.values;
  }
}

void encode_q4_0(const float* values, int64_t count, std::byte* out) {
  constexpr int kHalfBlock = cpu::kQuantBlock / 2;
  for (const auto& block : cpu::plain_weight_blocks(cpu::QuantFormat::kQ4, values, count)) {
    std::memcpy(out, &block.scale, sizeof block.scale);
    out += sizeof block.scale;
    for (int i = 0; i < kHalfBlock; ++i) {
      *out++ =
          static_cast<std::byte>((block.values[i] + 8) | (block.values[i + kHalfBlock] + 8) << 4);
    }
  }
}

std::optional<uint32_t> type_number(const std::string& name) {
  if (name == "f32") return formats::kGgufF32;
  if (name == "f16") return formats::kGgufF16;
  if (name == "bf16") return formats::kGgufBF16;
  if (name == "q8_0") return formats::kGgufQ8_0;
  if (name == "q4_0") return formats::kGgufQ4_0;
  return std::nullopt;
}

// The last folder that says something: that of a run, not its "model".
std::string model_name(const std::string& folder) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(folder, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.filename() == "model") path = path.parent_path();
  return path.filename().string();
}

void print_as_json(const GgufExportFlags& flags, const formats::GgufExport& made) {
  print_json(Json{{"file", flags.file},
                  {"bytes", made.bytes},
                  {"family", formats::family_name(made.config.family)},
                  {"parameters", formats::parameter_count(made.config)},
                  {"types", made.types},
                  {"tokenizer", made.tokenizer.kind},
                  {"tokens", made.tokenizer.token_count},
                  {"chat_template", made.tokenizer.chat_template}});
}

void print_as_text(const GgufExportFlags& flags, const formats::GgufExport& made) {
  std::vector<std::string> types;
  for (const auto& [name, count] : made.types) types.push_back(fmt::format("{} {}", count, name));
  print_text(fmt::format("{}: {}, {} of {} parameters (tensors: {}); tokenizer: {}, {} tokens{}\n",
                         flags.file, format_bytes(static_cast<int64_t>(made.bytes)),
                         formats::family_name(made.config.family),
                         format_count(static_cast<double>(formats::parameter_count(made.config))),
                         fmt::join(types, ", "), made.tokenizer.kind, made.tokenizer.token_count,
                         made.tokenizer.chat_template ? ", chat template" : ""));
}

}  // namespace

Status export_as_gguf(const GgufExportFlags& flags, const OutputFlags& output) {
  JIGE_TRY(const std::string folder, find_model_folder(flags.folder));
  std::optional<Progress> progress;
  const auto on_progress = [&](uint64_t done, uint64_t total) {
    const auto whole = static_cast<int64_t>(total);
    if (!progress) progress.emplace("export", whole, output.quiet || output.json);
    progress->update(
        static_cast<int64_t>(done),
        fmt::format("{} of {}", format_bytes(static_cast<int64_t>(done)), format_bytes(whole)));
  };
  JIGE_TRY(const formats::GgufExport made,
           formats::export_gguf(
               {.folder = folder,
                .file = flags.file,
                .type = type_number(flags.type),
                .encoders = {{formats::kGgufQ8_0, encode_q8_0}, {formats::kGgufQ4_0, encode_q4_0}},
                .name = model_name(folder),
                .replace = flags.replace,
                .cancelled = &interrupt_flag(),
                .on_progress = on_progress}));
  if (progress) progress->finish("written");
  if (output.json) {
    print_as_json(flags, made);
  } else if (!output.quiet) {
    print_as_text(flags, made);
  }
  return {};
}

}  // namespace jige::cli
