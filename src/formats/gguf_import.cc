#include "formats/gguf_import.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "formats/generation_config.h"
#include "formats/gguf_config.h"
#include "formats/gguf_tokenizer.h"
#include "formats/gguf_weights.h"
#include "formats/staged_folder.h"
#include "formats/tensor_folder.h"

namespace jige::formats {
namespace {

Status check_gguf_kind(const GgufFile& file) {
  const GgufMetadata& keys = file.metadata();
  JIGE_TRY(const auto type, keys.find_text("general.type"));
  if (type.value_or("model") == "model") return {};
  return fail(Code::kUnsupported, "{}: holds no model but \"{}\" (key \"general.type\")",
              file.path(), gguf_shown(*type));
}

Status check_gguf_target(const GgufImportOptions& options, const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) return {};
  if (options.replace) return check_replaceable(folder);
  return fail(Code::kInvalidArgument,
              "{}: is there already; name another folder, or replace it with --replace", folder);
}

// The type of most values.
DType dominant_dtype(const std::vector<TensorSource>& sources) {
  std::map<DType, int64_t> counts;
  for (const TensorSource& source : sources) {
    if (source.dtype != DType::kU8) counts[source.dtype] += source.shape.count();
  }
  return std::max_element(counts.begin(), counts.end(),
                          [](auto& a, auto& b) { return a.second < b.second; })
      ->first;
}

// Whether experts stay in blocks of MXFP4, which the folder has to say.
bool keeps_blocks(const std::vector<TensorSource>& sources) {
  return std::any_of(sources.begin(), sources.end(),
                     [](const TensorSource& source) { return source.dtype == DType::kU8; });
}

Status write_gguf_texts(const std::string& folder, const ModelConfig& config, bool blocks,
                        const GgufTokenizerFiles& tokenizer) {
  Json fields = to_hf_config(config);
  if (blocks) fields["quantization_config"] = {{"quant_method", "mxfp4"}};
  GenerationConfig generation{.eos_ids = config.eos_ids};
  if (config.bos_id >= 0) generation.bos_id = config.bos_id;
  if (config.pad_id >= 0) generation.pad_id = config.pad_id;
  for (const auto& [name, text] :
       {std::pair{"/config.json", dump_json(fields, 2) + "\n"},
        std::pair{"/generation_config.json",
                  dump_json(to_hf_generation_config(generation), 2) + "\n"},
        std::pair{"/tokenizer.json", tokenizer.tokenizer_json},
        std::pair{"/tokenizer_config.json", tokenizer.tokenizer_config_json}}) {
    JIGE_DO(write_file_atomic(folder + name, text));
  }
  return {};
}

}  // namespace

Result<GgufImport> import_gguf(const GgufImportOptions& options) {
  std::string folder = options.folder;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  JIGE_TRY(const GgufFile file, GgufFile::open(options.file));
  JIGE_DO(check_gguf_kind(file));
  GgufImport made;
  JIGE_TRY(made.config, read_gguf_config(file));
  JIGE_TRY(const GgufTokenizerFiles tokenizer,
           read_gguf_tokenizer(file.metadata(), {.pre = options.pre,
                                                 .vocab_size = made.config.vocab_size,
                                                 .context_tokens = made.config.context_max}));
  made.config.bos_id = tokenizer.bos_id;
  made.config.pad_id = tokenizer.pad_id;
  made.config.eos_ids = tokenizer.eos_ids;
  made.tokenizer = tokenizer.kind;
  made.token_count = tokenizer.token_count;
  made.chat_template = tokenizer.chat_template;

  uint64_t done = 0;
  uint64_t total = 0;
  for (const GgufTensor& tensor : file.header().tensors) {
    ++made.stored_types[std::string(tensor.type->name)];
    total += tensor.bytes;
  }
  const auto on_read = [&](uint64_t bytes) -> Status {
    if (options.cancelled && *options.cancelled) {
      return fail(Code::kCancelled, "by a signal; {} was not written", folder);
    }
    done += bytes;
    if (options.on_progress) options.on_progress(done, total);
    return {};
  };
  JIGE_TRY(const auto sources,
           gguf_sources(file, made.config, {.dtype = options.dtype, .on_read = on_read}));
  made.config.stored_dtype = dominant_dtype(sources);

  JIGE_DO(check_gguf_target(options, folder));
  const std::string parent = std::filesystem::path(folder).parent_path().string();
  if (!parent.empty()) JIGE_DO(make_folders(parent));
  JIGE_TRY(StagedFolder staged, StagedFolder::create(folder));
  JIGE_DO(
      write_tensor_folder(staged.path(), sources, {.shard_bytes_max = options.shard_bytes_max}));
  JIGE_DO(write_gguf_texts(staged.path(), made.config, keeps_blocks(sources), tokenizer));
  JIGE_DO(staged.commit());
  return made;
}

}  // namespace jige::formats
