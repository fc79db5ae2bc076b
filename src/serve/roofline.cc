#include "serve/roofline.h"

#include <algorithm>
#include <cmath>

#include "model/weights_layout.h"

namespace jige::serve {
namespace {

constexpr double kMemorySeconds = 10;
constexpr double kAllKeys = 1e9;  // more than any sequence has

// The part of a block's packed bytes that its experts take, by their parameters.
double share_of_experts(const model::Block& block) {
  double experts = 0;
  double all = 0;
  for (const model::ParamSpec& spec : block.params()) {
    if (!spec.packed) continue;
    const auto count = static_cast<double>(spec.shape.count());
    all += count;
    if (spec.stacked) experts += count;
  }
  return all > 0 ? experts / all : 0;
}

}  // namespace

RooflineModel::RooflineModel(const model::Architecture& architecture,
                             const model::InferenceSizes& sizes) {
  const formats::ModelConfig& config = architecture.config();
  const model::WeightsOptions options = model::inference_weights_options(sizes);
  const size_t head = architecture.head_node();
  const formats::ExpertConfig& experts = config.experts;
  whole_texts_ = sizes.whole_texts;
  if (experts.count > 0) {
    unchosen_ = 1 - static_cast<double>(experts.chosen) / static_cast<double>(experts.count);
  }
  for (size_t node = 0; node <= head; ++node) {
    if (!sizes.layers.holds_node(architecture, node)) continue;
    const model::Block& block = architecture.block(node);
    const auto bytes = static_cast<double>(model::packed_bytes(architecture, options, node));
    if (node == head) {
      head_bytes_ = bytes;
      head_flops_ = block.forward_flops(1, 0);
      continue;
    }
    const double of_experts = bytes * share_of_experts(block);
    body_bytes_ += bytes - of_experts;
    expert_bytes_ += of_experts;
    body_flops_ += block.forward_flops(1, 0);
    if (node == 0) continue;
    // Over the layer's cache or that of the one whose keys it has.
    const int64_t source = formats::key_source(config, static_cast<int64_t>(node) - 1);
    const bool cached = !sizes.whole_texts && model::has_cache(config, source);
    add_layer(block,
              !cached ? 0
                      : static_cast<double>(model::cache_bytes(config, source, sizes.kv_dtype, 1)) /
                            static_cast<double>(ops::kKvBlockTokens));
  }
}

void RooflineModel::add_layer(const model::Block& layer, double kv_bytes) {
  const double alone = layer.forward_flops(1, 0);
  const double of_key = layer.forward_flops(1, 1) - alone;
  if (of_key <= 0) return;
  const double keys_max = (layer.forward_flops(1, kAllKeys) - alone) / of_key;
  auto reach = std::ranges::find(reaches_, keys_max, &Reach::keys_max);
  if (reach == reaches_.end()) reach = reaches_.insert(reach, {.keys_max = keys_max});
  reach->flops += of_key;
  reach->kv_bytes += kv_bytes;
}

double RooflineModel::body_bytes(double rows) const {
  return body_bytes_ + expert_bytes_ * (1 - std::pow(unchosen_, rows));
}

void RooflineModel::add_forward(RooflineSample& sample,
                                std::span<const ops::SequenceSpan> sequences,
                                int64_t logit_rows) const {
  double rows = 0;
  for (const ops::SequenceSpan& sequence : sequences) {
    const double count = sequence.row_count;
    const double context = sequence.context_count;
    const double mean = whole_texts_ ? count / 2 : context + (count + 1) / 2;
    rows += count;
    for (const Reach& reach : reaches_) {
      sample.flops += reach.flops * count * std::min(mean, reach.keys_max);
      sample.bytes += reach.kv_bytes * std::min(context + count, reach.keys_max + count - 1);
    }
  }
  sample.bytes += body_bytes(rows) + (logit_rows > 0 ? head_bytes_ : 0);
  sample.flops += body_flops_ * rows + head_flops_ * static_cast<double>(logit_rows);
  sample.tokens += static_cast<int64_t>(rows);
}

void RecentWork::add(const RooflineSample& sample, int64_t requests_finished) {
  const double kept = std::exp(-sample.seconds / kMemorySeconds);
  sum_.bytes = sum_.bytes * kept + sample.bytes;
  sum_.flops = sum_.flops * kept + sample.flops;
  sum_.seconds = sum_.seconds * kept + sample.seconds;
  tokens_ = tokens_ * kept + static_cast<double>(sample.tokens);
  sum_.tokens = std::llround(tokens_);
  finished_ = finished_ * kept + static_cast<double>(requests_finished);
}

}  // namespace jige::serve
