#include "cli/export_merge.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "cli/adapter_flags.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "formats/model_config.h"
#include "formats/staged_folder.h"
#include "text/tokenizer.h"
#include "train/export.h"

namespace jige::cli {

Status merge_folders(const MergeFlags& flags, const OutputFlags& output) {
  if (flags.out.empty()) {
    return fail(Code::kInvalidArgument, "OUT is missing: name the folder that --merge writes");
  }
  JIGE_TRY(const std::string base, find_model_folder(flags.base));
  JIGE_TRY(const std::string adapter, find_adapter_folder("--merge", flags.adapter));
  JIGE_TRY(const formats::ModelConfig config, formats::load_model_config(base));
  JIGE_TRY(const auto tokenizer, text::Tokenizer::load(base));
  const std::filesystem::path out(flags.out);
  std::error_code error;
  if (std::filesystem::exists(out, error)) {
    if (!flags.replace) {
      return fail(Code::kInvalidArgument,
                  "{}: is there already; name another folder, or replace it with --replace",
                  flags.out);
    }
    JIGE_DO(formats::check_replaceable(flags.out));
  }
  if (out.has_parent_path()) JIGE_DO(make_folders(out.parent_path().string()));
  const DType dtype = flags.dtype.value_or(config.stored_dtype);
  JIGE_DO(train::export_merged(base, adapter, tokenizer.special(),
                               {.folder = flags.out,
                                .tokenizer_folder = base,
                                .dtype = dtype,
                                .cancelled = &interrupt_flag()}));
  if (output.json) {
    print_json(Json{{"folder", flags.out},
                    {"base", base},
                    {"adapter", adapter},
                    {"dtype", dtype_info(dtype).name}});
  } else if (!output.quiet) {
    print_text(fmt::format("{}: {} with {} merged into it, {}\n", flags.out, base, adapter,
                           dtype_info(dtype).name));
  }
  return {};
}

}  // namespace jige::cli
