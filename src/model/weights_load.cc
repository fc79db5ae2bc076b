// Folder -> ModelWeights: checks first, then one block after the other.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <set>

#include "base/check.h"
#include "base/log.h"
#include "formats/image_model_names.h"
#include "model/device_copies.h"
#include "model/joined_rows.h"
#include "model/quantised_params.h"
#include "model/stacked_tensors.h"
#include "model/tensor_convert.h"
#include "model/weights.h"
#include "tensor/cpu_device.h"

namespace jige::model {
namespace {

// The name under which the files hold a parameter, or an error that says what was looked for.
Result<std::string> find_name(const formats::TensorFolder& files, const ParamSpec& spec) {
  if (files.find(spec.name)) return spec.name;  // the first of them, and the usual one
  const std::vector<std::string> names = Architecture::stored_names(spec);
  for (const std::string& name : names) {
    if (files.find(name)) return name;
  }
  std::string note;
  if (Architecture::base_name(spec.name) == spec.name) {  // what a base class lacks
    note = "; without it a folder gives embeddings of texts alone (jige embed)";
  } else if (spec.stacked && spec.stacked->usual) {
    note = "; files of the family hold it in \"" + spec.stacked->tensor + "\"";
  }
  return fail(Code::kNotFound,
              "{}: tensor \"{}\" is missing; the model in config.json needs it with shape {}{}",
              files.folder(), names.front(), spec.shape.to_string(), note);
}

// The path of the file that holds a tensor, for errors.
std::string file_of(const formats::TensorFolder& files, const std::string& name) {
  for (const formats::SafetensorsFile& file : files.files()) {
    if (file.find(name)) return file.path();
  }
  return files.folder();
}

// The stored view of a parameter, of the type and shape that it must have.
Result<TensorView> find_checked(const formats::TensorFolder& files, const ParamSpec& spec) {
  JIGE_TRY(const std::string name, find_name(files, spec));
  const formats::StoredTensor& stored = *files.find(name);
  const DType dtype = stored.dtype.value_or(DType::kU8);
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    return fail(Code::kUnsupported,
                "{}: tensor \"{}\" is stored as {}; supported are F32, BF16, F16",
                file_of(files, name), name, stored.dtype_name);
  }
  const Shape shape = spec.stored_shape();
  std::vector<int64_t> expected;
  for (int axis = 0; axis < shape.rank(); ++axis) expected.push_back(shape[axis]);
  if (stored.dims != expected) {
    return fail(Code::kCorrupt, "{}: tensor \"{}\" has shape [{}], but config.json makes it [{}]",
                file_of(files, name), name, fmt::join(stored.dims, ", "),
                fmt::join(expected, ", "));
  }
  JIGE_TRY(const TensorView view, files.view(name));
  const bool vector = spec.as_row || spec.as_scalar;
  return vector ? TensorView::of(view.data, view.dtype, spec.shape) : view;
}

bool tied_head(const Architecture& architecture, size_t node, const ParamSpec& spec) {
  return architecture.config().tied_embeddings && node == architecture.head_node() &&
         spec.name == architecture.embedding().params()[Embedding::kTable].name;
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
    if (names_.contains(name)) return true;
    const std::string_view module = module_of(name);
    return quantised_ && module.size() < name.size() && modules_.contains(module) &&
           formats::QuantisedMatrix::is_part(name.substr(module.size() + 1));
  }

 private:
  void add(std::vector<std::string> names) {
    for (std::string& name : names) names_.insert(std::move(name));
  }

  bool quantised_;
  std::set<std::string, std::less<>> names_;
  std::set<std::string, std::less<>> modules_;  // of matrices that may be quantised
};

// Says what the files hold besides parameters: layers that config.json does not make, or biases it
// does without, mean another model than the one that was trained.
void tell_unused(const Architecture& architecture, const formats::TensorFolder& files) {
  const UsedNames used(architecture);
  const bool head_unused =
      architecture.config().tied_embeddings || architecture.head().kind() == HeadKind::kNormAlone;
  int64_t count = 0;
  std::string first;
  for (const formats::StoredTensor* tensor : files.tensors()) {
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

// Brings one block's tensors to the device; temporary memory lives until the block is packed.
class BlockLoader {
 public:
  BlockLoader(ModelWeights& weights, Stream& stream, const formats::TensorFolder& files)
      : weights_(weights),
        stream_(stream),
        files_(files),
        team_(stream.device().kind() == DeviceKind::kCpu
                  ? static_cast<CpuStream&>(stream).cpu().team()
                  : alone_),
        copies_(stream, "loading") {}

  Status load(size_t node) {
    const Architecture& architecture = weights_.architecture();
    const auto specs = architecture.block(node).params();
    const BlockWeights& block = weights_.block(node);
    BlockWeights source{.packed = block.packed, .format = block.format};
    std::vector<size_t> alone;
    for (size_t i = 0; i < specs.size(); ++i) {
      source.params.emplace_back();
      if (specs[i].adapter) continue;
      const TensorView& value = block.params[i].value;
      if (value && tied_head(architecture, node, specs[i])) continue;  // the table's memory
      if (is_stacked(files_, specs[i]) || is_joined(files_, specs[i])) {
        alone.push_back(i);
        continue;
      }
      JIGE_TRY(const auto quantised, find_quantised(architecture.config(), files_, specs[i]));
      if (quantised) {
        alone.push_back(i);
        continue;
      }
      JIGE_TRY(TensorView stored, find_checked(files_, specs[i]));
      if (specs[i].transposed) {
        JIGE_TRY(stored, transposed(stored));
      }
      if (const auto& order = specs[i].stored_rows) {
        JIGE_TRY(stored, reordered(stored, *order));
      }
      if (value) {
        JIGE_DO(copy_converted(stream_, value, stored));
      } else {
        JIGE_TRY(source.params.back().value, to_device(stored));
      }
    }
    architecture.block(node).pack(stream_, source, weights_.options().compute,
                                  weights_.options().use);
    finish();
    for (const size_t i : alone) JIGE_DO(load_alone(node, i));
    return {};
  }

 private:
  // What has to be made out of what is stored. Values are rounded once, to what is computed with.
  Result<Param> make(const ParamSpec& spec, bool has_value, ops::WeightFormat format) {
    Param made;
    if (is_stacked(files_, spec)) {
      JIGE_TRY(made.value, read_stacked(files_, spec, team_, buffer_));
      return made;
    }
    if (is_joined(files_, spec)) {
      JIGE_TRY(made.value, read_joined(files_, spec, buffer_));
      return made;
    }
    JIGE_TRY(const auto quantised, find_quantised(weights_.architecture().config(), files_, spec));
    JIGE_CHECK(quantised, "{} is made of nothing", spec.name);
    const DType dtype = has_value ? DType::kF32 : weights_.options().compute;
    JIGE_TRY(made.value, read_quantised(*quantised, files_.folder(), dtype, team_, buffer_));
    if (!has_value && format != ops::WeightFormat::kCompute) {
      JIGE_TRY(made.scales, read_block_scales(*quantised, files_.folder(), team_, scales_));
    }
    return made;
  }

  // One parameter by itself: all of a layer's matrices at once might not fit beside the model.
  Status load_alone(size_t node, size_t index) {
    const Architecture& architecture = weights_.architecture();
    const auto specs = architecture.block(node).params();
    const BlockWeights& block = weights_.block(node);
    const TensorView& value = block.params[index].value;
    JIGE_TRY(Param stored, make(specs[index], static_cast<bool>(value), block.format));
    if (const auto& order = specs[index].stored_rows) {
      JIGE_TRY(stored.value, reordered(stored.value, *order));
      if (stored.scales) {
        JIGE_TRY(stored.scales, reordered(stored.scales, *order));
      }
    }
    if (value) {
      const Status copied = copy_converted(stream_, value, stored.value);
      finish();
      return copied;
    }
    BlockWeights source{.packed = block.packed, .format = block.format};
    source.params.resize(specs.size());
    JIGE_TRY(source.params[index].value, to_device(stored.value));
    if (stored.scales) {
      JIGE_TRY(source.params[index].scales, to_device(stored.scales));
    }
    architecture.block(node).pack(stream_, source, weights_.options().compute,
                                  weights_.options().use);
    finish();
    return {};
  }

  void finish() {
    copies_.clear();
    host_.clear();
  }

  Result<TensorView> transposed(const TensorView& stored) {
    const Shape shape{stored.shape[1], stored.shape[0]};
    JIGE_TRY(const TensorView view, host_memory(stored.dtype, shape));
    transpose_into(view, stored);
    return view;
  }

  Result<TensorView> reordered(const TensorView& stored, const StoredRows& order) {
    JIGE_TRY(const TensorView view, host_memory(stored.dtype, stored.shape));
    rows_from_files(view, stored, order);
    return view;
  }

  // Until finish().
  Result<TensorView> host_memory(DType dtype, const Shape& shape) {
    return host_.emplace_back().make(files_.folder(), dtype, shape);
  }

  // What pack() reads: vectors as f32, matrices as they are.
  Result<TensorView> to_device(const TensorView& stored) {
    return copies_.of(stored, stored.shape.rank() == 1 ? DType::kF32 : stored.dtype);
  }

  ModelWeights& weights_;
  Stream& stream_;
  const formats::TensorFolder& files_;
  ThreadTeam alone_{1};
  ThreadTeam& team_;  // decodes: the device's threads, where they are the host's
  DeviceCopies copies_;
  LoadBuffer buffer_;  // of what is loaded alone
  LoadBuffer scales_;  // of its blocks
  std::vector<LoadBuffer> host_;
};

}  // namespace

Status check_weights(const Architecture& architecture, const formats::TensorFolder& files) {
  for (size_t node = 0; node < architecture.node_count(); ++node) {
    for (const ParamSpec& spec : architecture.block(node).params()) {
      if (spec.adapter) continue;
      if (is_stacked(files, spec)) {
        JIGE_DO(check_stacked(files, spec));
        continue;
      }
      if (is_joined(files, spec)) {
        JIGE_DO(check_joined(files, spec));
        continue;
      }
      JIGE_TRY(const auto quantised, find_quantised(architecture.config(), files, spec));
      if (!quantised) JIGE_DO(find_checked(files, spec).map([](const TensorView&) {}));
    }
  }
  return {};
}

Status load_weights(ModelWeights& weights, Stream& stream, const formats::TensorFolder& files,
                    WeightsKeeper* keeper) {
  JIGE_DO(check_weights(weights.architecture(), files));
  JIGE_DO(check_tied_copy(weights.architecture(), files));
  tell_unused(weights.architecture(), files);
  BlockLoader loader(weights, stream, files);
  for (size_t node = 0; node < weights.architecture().node_count(); ++node) {
    if (!weights.options().held.holds_node(weights.architecture(), node)) continue;
    JIGE_DO(loader.load(node));
    weights.pack(stream, node);
    if (!weights.is_streamed(node)) continue;
    JIGE_CHECK(keeper, "nobody keeps {}", weights.architecture().block(node).name());
    keeper->keep(stream, node);
  }
  stream.synchronize();
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
