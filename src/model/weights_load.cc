// Folder -> ModelWeights: checks first, then one block after the other.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "formats/image_model_names.h"
#include "formats/quantised_matrix.h"
#include "model/joined_rows.h"
#include "model/param_loader.h"
#include "model/stacked_tensors.h"
#include "model/weights.h"

namespace jige::model {
namespace {

// Of a head that is tied: its matrix, where it is the table's memory.
std::optional<size_t> tied_value(const ModelWeights& weights, size_t node) {
  const Architecture& architecture = weights.architecture();
  if (!architecture.config().tied_embeddings || node != architecture.head_node()) return {};
  const std::string& table = architecture.embedding().params()[Embedding::kTable].name;
  const auto specs = architecture.block(node).params();
  const auto found = std::ranges::find(specs, table, &ParamSpec::name);
  const auto index = static_cast<size_t>(found - specs.begin());
  const bool has_value = found != specs.end() && weights.block(node).params[index].value;
  return has_value ? std::optional(index) : std::nullopt;
}

// Tables that old writers stored and nobody reads, what reads images, and what predicts further
// tokens apart from the layers.
bool usually_unused(std::string_view name) {
  if (formats::reads_images(name)) return true;
  if (name.starts_with("mtp.") || name.starts_with("model.mtp_")) return true;
  for (const std::string_view end : {"rotary_emb.inv_freq", "attn.bias", "attn.masked_bias",
                                     "attention.bias", "attention.masked_bias"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

// Of the layer behind the last, which predicts further tokens.
bool in_layer_beyond(const formats::ModelConfig& config, std::string_view name) {
  return formats::has_layer_beyond(config.family) &&
         name.starts_with(fmt::format("model.layers.{}.", config.layer_count));
}

// Keys and values of a layer that has those of another one.
bool of_shared_keys(const formats::ModelConfig& config, std::string_view name) {
  for (int64_t layer = config.layer_count - config.shared_kv_layers; layer < config.layer_count;
       ++layer) {
    const std::string at = fmt::format("model.layers.{}.self_attn.", layer);
    for (const char* part : {"k_proj.", "v_proj.", "k_norm.", "v_norm."}) {
      if (name.starts_with(at + part)) return true;
    }
  }
  return false;
}

// What stands on an encoder: heads, the layer that pools in training, and a list of positions.
bool of_encoder_heads(const formats::ModelConfig& config, const std::string& name) {
  if (!formats::is_encoder(config.family)) return false;
  const std::string base = Architecture::base_name(name);
  for (const char* module :
       {"pooler.", "cls.", "classifier.", "lm_head.", "head.", "decoder.", "pre_classifier.",
        "vocab_", "dense.", "lm_predictions.", "mask_predictions."}) {
    if (base.starts_with(module)) return true;
  }
  return base == "embeddings.position_ids";
}

// A head that is stored beside the table it is tied to must be its copy: otherwise config.json
// speaks of another model, and what was learned in the head would be lost without a word.
Status check_tied_copy(const Architecture& architecture, const formats::TensorFolder& files) {
  std::string head = architecture.own_head_name() + ".weight";
  for (std::string& beside : formats::names_beside_images(head)) {
    if (files.find(beside)) head = std::move(beside);
  }
  const formats::StoredTensor* copy = files.find(head);
  const bool tied = architecture.config().tied_embeddings &&
                    architecture.head().kind() == HeadKind::kLanguageModel;
  if (!tied || !copy) return {};
  JIGE_TRY(const std::string table,
           find_name(files, architecture.embedding().params()[Embedding::kTable]));
  const formats::StoredTensor& original = *files.find(table);
  if (copy->dtype != original.dtype) return {};  // rounded apart: no bytes to compare
  if (copy->dims == original.dims) {
    JIGE_TRY(const TensorView a, files.view(head));
    JIGE_TRY(const TensorView b, files.view(table));
    const int64_t bytes = dtype_bytes(a.dtype, a.shape.count());
    if (std::memcmp(a.data, b.data, static_cast<size_t>(bytes)) == 0) return {};
  }
  return fail(Code::kCorrupt,
              "{}: tensor \"{}\" differs from \"{}\", but config.json ties them; set "
              "\"tie_word_embeddings\" there to false if the head is to be used",
              file_of(files, head), head, table);
}

// The module that a tensor is of, by its name.
std::string_view module_of(std::string_view name) { return name.substr(0, name.rfind('.')); }

// Names of tensors that parameters are read from, in any form.
class UsedNames {
 public:
  explicit UsedNames(const Architecture& architecture)
      : quantised_(architecture.config().quantised.has_value()) {
    for (size_t node = 0; node < architecture.node_count(); ++node) {
      for (const ParamSpec& spec : architecture.block(node).params()) {
        add(Architecture::stored_names(spec));
        add(stacked_names(spec));
        add(joined_names(spec));
        if (!quantised_) continue;
        for (const std::string& name : Architecture::stored_names(spec)) {
          modules_.emplace(module_of(name));
        }
      }
    }
  }
  bool contains(std::string_view name) const {
    if (names_.contains(std::string(name))) return true;
    const std::string_view module = module_of(name);
    return quantised_ && module.size() < name.size() && modules_.contains(std::string(module)) &&
           formats::QuantisedMatrix::is_part(name.substr(module.size() + 1));
  }

 private:
  void add(std::vector<std::string> names) {
    for (std::string& name : names) names_.insert(std::move(name));
  }

  bool quantised_;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> modules_;  // of matrices that may be quantised
};

// Tensors that no parameter has as its own name, which are few if any.
std::vector<const formats::StoredTensor*> tensors_of_other_names(
    const Architecture& architecture, const formats::TensorFolder& files) {
  std::unordered_set<std::string_view> own;
  for (size_t node = 0; node < architecture.node_count(); ++node) {
    for (const ParamSpec& spec : architecture.block(node).params()) own.insert(spec.name);
  }
  std::vector<const formats::StoredTensor*> others = files.tensors();
  std::erase_if(others, [&](const auto* tensor) { return own.contains(tensor->name); });
  return others;
}

// Says what the files hold besides parameters: layers that config.json does not make, or biases it
// does without, mean another model than the one that was trained.
void tell_unused(const Architecture& architecture, const formats::TensorFolder& files) {
  const auto others = tensors_of_other_names(architecture, files);
  if (others.empty()) return;
  const UsedNames used(architecture);
  const bool head_unused =
      architecture.config().tied_embeddings || architecture.head().kind() == HeadKind::kNormAlone;
  int64_t count = 0;
  std::string first;
  for (const formats::StoredTensor* tensor : others) {
    if (used.contains(tensor->name) || tensor->count() == 0) continue;
    log_debug("{}: tensor \"{}\" [{}] is not used", files.folder(), tensor->name,
              fmt::join(tensor->dims, ", "));
    if (usually_unused(tensor->name)) continue;
    const std::string name = formats::name_without_images(tensor->name);
    if (in_layer_beyond(architecture.config(), name)) continue;
    if (of_shared_keys(architecture.config(), name)) continue;
    if (of_encoder_heads(architecture.config(), name)) continue;
    // Of a class for sequence classification.
    if (head_unused && name == "score.weight") continue;
    if (head_unused && name.starts_with(architecture.own_head_name() + ".")) continue;
    if (count++ == 0) first = tensor->name;
  }
  if (count == 0) return;
  log_warn("{}: the model in config.json does not use {} of the tensors, such as \"{}\"",
           files.folder(), count, first);
}

}  // namespace

Status check_weights(const Architecture& architecture, const formats::TensorFolder& files) {
  for (size_t node = 0; node < architecture.node_count(); ++node) {
    JIGE_DO(check_params(architecture.config(), architecture.block(node).params(), files));
  }
  return {};
}

Status load_weights(ModelWeights& weights, const NodeStreams& streams,
                    const formats::TensorFolder& files, WeightsKeeper* keeper) {
  JIGE_DO(check_weights(weights.architecture(), files));
  JIGE_DO(check_tied_copy(weights.architecture(), files));
  tell_unused(weights.architecture(), files);
  const Architecture& architecture = weights.architecture();
  std::map<Stream*, ParamLoader> loaders;
  for (size_t node = 0; node < architecture.node_count(); ++node) {
    if (!weights.options().held.holds_node(architecture, node)) continue;
    Stream& stream = streams[node];
    ParamLoader& loader =
        loaders
            .try_emplace(&stream, architecture.config(), files, stream, weights.options().compute)
            .first->second;
    JIGE_DO(loader.load({.specs = architecture.block(node).params(),
                         .weights = weights.block(node),
                         .given = tied_value(weights, node),
                         .pack = [&](const BlockWeights& source) {
                           architecture.block(node).pack(stream, source, weights.options().compute,
                                                         weights.options().use);
                         }}));
    weights.pack(stream, node);
    if (!weights.is_streamed(node)) continue;
    JIGE_CHECK(keeper, "nobody keeps {}", architecture.block(node).name());
    keeper->keep(stream, node);
  }
  streams.synchronize();
  return {};
}

Result<DType> stored_table_dtype(const Architecture& architecture,
                                 const formats::TensorFolder& files) {
  std::set<DType> types;
  for (const ParamSpec& spec : architecture.embedding().params()) {
    if (spec.packed || spec.shape.rank() != 2) continue;
    JIGE_TRY(const TensorView table, find_checked(files, spec));
    types.insert(table.dtype);
  }
  return types.size() == 1 ? *types.begin() : DType::kF32;
}

}  // namespace jige::model
