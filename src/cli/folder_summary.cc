#include "cli/folder_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/counted.h"
#include "cli/embedding_folder.h"
#include "cli/input.h"
#include "cli/table.h"
#include "formats/tensor_folder.h"
#include "model/architecture.h"
#include "model/image_tower.h"
#include "model/weights.h"
#include "text/tokenizer.h"

namespace jige::cli {
namespace {

namespace fs = std::filesystem;

bool has_file(const std::string& folder, const char* name) {
  std::error_code error;
  return fs::exists(fs::path(folder) / name, error);
}

// Whether any file of the folder holds weights, in whatever format: then they are opened, so that a
// format that cannot be read is reported and not passed over.
bool has_weights(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool safetensors = name.find(".safetensors") != std::string::npos;
    const bool torch = name.starts_with("pytorch_model") || name.starts_with("adapter_model");
    if (safetensors || torch || name.ends_with(".gguf")) return true;
  }
  return false;
}

Status read_tensors(const std::string& folder, FolderSummary& summary) {
  JIGE_TRY(const auto files,
           formats::TensorFolder::open(folder, summary.adapter ? "adapter_model" : "model"));
  std::map<DType, int64_t> counts;
  for (const formats::StoredTensor* tensor : files.tensors()) {
    summary.tensors.push_back({tensor->name, tensor->dtype_name, tensor->dims, tensor->bytes});
    if (tensor->dtype) counts[*tensor->dtype] += tensor->count();
  }
  const auto most = std::max_element(counts.begin(), counts.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  if (most != counts.end()) summary.dominant_dtype = most->first;
  summary.file_count = files.files().size();
  if (!summary.config) return {};
  const model::HeadKind head =
      summary.embeds() ? model::HeadKind::kNormAlone : model::HeadKind::kLanguageModel;
  JIGE_TRY(const auto architecture, model::Architecture::create(*summary.config, {}, head));
  if (const Status fits = model::check_weights(*architecture, files); !fits) {
    summary.problem = fits.error().message;
    if (summary.config->quantised) summary.dominant_dtype.reset();
  } else if (summary.config->quantised) {
    // Codes are not what tables and norms are kept in.
    JIGE_TRY(summary.dominant_dtype, model::stored_table_dtype(*architecture, files));
  }
  if (!summary.images) return {};
  JIGE_TRY(const auto parts, model::ImageParts::create(*summary.images));
  if (const Status fits = model::check_image_weights(*parts, files); !fits) {
    summary.images_problem = fits.error().message;
  }
  return {};
}

// How images are read; a model that does not read these may run on text.
Status read_images(const std::string& folder, FolderSummary& summary) {
  JIGE_TRY(summary.images, formats::load_image_config(folder));
  if (!summary.images) return {};
  JIGE_TRY(const auto parts, model::ImageParts::create(*summary.images));
  summary.image_parameters = parts->parameter_count();
  return {};
}

Status read_tokenizer(const std::string& folder, FolderSummary& summary) {
  JIGE_TRY(const auto tokenizer, text::Tokenizer::load(folder));
  summary.tokenizer = TokenizerLine{.vocab_size = tokenizer.vocab_size(),
                                    .bos_token = tokenizer.special().bos_token,
                                    .eos_token = tokenizer.special().eos_token,
                                    .chat_template = !tokenizer.chat_template().empty()};
  return {};
}

// "F32 4.91 MiB" and so on, by type.
std::string dtype_shares(const FolderSummary& summary) {
  std::map<std::string, uint64_t> bytes;
  for (const TensorLine& tensor : summary.tensors) bytes[tensor.dtype] += tensor.bytes;
  std::vector<std::string> parts;
  for (const auto& [name, size] : bytes) {
    parts.push_back(fmt::format("{} {}", name, format_bytes(size)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string angles_text(const formats::RopeConfig& rope) {
  std::string text = fmt::format("theta {:g}", rope.theta);
  if (rope.scaling == formats::RopeScaling::kLinear) {
    text += fmt::format(", linear scaling by {:g}", rope.factor);
  } else if (rope.scaling == formats::RopeScaling::kLlama3) {
    text += fmt::format(", llama3 scaling by {:g}", rope.factor);
  } else if (rope.scaling == formats::RopeScaling::kLongRope) {
    text += fmt::format(", longrope from {} tokens", rope.original_context);
  } else if (rope.scaling == formats::RopeScaling::kYarn) {
    text += fmt::format(", yarn scaling by {:g}", rope.factor);
  } else if (rope.scaling == formats::RopeScaling::kProportional) {
    text += fmt::format(", {:g} of a head", rope.turned_share);
  } else if (rope.scaling == formats::RopeScaling::kNtk) {
    text += fmt::format(", ntk scaling by {:g}", rope.factor);
  }
  return text;
}

std::string position_text(const formats::ModelConfig& config) {
  if (config.position != formats::PositionKind::kRotary) {
    const bool distant = config.distance_buckets > 0 || config.distance_rows.side > 0;
    if (config.position == formats::PositionKind::kNone) return "scores by distance alone";
    return distant ? "learned, and scores by distance" : "learned";
  }
  const auto& unturned = config.layer_is_unturned;
  const auto unturned_count = std::count(unturned.begin(), unturned.end(), uint8_t{1});
  if (unturned_count == config.layer_count) return "none";
  const formats::RopeConfig& rope = config.rope;
  std::string text = "rotary, " + angles_text(rope);
  if (config.sliding_rope && config.sliding_rope->scaling != formats::RopeScaling::kNone) {
    text += ", in sliding layers " + angles_text(*config.sliding_rope);
  } else if (config.sliding_rope) {
    const double theta = config.sliding_rope->theta;
    text += theta == rope.theta ? ", unscaled in sliding layers"
                                : fmt::format(", theta {:g} in sliding layers", theta);
  }
  if (config.rotary_dim > 0) {
    text += fmt::format(", {} of {} columns", config.rotary_dim, config.head_dim);
  }
  if (!unturned.empty()) {
    text += fmt::format(", none in {} of {} layers", unturned_count, unturned.size());
  }
  return text;
}

std::string ffn_text(const formats::ModelConfig& config) {
  const formats::ExpertConfig& experts = config.experts;
  if (experts.count == 0) {
    const int64_t layers = formats::feed_forward_count(config);
    if (config.shared_double_ffn && config.shared_kv_layers > 0) {
      return fmt::format("{}, {} in {} of {} layers", config.ffn_size, 2 * config.ffn_size,
                         config.shared_kv_layers, config.layer_count);
    }
    if (layers == config.layer_count) return std::to_string(config.ffn_size);
    if (layers == 0) return "in none";
    return fmt::format("{} in {} of {} layers", config.ffn_size, layers, config.layer_count);
  }
  std::string text =
      fmt::format("{} of {} experts of {}", experts.chosen, experts.count, experts.ffn_size);
  if (experts.chosen_groups < experts.groups) {
    text += fmt::format(", of {} of {} groups,", experts.chosen_groups, experts.groups);
  }
  if (experts.shared_ffn_size > 0) {
    text += fmt::format(" and one of {} for all", experts.shared_ffn_size);
  }
  const int64_t dense = formats::feed_forward_count(config) - formats::expert_layer_count(config);
  if (experts.beside_mlp) return fmt::format("{} beside {}", config.ffn_size, text);
  if (dense > 0) {
    text += fmt::format(", in {} of {} layers {}", dense, config.layer_count, config.ffn_size);
  }
  return text;
}

std::string vocabulary_text(const formats::ModelConfig& config) {
  std::string text = std::to_string(config.vocab_size);
  if (config.layer_inputs.size > 0) {
    text += fmt::format(", {} columns for every layer", config.layer_inputs.size);
  }
  if (config.tied_embeddings && !formats::is_encoder(config.family))
    text += ", head tied to embeddings";
  if (config.logits_cap > 0) text += fmt::format(", logits within {:g}", config.logits_cap);
  return text;
}

std::string layers_text(const formats::ModelConfig& config) {
  const int64_t streams = config.altup.streams;
  const bool parallel = config.residual != formats::ResidualForm::kSequential;
  return fmt::format("{} layers, width {}{}, feed-forward {}{}", config.layer_count,
                     config.hidden_size, streams > 0 ? fmt::format(" in {} streams", streams) : "",
                     ffn_text(config), parallel ? ", beside attention" : "");
}

// REQUIRES: a layer is recurrent.
void add_recurrent_row(const formats::ModelConfig& config, Table& table) {
  const int64_t recurrent = formats::recurrent_layer_count(config);
  if (config.short_conv.kernel > 0) {
    table.row(
        {"convolutions", fmt::format("over {} tokens, in {} of {} layers", config.short_conv.kernel,
                                     recurrent, config.layer_count)});
  } else if (config.mamba1.columns > 0) {
    table.row({"Mamba", fmt::format("{} channels of {}, steps of rank {}, in {} of {} layers",
                                    config.mamba1.columns, config.mamba1.state_dim,
                                    config.mamba1.step_rank, recurrent, config.layer_count)});
  } else if (config.mamba2.heads > 0) {
    table.row({"Mamba 2",
               fmt::format("{} heads of {} x {}, {}, in {} of {} layers{}", config.mamba2.heads,
                           config.mamba2.head_dim, config.mamba2.state_dim,
                           counted(config.mamba2.groups, "group"), recurrent, config.layer_count,
                           config.attention_beside ? ", beside attention" : "")});
  } else {
    table.row({"delta nets",
               fmt::format("{} heads of {} x {}, {} key heads, in {} of {} layers",
                           config.delta.value_heads, config.delta.key_dim, config.delta.value_dim,
                           config.delta.key_heads, recurrent, config.layer_count)});
  }
}

std::string tower_text(const formats::ModelConfig& tower, int64_t parameters) {
  const std::string count = format_count(static_cast<double>(parameters));
  if (tower.layer_count == 0) {
    return fmt::format("{} parameters, no layers, width {}", count, tower.hidden_size);
  }
  return fmt::format("{} parameters, {} layers, width {}, feed-forward {}, {} heads of {}", count,
                     tower.layer_count, tower.hidden_size, tower.ffn_size, tower.head_count,
                     tower.head_dim);
}

void add_image_rows(const FolderSummary& summary, Table& table) {
  const formats::ImageConfig& images = *summary.images;
  table.row({"images", fmt::format("up to {}, {} rows of a prompt", largest_image_text(images),
                                   images.rows_max())});
  table.row({"their tower", tower_text(images.tower, summary.image_parameters)});
  if (!summary.images_problem.empty()) {
    table.row({"reads no images", summary.images_problem});
  }
}

void add_config_rows(const formats::ModelConfig& config, Table& table) {
  table.row({"family", std::string(formats::family_name(config.family))});
  table.row({"parameters",
             fmt::format("{} ({})", format_count(static_cast<double>(parameter_count(config))),
                         parameter_count(config))});
  const formats::ExpertConfig& experts = config.experts;
  if (experts.count > 0) {
    const int64_t active = active_parameter_count(config);
    table.row({"for a token",
               fmt::format("{} ({}) of them", format_count(static_cast<double>(active)), active)});
  }
  table.row({"shape", layers_text(config)});
  std::string attention = fmt::format("{} heads of {}, {} key/value heads", config.head_count,
                                      config.head_dim, config.kv_head_count);
  if (config.latent.rank > 0) {
    attention = fmt::format("{} heads of {}, values of {}, latents of {}", config.head_count,
                            config.head_dim, config.latent.value_dim, config.latent.rank);
    if (config.latent.query_rank > 0) {
      attention += fmt::format(", of queries {}", config.latent.query_rank);
    }
  }
  const formats::FullHeadsConfig& full = config.full_heads;
  if (full.head_dim > 0) {
    attention += fmt::format(", without window {} of {}", full.kv_head_count, full.head_dim);
    if (full.keys_are_values) attention += " that are values";
  }
  if (config.shared_kv_layers > 0) {
    attention +=
        fmt::format(", {} of {} layers share keys", config.shared_kv_layers, config.layer_count);
  }
  if (config.attention_chunk > 0) {
    attention += fmt::format(", chunks of {} where heads turn", config.attention_chunk);
  }
  if (config.sliding_window > 0) {
    attention += fmt::format(", window {}", config.sliding_window);
    const auto& sliding = config.layer_is_sliding;
    if (!sliding.empty()) {
      attention += fmt::format(" in {} of {} layers", std::count(sliding.begin(), sliding.end(), 1),
                               sliding.size());
    }
  }
  const int64_t attention_layers = formats::attention_layer_count(config);
  if (attention_layers == 0) {
    attention = "none";
  } else if (attention_layers < config.layer_count) {
    attention += fmt::format(", in {} of {} layers", attention_layers, config.layer_count);
  }
  if (config.looks_ahead) attention += ", to both sides";
  if (config.score_cap > 0) attention += fmt::format(", scores within {:g}", config.score_cap);
  table.row({"attention", attention});
  if (formats::recurrent_layer_count(config) > 0) add_recurrent_row(config, table);
  table.row({"positions", position_text(config)});
  table.row({"vocabulary", vocabulary_text(config)});
  table.row({"context", fmt::format("{} tokens", config.context_max)});
}

}  // namespace

int64_t FolderSummary::stored_count() const {
  if (config && config->quantised) return parameter_count(*config);
  int64_t count = 0;
  for (const TensorLine& tensor : tensors) {
    int64_t elements = 1;
    for (const int64_t dim : tensor.dims) elements *= dim;
    count += elements;
  }
  return count;
}

uint64_t FolderSummary::stored_bytes() const {
  uint64_t bytes = 0;
  for (const TensorLine& tensor : tensors) bytes += tensor.bytes;
  return bytes;
}

std::string largest_image_text(const formats::ImageConfig& images) {
  if (images.pixels_max > 0) return fmt::format("{} pixels", images.pixels_max);
  if (images.tile_side > 0) {
    return fmt::format("{} of {} x {} pixels", counted(images.tiles_max(), "tile"),
                       images.tile_side, images.tile_side);
  }
  return fmt::format("{} x {} pixels", images.width_max, images.height_max);
}

Result<std::string> find_inspectable_folder(const std::string& path) {
  if (has_file(path, "adapter_config.json")) return path;
  return find_model_folder(path);
}

Result<FolderSummary> summarise_folder(const std::string& folder) {
  FolderSummary summary;
  if (has_file(folder, "config.json")) {
    JIGE_TRY(summary.config, formats::load_model_config(folder));
    summary.kind = folder_kind(folder);
    if (const Status read = read_images(folder, summary); !read) {
      summary.images.reset();
      summary.images_problem = read.error().message;
    }
  } else {
    JIGE_TRY(summary.adapter, formats::load_lora_config(folder));
  }
  if (has_weights(folder)) JIGE_DO(read_tensors(folder, summary));
  const auto& names = text::kTokenizerFileNames;
  if (std::any_of(names.begin(), names.end(),
                  [&](const char* name) { return has_file(folder, name); })) {
    JIGE_DO(read_tokenizer(folder, summary));
  }
  return summary;
}

std::string summary_text(const FolderSummary& summary) {
  Table table({{}, {}});
  if (summary.config) add_config_rows(*summary.config, table);
  if (summary.images) add_image_rows(summary, table);
  if (!summary.images_problem.empty()) table.row({"reads no images", summary.images_problem});
  if (summary.kind == api::ServedKind::kPairs) {
    table.row({"is for", "judges pairs of texts (jige rerank)"});
  }
  if (summary.adapter) {
    const formats::LoraConfig& lora = *summary.adapter;
    table.row({"adapter", fmt::format("LoRA of rank {}, strength {:g}", lora.rank, lora.scale())});
    table.row({"adapts", lora.target_modules.empty()
                             ? lora.target_pattern
                             : fmt::format("{}", fmt::join(lora.target_modules, ", "))});
    table.row({"base model", lora.base_model.empty() ? "not named" : lora.base_model});
  }
  if (summary.tensors.empty()) {
    table.row({"weights", "none"});
  } else {
    if (summary.config && summary.config->quantised) {
      table.row({"quantised", formats::quantised_text(*summary.config->quantised)});
    }
    table.row({"weights",
               fmt::format("{} tensors in {} file{}, {} parameters: {}", summary.tensors.size(),
                           summary.file_count, summary.file_count == 1 ? "" : "s",
                           format_count(static_cast<double>(summary.stored_count())),
                           dtype_shares(summary))});
  }
  if (!summary.problem.empty()) table.row({"cannot run", summary.problem});
  if (summary.tokenizer) {
    const TokenizerLine& tokenizer = *summary.tokenizer;
    table.row({"tokenizer", fmt::format("{} tokens, begin \"{}\", end \"{}\"", tokenizer.vocab_size,
                                        tokenizer.bos_token, tokenizer.eos_token)});
    table.row({"chat template", tokenizer.chat_template ? "yes" : "no"});
  } else {
    table.row({"tokenizer", "none"});
  }
  return table.render();
}

namespace {

Json images_json(const FolderSummary& summary) {
  const formats::ImageConfig& images = *summary.images;
  Json json = {{"parameters", summary.image_parameters},
               {"layers", images.tower.layer_count},
               {"width", images.tower.hidden_size},
               {"patch_size", images.patch_size},
               {"merge", images.merge},
               {"rows_max", images.rows_max()}};
  if (images.pixels_max > 0) {
    json["pixels_min"] = images.pixels_min;
    json["pixels_max"] = images.pixels_max;
  } else if (images.tile_side > 0) {
    json["tile_side"] = images.tile_side;
    json["tiles_max"] = images.tiles_max();
  } else {
    json["width_max"] = images.width_max;
    json["height_max"] = images.height_max;
  }
  return json;
}

}  // namespace

Json summary_json(const FolderSummary& summary) {
  Json json = Json::object();
  if (summary.config) {
    json["family"] = formats::family_name(summary.config->family);
    json["parameters"] = parameter_count(*summary.config);
    json["active_parameters"] = active_parameter_count(*summary.config);
    json["config"] = formats::to_hf_config(*summary.config);
    json["judges_pairs"] = summary.kind == api::ServedKind::kPairs;
  }
  if (summary.images) json["images"] = images_json(summary);
  if (summary.adapter) json["adapter"] = formats::to_peft_config(*summary.adapter);
  json["weights"] = {{"tensors", summary.tensors.size()},
                     {"files", summary.file_count},
                     {"parameters", summary.stored_count()},
                     {"bytes", summary.stored_bytes()}};
  if (summary.dominant_dtype) json["weights"]["dtype"] = dtype_info(*summary.dominant_dtype).name;
  if (summary.config && summary.config->quantised) {
    json["weights"]["quantised"] = formats::quantised_text(*summary.config->quantised);
  }
  if (!summary.problem.empty()) json["problem"] = summary.problem;
  if (!summary.images_problem.empty()) json["images_problem"] = summary.images_problem;
  json["tokenizer"] = nullptr;
  if (summary.tokenizer) {
    json["tokenizer"] = {{"vocab_size", summary.tokenizer->vocab_size},
                         {"bos_token", summary.tokenizer->bos_token},
                         {"eos_token", summary.tokenizer->eos_token},
                         {"chat_template", summary.tokenizer->chat_template}};
  }
  return json;
}

}  // namespace jige::cli
