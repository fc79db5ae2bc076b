// Architecture: a ModelConfig as blocks and their graph, with the family's Hugging Face tensor
// names.
//
//   JIGE_TRY(const auto model, model::Architecture::create(config));
//   for (const BlockGraph::Node& node : model->graph().nodes) node.block->params() …
//
// The graph is a chain: embedding, layer 0 … L-1, head. One Architecture serves any number of
// weights, and of devices of the kind that it is made for, which sizes of work depend on (head.h).
// Invariant: a parameter name is unique, except that a tied head's matrix has the name of the
// embedding's table, and that every layer has the scores or rows by distance of all (MPNet,
// DeBERTa). A model whose head is the final norm alone (HeadKind) is for inference: nothing asks
// for its loss. Threads: immutable after create().
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/model_config.h"
#include "model/block.h"
#include "model/embedding.h"
#include "model/head.h"
#include "model/stream_layout.h"
#include "model/transformer_layer.h"
#include "tensor/device.h"

namespace jige::model {

// That adapters may be added to a model's linear layers: not where products of attention are of
// rows that no token has. Fails with kUnsupported.
Status check_adapts(const formats::ModelConfig& config);

class Architecture {
 public:
  // `lora` puts adapters on the linears it targets (all of them if it names none) and freezes the
  // rest. Fails with kInvalidArgument where a configuration contradicts itself, a target names no
  // linear of a layer or the rank is out of range, kUnsupported on a language model's head over
  // layers that look ahead.
  static Result<std::unique_ptr<const Architecture>> create(
      const formats::ModelConfig& config, const std::optional<formats::LoraConfig>& lora = {},
      HeadKind head = HeadKind::kLanguageModel, DeviceKind device = DeviceKind::kCpu);

  const formats::ModelConfig& config() const { return config_; }
  const std::optional<formats::LoraConfig>& lora() const { return lora_; }
  DeviceKind device() const { return device_; }  // that multiplies
  const BlockGraph& graph() const { return graph_; }
  const Embedding& embedding() const { return *embedding_; }
  const std::vector<std::unique_ptr<TransformerLayer>>& layers() const { return layers_; }
  const Head& head() const { return *head_; }

  size_t node_count() const { return graph_.nodes.size(); }
  const Block& block(size_t node) const { return *graph_.nodes[node].block; }
  size_t head_node() const { return node_count() - 1; }

  // The module of a head that has a matrix of its own: "lm_head".
  const std::string& own_head_name() const { return own_head_name_; }

  // The rank with which adapters say all that they can: the most of any, which is the smaller side
  // of its matrix. 0 without adapters.
  int64_t adapter_rank_useful() const;

  // Columns of what flows between blocks (stream_layout.h).
  int64_t stream_columns() const { return StreamLayout(config_).columns(); }
  // Of them, those that the head reads.
  int64_t head_columns() const { return StreamLayout(config_).residual_columns(); }

  // Columns of the rope table; 0 without rotary positions.
  int64_t rope_columns() const;

  // Names under which a file may hold a parameter, the usual one first. Folders of base classes
  // ("Qwen3Model" and not "Qwen3ForCausalLM") leave out the first part of every name.
  static std::vector<std::string> stored_names(const ParamSpec& spec);
  // The same of any name: as it is, beside images, and of a base class.
  static std::vector<std::string> names_in_files(const std::string& name);
  // A name without the part that base classes leave out; as it is where it has none.
  static std::string base_name(const std::string& name);

  // Forward floating-point operations for T tokens of mean context length C; a training step takes
  // three times as many.
  double forward_flops(double token_count, double context_mean) const;

 private:
  Architecture(const formats::ModelConfig& config, const std::optional<formats::LoraConfig>& lora,
               HeadKind head, DeviceKind device);

  formats::ModelConfig config_;
  std::optional<formats::LoraConfig> lora_;
  DeviceKind device_;
  std::string own_head_name_;
  std::unique_ptr<Embedding> embedding_;
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  std::unique_ptr<Head> head_;
  BlockGraph graph_;
};

}  // namespace jige::model
